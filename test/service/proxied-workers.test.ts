import { once } from 'node:events';
import { request } from 'node:http';
import { connect, Socket } from 'node:net';
import { json } from 'node:stream/consumers';
import type pg from 'pg';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { eventually } from '../support/eventually.ts';
import { type Installation, makeInstallation, type PosternProcess } from '../support/process.ts';
import { type TestOrganization, testVariables } from '../support/service.ts';
import { startsOf } from '../support/worker-processes.ts';

const PROXY = '127.0.0.2';
const WORKERS = 2;
const CLIENTS = 8;

let installation: Installation;
let postern: PosternProcess;
let organization: TestOrganization;
beforeAll(async () => {
  installation = await makeInstallation();
  postern = await installation.start({ ...testVariables(), POSTERN_WORKERS: String(WORKERS), POSTERN_PROXY_PROTOCOL_FROM: PROXY });
  await eventually('all workers have started', () => startsOf(postern) === WORKERS);
  organization = await postern.signUp();
});
afterAll(() => installation.remove());

/** Writes a header with the client's address before anything else. */
class ProxiedSocket extends Socket {
  readonly #client: string;

  constructor(client: string) {
    super();
    this.#client = client;
  }

  override connect(...[port]: unknown[]): this {
    super.connect({ port: Number(port), host: '127.0.0.1', localAddress: PROXY });
    this.write(`PROXY TCP4 ${this.#client} 10.0.0.1 56324 12901\r\n`);
    return this;
  }
}

async function get(path: string, client: string) {
  const port = Number(new URL(postern.httpUrl).port);
  const headers = { authorization: `Bearer ${organization.apiKey}`, connection: 'close' };
  const sent = request({ path, headers, createConnection: () => new ProxiedSocket(client).connect(port) });
  const [reply] = await once(sent.end(), 'response');
  return { status: reply.statusCode, body: (await json(reply)) as { sessions: { sourceIp: string; door: string }[] } };
}

/** @returns of each worker, the value of a metric with these labels */
async function metric(name: string, labels: string): Promise<number[]> {
  const text = await (await fetch(`${postern.opsUrl}/metrics`)).text();
  return [...text.matchAll(new RegExp(`^${name}\\{(?=[^}]*${labels})[^}]*worker="\\d"[^}]*\\} (\\d+)$`, 'gm'))].map(([, value]) =>
    Number(value),
  );
}

const sum = (values: readonly number[]) => values.reduce((all, one) => all + one, 0);

it('each worker takes the clients’ addresses from the headers, for all of them', async () => {
  const addresses = Array.from({ length: CLIENTS }, (_, index) => `198.51.100.${index + 1}`);
  const clients: pg.Client[] = [];
  for (const address of addresses) clients.push(await postern.connect(organization, { stream: () => new ProxiedSocket(address) }));
  for (const client of clients) expect((await client.query('SELECT 1 AS one')).rows).toEqual([{ one: 1 }]);
  await eventually('all workers have some', async () => {
    const counts = await metric('postern_wire_sessions', '');
    return counts.length === WORKERS && sum(counts) === CLIENTS && counts.every((count) => count > 0);
  });
  const { status, body } = await get('/api/sessions', '203.0.113.7');
  expect(status).toBe(200);
  const of = (door: string) => body.sessions.filter((one) => one.door === door).map(({ sourceIp }) => sourceIp);
  expect(of('wire').sort()).toEqual(addresses);
  expect(of('http')).toEqual(['203.0.113.7']);
  for (const client of clients) await client.end();
});

it('each refuses a proxy without a header, and all are counted', async () => {
  for (const [door, port] of [
    ['http', Number(new URL(postern.httpUrl).port)],
    ['wire', postern.wirePort],
  ] as const) {
    for (let count = 0; count < 2 * WORKERS; count += 1) {
      const socket = connect({ host: '127.0.0.1', port, localAddress: PROXY }).on('error', () => {});
      let received = 0;
      socket.on('data', (chunk) => {
        received += chunk.length;
      });
      socket.write('GET /healthz HTTP/1.1\r\n\r\n');
      await once(socket, 'close');
      expect(received).toBe(0);
    }
    await eventually('all are counted', async () => {
      const counts = await metric('postern_proxy_headers_refused_total', `door="${door}"`);
      return sum(counts) === 2 * WORKERS && counts.filter((count) => count > 0).length === WORKERS;
    });
  }
});
