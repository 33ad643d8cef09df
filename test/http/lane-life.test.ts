import { once } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import type { Observation } from '../../src/observation.ts';
import { eventually } from '../support/eventually.ts';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';
import { openElsewhere, plainRequest, RawClient } from './raw-client.ts';

const HEADERS_MS = 300;
const REQUEST_MS = 900;
const KEEP_ALIVE_MS = 500;
const SEND_MS = 1_500;
/** How late it may be on a machine that is busy. */
const PATIENCE_MS = 1_500;

let service: TestService;
let acme: TestOrganization;
let operator: pg.Client;
let port: number;
beforeAll(async () => {
  service = await startTestService({
    POSTERN_HTTP_HEADERS_TIMEOUT_MS: String(HEADERS_MS),
    POSTERN_HTTP_REQUEST_TIMEOUT_MS: String(REQUEST_MS),
    POSTERN_HTTP_KEEP_ALIVE_TIMEOUT_MS: String(KEEP_ALIVE_MS),
    POSTERN_HTTP_SEND_TIMEOUT_MS: String(SEND_MS),
  });
  acme = await service.signUp();
  port = Number(new URL(service.httpUrl).port);
  operator = new pg.Client({ connectionString: inject('clusterUrl') });
  await operator.connect();
});
afterAll(async () => {
  await operator.end();
  await service.close();
});

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

/** How long until the connection closes, and what comes before. */
async function closing({ rest }: RawClient): Promise<{ readonly ms: number; readonly text: string }> {
  const since = performance.now();
  const text = String(await rest);
  return { ms: performance.now() - since, text };
}

describe('a connection', () => {
  it('on which nothing comes is refused', async () => {
    const { ms, text } = await closing(await RawClient.open(port));
    expect(text).toMatch(/^HTTP\/1\.1 408 Request Timeout\r\n.*"code":"request_timeout"/s);
    expect(ms).toBeGreaterThan(HEADERS_MS - 50);
    expect(ms).toBeLessThan(HEADERS_MS + PATIENCE_MS);
  });

  it.each([
    ['half a head', -60, HEADERS_MS],
    ['half a body', -5, REQUEST_MS],
  ])('on which %s comes is refused', async (_what, end, deadlineMs) => {
    for (const before of [0, 1]) {
      const client = await RawClient.open(port);
      if (before === 1) await client.ask(ONE());
      client.send(ONE().slice(0, end));
      const { ms, text } = await closing(client);
      expect(text).toMatch(/^HTTP\/1\.1 408 /);
      expect(ms).toBeGreaterThan(deadlineMs - 50);
      expect(ms).toBeLessThan(deadlineMs + PATIENCE_MS);
    }
  });

  it('has as long for a body as for a request', async () => {
    const client = await RawClient.open(port);
    const bytes = ONE();
    client.send(bytes.slice(0, -5));
    await delay(HEADERS_MS * 2);
    expect(await client.ask(bytes.slice(-5))).toMatchObject({ status: 200 });
    client.socket.destroy();
  });

  it('on which a body comes bit by bit has no more time for it', async () => {
    const client = await RawClient.open(port);
    const bytes = ONE();
    client.send(bytes.slice(0, -15));
    const dripping = setInterval(() => client.send(' '), 100);
    const { ms, text } = await closing(client);
    clearInterval(dripping);
    expect(text).toMatch(/^HTTP\/1\.1 408 /);
    expect(ms).toBeLessThan(REQUEST_MS + PATIENCE_MS);
  });

  it('is closed without a word when it has been idle for too long, and not before', async () => {
    const client = await RawClient.open(port);
    for (let round = 0; round < 3; round += 1) {
      expect(await client.ask(ONE())).toMatchObject({ status: 200 });
      await delay(KEEP_ALIVE_MS - 200);
    }
    await client.ask(ONE());
    const { ms, text } = await closing(client);
    expect(text).toBe('');
    expect(ms).toBeGreaterThan(KEEP_ALIVE_MS - 50);
    expect(ms).toBeLessThan(KEEP_ALIVE_MS + PATIENCE_MS);
  });

  it('waits for a slow reply longer than for anything else', async () => {
    const client = await RawClient.open(port);
    expect(await client.ask(request('select pg_sleep(2)'))).toMatchObject({ status: 200 });
    client.socket.destroy();
  });
});

const LARGE = (mark: string) => `select repeat('x', 1000) as ${mark} from generate_series(1, 10000000)`;

describe('a client that reads', () => {
  it('nothing slows Postgres down, and is dropped', async () => {
    const client = await RawClient.open(port);
    client.socket.pause();
    const id = newId();
    client.send(request(LARGE('nothing_read'), id));
    await eventually('Postgres waits', async () => (await running('nothing_read'))[0]?.wait_event === 'ClientWrite');
    expect(await outcomeOf(id)).toMatchObject({ status: 'error', httpStatus: 200, sqlstate: '57014' });
    await over('nothing_read');
    client.socket.destroy();
  });

  it('slowly gets all there is', async () => {
    const client = await RawClient.open(port);
    const since = performance.now();
    client.send(request("select g, repeat('y', 10000) as slowly from generate_series(1, 400) g"));
    const slowing = setInterval(() => client.socket.pause(), 40);
    const going = setInterval(() => client.socket.resume(), 100);
    const { body } = await client.reply();
    for (const timer of [slowing, going]) clearInterval(timer);
    expect(JSON.parse(body).rows).toHaveLength(400);
    expect(performance.now() - since).toBeGreaterThan(200);
    client.socket.destroy();
  });
});

/** Replies that nobody reads, until one is stuck: how many there are, and which one that is. */
async function fill(client: RawClient): Promise<{ readonly replies: number; readonly stuck: string }> {
  client.socket.pause();
  for (let replies = 1; ; replies += 1) {
    const id = newId();
    client.send(request("select repeat('x', 60000) as text", id));
    for (let waited = 0; !service.observations.some(isOf(id)); waited += 10) {
      if (waited > 300) return { replies, stuck: id };
      await delay(10);
    }
  }
}

describe('a client that goes away', () => {
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
    client.send(request('create table never_made ()', id).slice(0, -1));
    client.socket.destroy();
    await delay(100);
    expect(service.observations.some(isOf(id))).toBe(false);
  });

  it.each([['in the lane', RawClient.open] as const, ['elsewhere', openElsewhere] as const])(
    'by sending no more is given all that had been made for it, %s',
    async (_where, open) => {
      const client = await open(port);
      const { replies } = await fill(client);
      client.socket.end();
      await delay(50);
      client.socket.resume();
      const got = await client.replies();
      expect(got.whole).toBe(true);
      expect(got.replies).toHaveLength(replies);
    },
  );

  it.each([['in the lane', RawClient.open] as const, ['elsewhere', openElsewhere] as const])(
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
    await fill(client);
    const id = newId();
    client.send(request('select 1', id));
    await delay(50);
    client.socket.resetAndDestroy();
    await delay(200);
    expect(service.observations.some(isOf(id))).toBe(false);
  });
});

describe('a reply that breaks off', () => {
  it('takes the connection with it, in the lane and elsewhere', async () => {
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
