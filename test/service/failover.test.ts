import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import { afterEach, describe, expect, it } from 'vitest';
import { eventually } from '../support/eventually.ts';
import { type ServerPair, startServerPair } from '../support/server-process.ts';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';

let pair: ServerPair;
let service: TestService | undefined;
afterEach(async () => {
  await service?.close();
  service = undefined;
  await pair.remove();
});

/** What is taken from URLs of single hosts. */
function urlOf(...hosts: readonly string[]): string {
  const at = hosts.map((url) => /@([^/]+)\//.exec(url)?.[1]).join();
  return `${hosts[0]?.replace(/@.*/s, '')}@${at}/postgres?target_session_attrs=read-write`;
}

/** Inserts numbers, each once as far as it is known, until it is told to stop. */
interface Writer {
  /** The numbers whose INSERT was acknowledged. */
  readonly acknowledged: number[];
  stop(): Promise<void>;
}

function startWriter(first: number, insert: (number: number) => Promise<boolean>): Writer {
  const acknowledged: number[] = [];
  let isStopped = false;
  const writing = (async () => {
    for (let number = first; !isStopped; number += 1) {
      if (await insert(number)) acknowledged.push(number);
      else await delay(20);
    }
  })();
  return {
    acknowledged,
    async stop() {
      isStopped = true;
      await writing;
    },
  };
}

/** Connects again whenever the connection is lost, and never sends an INSERT twice. */
function wireWriter({ connect }: TestService, organization: TestOrganization, first: number): Writer {
  let client: pg.Client | undefined;
  return startWriter(first, async (number) => {
    try {
      client ??= await connect(organization);
      await client.query('INSERT INTO written VALUES ($1)', [number]);
      return true;
    } catch (error) {
      if (!(error instanceof pg.DatabaseError) || error.severity === 'FATAL') client = undefined;
      return false;
    }
  });
}

/** Repeats a call until it is answered, as whoever sends an Idempotency-Key may. */
function httpWriter({ call }: TestService, { apiKey: key }: TestOrganization, first: number): Writer {
  let isOver = false;
  const writer = startWriter(first, async (number) => {
    while (!isOver) {
      const headers = { 'idempotency-key': `write-${number}` };
      const reply = await call('POST', '/api/query', { key, headers, body: { sql: 'INSERT INTO written VALUES ($1)', params: [number] } });
      if (reply.status === 200) return true;
      expect(reply).toMatchObject({ status: 503, body: { retryable: true } });
      await delay(20);
    }
    return false;
  });
  return {
    ...writer,
    stop() {
      isOver = true;
      return writer.stop();
    },
  };
}

describe('when the primary of a URL with two hosts', () => {
  it.each([
    ['dies', (own: ServerPair) => own.primary.kill()],
    ['hangs', (own: ServerPair) => own.primary.signal('SIGSTOP')],
  ])('%s, the promoted standby serves, nothing acknowledged is lost, and idle clients stay', async (_how, fail) => {
    pair = await startServerPair();
    // The standby comes first, and is passed over.
    const running = await startTestService({ DATABASE_URL: urlOf(pair.standby.url, pair.primary.url) });
    service = running;
    const organization = await running.signUp();
    expect((await running.query(organization, 'CREATE TABLE written (number int)')).status).toBe(200);
    const idle = await running.connect(organization);
    await idle.query('SELECT 1');
    const writers = [
      wireWriter(running, organization, 0),
      wireWriter(running, organization, 1_000_000),
      httpWriter(running, organization, 2_000_000),
      httpWriter(running, organization, 3_000_000),
    ];
    const allWrote = async (more: number) => {
      const before = writers.map(({ acknowledged }) => acknowledged.length);
      await eventually('all write', () => writers.every(({ acknowledged }, at) => acknowledged.length >= (before[at] ?? 0) + more));
    };
    await allWrote(5);

    await fail(pair);
    await pair.promote();
    const promotedAt = performance.now();
    await allWrote(1);
    if (process.env.TEST_TIMES !== undefined) console.log(`served after ${Math.round(performance.now() - promotedAt)} ms`);
    await allWrote(5);
    await Promise.all(writers.map((writer) => writer.stop()));

    const { body } = await running.query(organization, 'SELECT number, count(*)::int AS times FROM written GROUP BY number');
    const times = new Map<number, number>(body.rows.map((row: { number: number; times: number }) => [row.number, row.times]));
    const lost = writers.flatMap(({ acknowledged }) => acknowledged).filter((number) => !times.has(number));
    const repeated = [...times].filter(([, count]) => count !== 1);
    expect({ lost, repeated }).toEqual({ lost: [], repeated: [] });
    expect((await idle.query('SELECT count(*)::int AS rows FROM written')).rows).toEqual([{ rows: times.size }]);
    await idle.end();
    expect((await running.signUp()).id).toMatch(/^org_/);
    expect(running.observations).toContainEqual(
      expect.objectContaining({ message: expect.stringMatching(/ is served from \S+standby\S+ in place of \S+primary\S+$/) }),
    );
  });
});
