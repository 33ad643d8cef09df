import { afterAll, beforeAll, expect, it } from 'vitest';
import { eventually } from '../support/eventually.ts';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';
import { openElsewhere, plainRequest, type RawClient } from './raw-client.ts';

/* Node's server hands out requests that come behind others on a connection before those have been answered. */

let service: TestService;
let acme: TestOrganization;
let port: number;
beforeAll(async () => {
  service = await startTestService({ POSTERN_HTTP_REQUESTS_PER_TENANT: '1' });
  acme = await service.signUp();
  port = Number(new URL(service.httpUrl).port);
});
afterAll(() => service.close());

const request = (sql: string, id: string) => plainRequest(acme.apiKey, { sql }, `X-Request-Id: ${id}`);

function outcomeOf(id: string) {
  for (const seen of service.observations) if (seen.name === 'http.request' && seen.origin.requestId === id) return seen.outcome;
  return undefined;
}

it('are carried out one after the other', async () => {
  await service.query(acme, 'create table written (a int)');
  const client = await openElsewhere(port);
  const texts = [
    'insert into written select 1 from pg_sleep(0.2)',
    'insert into written values (2)',
    'select array_agg(a) as all from written',
  ];
  client.send(texts.map((sql) => request(sql, 'in-turn')).join(''));
  expect((await client.reply()).status).toBe(200);
  expect((await client.reply()).status).toBe(200);
  expect(JSON.parse((await client.reply()).body)).toMatchObject({ rows: [{ all: [1, 2] }] });
  client.socket.destroy();
});

it.each<[how: string, go: (client: RawClient) => unknown]>([
  ['altogether', ({ socket }) => socket.destroy()],
  ['with a reset', ({ socket }) => socket.resetAndDestroy()],
  ['by sending no more', ({ socket }) => socket.end()],
])('those of a client that goes %s are ended or never begun', async (how, go) => {
  const client = await openElsewhere(port);
  const [first = '', ...others] = ['first', 'second', 'third'].map((name) => `${name}-${how.replaceAll(' ', '-')}`);
  const granted = () => service.observations.filter(({ name }) => name === 'lease.granted').length;
  const before = granted();
  client.send([first, ...others].map((id) => request('select pg_sleep(20)', id)).join(''));
  await eventually('the first is at work', () => granted() > before);
  expect((await service.query(acme, 'select 1')).status).toBe(429);
  go(client);
  await eventually('it is told', () => outcomeOf(first) !== undefined);
  expect(outcomeOf(first)).toMatchObject({ status: 'error', httpStatus: 499, sqlstate: '57014' });
  expect((await service.query(acme, 'select 1')).status).toBe(200);
  expect(granted()).toBe(before + 2);
  expect(others.map(outcomeOf)).toEqual([undefined, undefined]);
});
