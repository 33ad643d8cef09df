import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import { expect } from 'vitest';
import type { Doors, TestOrganization } from './doors.ts';
import { eventually } from './eventually.ts';

/** Inserts numbers, each once as far as it is known, until it is told to stop. */
interface Writer {
  /** The numbers whose INSERT was acknowledged. */
  readonly acknowledged: number[];
  stop(): Promise<void>;
}

/** Two writers at each door that go on while a server fails. */
export interface NumberingWriters {
  /** Until each has had so many more numbers acknowledged. */
  allWrote(more: number, timeoutMs?: number): Promise<void>;
  stop(): Promise<void>;
  /** @returns which acknowledged numbers are not there, which are there several times, and how many there are */
  compare(): Promise<{ readonly lost: number[]; readonly repeated: number[]; readonly rows: number }>;
}

/** @param doors of a service that reaches its server by several hosts */
export async function startNumberingWriters(doors: Doors, organization: TestOrganization): Promise<NumberingWriters> {
  expect((await doors.query(organization, 'CREATE TABLE IF NOT EXISTS written (number int)')).status).toBe(200);
  const writers = [
    wireWriter(doors, organization, 0),
    wireWriter(doors, organization, 1_000_000),
    httpWriter(doors, organization, 2_000_000),
    httpWriter(doors, organization, 3_000_000),
  ];
  return {
    async allWrote(more, timeoutMs) {
      const before = writers.map(({ acknowledged }) => acknowledged.length);
      const isSo = () => writers.every(({ acknowledged }, at) => acknowledged.length >= (before[at] ?? 0) + more);
      await eventually('all write', isSo, timeoutMs);
    },
    async stop() {
      await Promise.all(writers.map((writer) => writer.stop()));
    },
    async compare() {
      // They may go on.
      const before = writers.flatMap(({ acknowledged }) => acknowledged);
      const { body } = await doors.query(organization, 'SELECT number, count(*)::int AS times FROM written GROUP BY number');
      const times = new Map<number, number>(body.rows.map((row: { number: number; times: number }) => [row.number, row.times]));
      return {
        lost: before.filter((number) => !times.has(number)),
        repeated: [...times].flatMap(([number, count]) => (count === 1 ? [] : [number])),
        rows: times.size,
      };
    },
  };
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
function wireWriter({ connect }: Doors, organization: TestOrganization, first: number): Writer {
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
function httpWriter({ call }: Doors, { apiKey: key }: TestOrganization, first: number): Writer {
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
