import { once } from 'node:events';
import { get } from 'node:http';
import { PassThrough, Readable } from 'node:stream';
import { setImmediate as turn } from 'node:timers/promises';
import Fastify, { type FastifyReply } from 'fastify';
import { afterEach, expect, it } from 'vitest';
import { trackRequests } from '../../http/app.ts';
import { setHeadersAlways } from '../../http/headers.ts';
import { RequestOutcomes } from '../../http/problems.ts';
import { sendResult } from '../../http/replies.ts';
import { RequestsInProgress } from '../../http/requests-in-progress.ts';
import { eventually } from '../support/eventually.ts';

const TYPE = 'application/json';
let app = Fastify();
afterEach(() => app.close());

/** A door that answers with what is made for each call. */
async function serve(handler: (reply: FastifyReply) => Promise<void> | void): Promise<string> {
  app = Fastify();
  trackRequests(app, new RequestOutcomes(() => {}), new RequestsInProgress(), ({ remoteAddress = '' }) => remoteAddress);
  setHeadersAlways(app);
  app.get('/', async (_request, reply) => handler(reply));
  return app.listen({ host: '127.0.0.1', port: 0 });
}

it('sends bytes as they are, in one piece or two', async () => {
  const bodies = [100, 8_192, 8_193, 60_000].map((bytes) => Buffer.from('é"\0\xff'.repeat(bytes)).subarray(0, bytes));
  let next = 0;
  const url = await serve((reply) => sendResult(reply, TYPE, Buffer.from(bodies[next++] ?? '')));
  for (const body of bodies) {
    const reply = await fetch(url);
    expect(Buffer.from(await reply.arrayBuffer())).toEqual(body);
    expect(Object.fromEntries(reply.headers)).toMatchObject({
      'content-type': TYPE,
      'content-length': String(body.length),
      'cache-control': 'no-store',
      'x-request-id': expect.stringMatching(/./),
    });
  }
});

it('lets an error take the place of a stream of which nothing has been sent', async () => {
  const url = await serve(async (reply) => {
    const body = new PassThrough();
    body.on('error', () => {});
    body.write('{"rows":[');
    body.destroy(new Error('broke off'));
    await turn();
    sendResult(reply, TYPE, body);
  });
  const reply = await fetch(url);
  expect(reply.status).toBe(500);
  expect(await reply.json()).toMatchObject({ message: 'broke off' });
});

it('breaks the connection off with a stream that breaks off', async () => {
  const url = await serve((reply) => {
    const body = new PassThrough();
    sendResult(reply, TYPE, body);
    body.write('{"rows":[');
    setTimeout(() => body.destroy(new Error('broke off')), 50);
  });
  const reply = await fetch(url);
  expect(reply.status).toBe(200);
  await expect(reply.text()).rejects.toThrow();
});

it('gives up a stream whose reader has gone, and stops it while he is behind', async () => {
  let made = 0;
  const body = new Readable({
    read() {
      made += 1;
      this.push(Buffer.alloc(65_536, 'x'));
    },
  });
  const url = await serve((reply) => sendResult(reply, TYPE, body));
  const request = get(url);
  request.on('error', () => {});
  await once(request, 'response');
  await eventually('the stream is stopped', () => body.isPaused());
  expect(made).toBeLessThan(1_000);
  request.destroy();
  await once(body, 'close');
  expect(body.destroyed).toBe(true);
});
