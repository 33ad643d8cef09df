import { once } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import type { Observation } from '../../src/observation.ts';
import { eventually } from '../support/eventually.ts';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';
import { openElsewhere, plainRequest, RawClient } from './raw-client.ts';
import { deliver, serverEnd } from './server-end.ts';

const HEADERS_MS = 3_000;
const REQUEST_MS = 4_500;
const KEEP_ALIVE_MS = 6_000;
const SEND_MS = 6_000;

let service: TestService;
let acme: TestOrganization;
let port: number;

/** Deadlines that are not named are longer than any test may take. */
function serve(deadlines: Readonly<Record<string, number>>): void {
  beforeAll(async () => {
    service = await startTestService(
      Object.fromEntries(Object.entries(deadlines).map(([name, ms]) => [`POSTERN_HTTP_${name}_TIMEOUT_MS`, String(ms)])),
    );
    acme = await service.signUp();
    port = Number(new URL(service.httpUrl).port);
  });
  afterAll(() => service.close());
}

let operator: pg.Client;
beforeAll(async () => {
  operator = new pg.Client({ connectionString: inject('clusterUrl') });
  await operator.connect();
});
afterAll(() => operator.end());

let made = 0;
const newId = () => `life-${++made}`;
const request = (sql: string, id = newId()) => plainRequest(acme.apiKey, { sql }, `X-Request-Id: ${id}`);
const ONE = () => request('select 1');

type Observed = Extract<Observation, { name: 'http.request' }>;

const isOf =
  (id: string) =>
  (seen: Observation): seen is Observed =>
    seen.name === 'http.request' && seen.origin.requestId === id;

async function outcomeOf(id: string) {
  await eventually(`the end of ${id}`, () => service.observations.some(isOf(id)));
  return service.observations.find(isOf(id))?.outcome;
}

/** Statements with this mark that run, as Postgres tells of them. */
async function running(mark: string): Promise<{ wait_event: string }[]> {
  const sql = "select wait_event from pg_stat_activity where usename = $1 and state = 'active' and query like $2";
  return (await operator.query(sql, [acme.id, `%${mark}%`])).rows;
}

const begun = (mark: string) => eventually(`${mark} runs`, async () => (await running(mark)).length > 0);
const over = (mark: string) => eventually(`${mark} runs no more`, async () => (await running(mark)).length === 0);

/** The connection is refused, but had its time, which began after a moment by `performance.now()`. */
async function expectRefused({ rest }: RawClient, since: number, deadlineMs: number): Promise<void> {
  expect(String(await rest)).toMatch(/^HTTP\/1\.1 408 Request Timeout\r\n.*"code":"request_timeout"/s);
  expect(performance.now() - since).toBeGreaterThan(deadlineMs);
}

/** Of bytes that a connection begins with, and of such as come behind a request. */
async function expectRefusedAfter(bytes: string, deadlineMs: number): Promise<void> {
  const refused = [false, true].map(async (isBehind) => {
    const client = await RawClient.open(port);
    if (isBehind) await client.ask(ONE());
    const since = performance.now();
    client.send(bytes);
    await expectRefused(client, since, deadlineMs);
  });
  await Promise.all(refused);
}

describe('a connection on which there is little time for a head, or between requests', () => {
  serve({ HEADERS: HEADERS_MS, KEEP_ALIVE: KEEP_ALIVE_MS });

  it.concurrent('is refused when nothing comes', async () => {
    const since = performance.now();
    await expectRefused(await RawClient.open(port), since, HEADERS_MS);
  });

  it.concurrent('is refused when half a head comes', () => expectRefusedAfter(ONE().slice(0, -60), HEADERS_MS));

  it.concurrent('has as long for a body as for a request', async () => {
    const client = await RawClient.open(port);
    const bytes = ONE();
    await deliver(client, bytes.slice(0, -5));
    // Another one on which nothing comes knows when the time for a head is over.
    expect(await (await RawClient.open(port)).reply()).toMatchObject({ status: 408 });
    expect(await client.ask(bytes.slice(-5))).toMatchObject({ status: 200 });
    client.socket.destroy();
  });

  it.concurrent('is closed without a word when it has been idle for too long since its last request', async () => {
    const client = await RawClient.open(port);
    expect(await client.ask(ONE())).toMatchObject({ status: 200 });
    // The time for another head would be looked at meanwhile.
    await delay(HEADERS_MS / 2);
    const since = performance.now();
    expect(await client.ask(ONE())).toMatchObject({ status: 200 });
    expect(String(await client.rest)).toBe('');
    expect(performance.now() - since).toBeGreaterThan(KEEP_ALIVE_MS);
  });
});

const LARGE = (mark: string) => `select repeat('x', 1000) as ${mark} from generate_series(1, 10000000)`;

const postgresWaits = (mark: string) => eventually('Postgres waits', async () => (await running(mark))[0]?.wait_event === 'ClientWrite');

/** Lets so many bytes come, and no more. */
async function take({ socket }: RawClient, bytes: number): Promise<void> {
  const enough = socket.bytesRead + bytes;
  socket.resume();
  while (socket.bytesRead < enough) await once(socket, 'data');
  socket.pause();
}

describe('where there is little time for anything', () => {
  serve({ HEADERS: HEADERS_MS, REQUEST: REQUEST_MS, KEEP_ALIVE: KEEP_ALIVE_MS, SEND: SEND_MS });

  it.concurrent('a connection on which half a body comes is refused', () => expectRefusedAfter(ONE().slice(0, -5), REQUEST_MS));

  it.concurrent('a body that comes bit by bit has no more time', async () => {
    const client = await RawClient.open(port);
    const since = performance.now();
    client.send(request(`select 1${' '.repeat(1_000)}`).slice(0, -1_000));
    const dripping = setInterval(() => client.send(' '), 100);
    await expectRefused(client, since, REQUEST_MS);
    clearInterval(dripping);
  });

  it.concurrent('a slow reply is waited for longer than for anything else', async () => {
    const client = await RawClient.open(port);
    expect(await client.ask(request(`select pg_sleep(${SEND_MS / 1_000 + 0.5})`))).toMatchObject({ status: 200 });
    client.socket.destroy();
  });

  it.concurrent('a client that reads nothing slows Postgres down, and is dropped', async () => {
    const client = await RawClient.open(port);
    client.socket.pause();
    const id = newId();
    client.send(request(LARGE('nothing_read'), id));
    await postgresWaits('nothing_read');
    expect(await outcomeOf(id)).toMatchObject({ status: 'error', httpStatus: 200, sqlstate: '57014' });
    await over('nothing_read');
    client.socket.destroy();
  });

  it.concurrent('a client that reads slowly gets all there is', async () => {
    const client = await RawClient.open(port);
    client.socket.pause();
    client.send(request("select g, repeat('y', 10000) as slowly from generate_series(1, 4000) g"));
    for (let round = 0; round < 3; round += 1) {
      await postgresWaits('slowly');
      await take(client, 8_000_000);
    }
    client.socket.resume();
    // It has nothing more to ask, and is closed some time.
    const { replies, whole } = await client.replies();
    expect(whole).toBe(true);
    expect(JSON.parse(replies[0]?.body ?? '').rows).toHaveLength(4_000);
  });
});

/** Replies that nobody reads, until one is stuck: how many there are, and which one that is. */
async function fill(client: RawClient): Promise<{ readonly replies: number; readonly stuck: string }> {
  const end = await serverEnd(client);
  client.socket.pause();
  for (let replies = 1; ; replies += 1) {
    const stuck = newId();
    const isSent = () => service.observations.some(isOf(stuck));
    client.send(request("select repeat('x', 60000) as text", stuck));
    while (!isSent() && end.writableLength === 0) await delay(1);
    // What only has not been taken yet has by the time that somebody else is answered.
    if (!isSent()) await service.query(acme, 'select 1');
    if (!isSent()) return { replies, stuck };
  }
}

describe('a client that goes away', () => {
  serve({});

  it.each<[how: string, go: (client: RawClient) => unknown]>([
    ['altogether', ({ socket }) => socket.destroy()],
    ['with a reset', ({ socket }) => socket.resetAndDestroy()],
    ['by sending no more', ({ socket }) => socket.end()],
  ])('%s while its query runs cancels it', async (_how, go) => {
    const client = await RawClient.open(port);
    const id = newId();
    client.send(request('select pg_sleep(20) as gone_away', id));
    await begun('gone_away');
    go(client);
    expect(await outcomeOf(id)).toMatchObject({ status: 'error', httpStatus: 499, sqlstate: '57014' });
    await over('gone_away');
    await client.rest;
  });

  it.each<[how: string, go: (client: RawClient) => unknown]>([
    ['altogether', ({ socket }) => socket.destroy()],
    ['with a reset', ({ socket }) => socket.resetAndDestroy()],
  ])('%s in the middle of a reply cancels its query', async (_how, go) => {
    const client = await RawClient.open(port);
    const id = newId();
    client.send(request(LARGE('gone_midway'), id));
    await once(client.socket, 'data');
    go(client);
    expect(await outcomeOf(id)).toMatchObject({ status: 'error', httpStatus: 200, sqlstate: '57014' });
    await over('gone_midway');
  });

  it('before its query began has none carried out', async () => {
    const id = newId();
    const client = await RawClient.open(port);
    const end = await serverEnd(client);
    await deliver(client, request('create table never_made ()', id).slice(0, -1));
    client.socket.destroy();
    await eventually('the door knows it', () => end.closed);
    expect(service.observations.some(isOf(id))).toBe(false);
  });

  it.each([['on the fast path', RawClient.open] as const, ['elsewhere', openElsewhere] as const])(
    'by sending no more is given all that had been made for it, %s',
    async (_where, open) => {
      const client = await open(port);
      const { replies } = await fill(client);
      const end = await serverEnd(client);
      client.socket.end();
      await eventually('the door knows it', () => end.readableEnded);
      client.socket.resume();
      const got = await client.replies();
      expect(got.whole).toBe(true);
      expect(got.replies).toHaveLength(replies);
    },
  );

  it.each([['on the fast path', RawClient.open] as const, ['elsewhere', openElsewhere] as const])(
    'before it has taken all of its reply has not been answered, %s',
    async (_where, open) => {
      const client = await open(port);
      const { stuck } = await fill(client);
      client.socket.resetAndDestroy();
      expect(await outcomeOf(stuck)).toMatchObject({ status: 'error', httpStatus: 200 });
    },
  );

  it('before it has taken all of its reply gets no more requests carried out', async () => {
    const client = await RawClient.open(port);
    const { stuck } = await fill(client);
    const id = newId();
    await deliver(client, request('select 1', id));
    client.socket.resetAndDestroy();
    await outcomeOf(stuck);
    expect((await service.query(acme, 'select 1')).status).toBe(200);
    expect(service.observations.some(isOf(id))).toBe(false);
  });
});

describe('a reply that breaks off', () => {
  serve({});

  it('takes the connection with it, on the fast path and elsewhere', async () => {
    const outcomes = [];
    for (const client of [await RawClient.open(port), await openElsewhere(port)]) {
      const id = newId();
      client.send(request('select g, 1 / (100000 - g) as inverse from generate_series(1, 200000) g', id));
      const { replies, whole } = await client.replies();
      expect([replies, whole]).toEqual([[], false]);
      const { durationMs: _, ...outcome } = (await outcomeOf(id)) ?? { durationMs: 0 };
      outcomes.push(outcome);
    }
    expect(outcomes[0]).toEqual(outcomes[1]);
    expect(outcomes[0]).toMatchObject({ status: 'error', httpStatus: 200, sqlstate: '22012' });
  });
});
