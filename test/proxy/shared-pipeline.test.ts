import { connect, type Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import type pg from 'pg';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { LatencyBaseline, StatementLatency } from '../../src/backend/session-state.ts';
import { encodeFrontend } from '../conversations/frontend-message.ts';
import { logIn } from '../conversations/login.ts';
import { WireClient } from '../conversations/wire-client.ts';
import { requestCancel } from '../support/cancel-request.ts';
import { eventually } from '../support/eventually.ts';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';

/** What several clients have in one backend's pipeline. One backend is the locker's; all others have to share the other one. */
let service: TestService;
let organization: TestOrganization;
let locker: pg.Client;
let holder: pg.Client;
let readers: pg.Client[];
beforeAll(async () => {
  // How long a read takes on a machine that is busy with other tests is not the matter here.
  vi.spyOn(StatementLatency.prototype, 'isShort', 'get').mockReturnValue(true);
  vi.spyOn(LatencyBaseline.prototype, 'longMs', 'get').mockReturnValue(2_000);
  service = await startTestService({ POSTERN_BACKENDS_PER_TENANT: '2' });
  organization = await service.signUp();
  locker = await service.connect(organization);
  holder = await service.connect(organization);
  await locker.query('CREATE TABLE guarded (n int); INSERT INTO guarded VALUES (7)');
  readers = await Promise.all(Array.from({ length: 4 }, () => service.connect(organization)));
});
afterAll(async () => {
  await Promise.all([locker, holder, ...readers].map((client) => client.end().catch(() => {})));
  await service.close();
  vi.restoreAllMocks();
});

const count = (name: string) => service.observations.filter((observation) => observation.name === name).length;
const ask = async (client: pg.Client | undefined, sql: string) => (await client?.query<{ n: number }>(sql))?.rows[0]?.n;
const READ_GUARDED = 'SELECT n FROM guarded';

/**
 * While the holder has the backend that is not the locker's.
 * @param act is given what resolves as soon as so many wait for it
 */
async function whileHeld(act: (waiting: (count: number) => Promise<void>) => Promise<void>): Promise<void> {
  await holder.query('BEGIN');
  await act((count) =>
    eventually(`${count} wait for the backend`, async () => {
      const metrics = await (await fetch(`${service.opsUrl}/metrics`)).text();
      return metrics.includes(`postern_lease_waiters ${count}\n`);
    }),
  );
  await holder.query('COMMIT');
}

/** All wait for one backend, in this order, and then go together. */
async function together(...sqls: readonly string[]): Promise<Promise<number | undefined>[]> {
  const answers: Promise<number | undefined>[] = [];
  await whileHeld(async (waiting) => {
    for (const [i, sql] of sqls.entries()) {
      const answer = ask(readers[i], sql);
      answer.catch(() => {});
      answers.push(answer);
      await waiting(i + 1);
    }
  });
  return answers;
}

/** The texts have been short for long enough, where it was crowded. */
async function warmUp(): Promise<void> {
  await locker.query('BEGIN');
  for (let i = 0; i < 40; i += 1) {
    const sqls = [READ_GUARDED, `SELECT ${i} AS n`, READ_GUARDED, `SELECT ${i} AS n`];
    expect(await Promise.all(sqls.map((sql, at) => ask(readers[at], sql)))).toEqual([7, i, 7, i]);
  }
  await locker.query('COMMIT');
}

function vanish(at: number): void {
  const [gone] = readers.splice(at, 1);
  gone?.on('error', () => {});
  (gone as pg.Client & { connection: { stream: { destroy(): void } } }).connection.stream.destroy();
}

async function whileLocked(act: () => Promise<void>): Promise<void> {
  await warmUp();
  await locker.query('BEGIN; LOCK TABLE guarded IN ACCESS EXCLUSIVE MODE');
  try {
    await act();
  } finally {
    await locker.query('COMMIT');
  }
}

it('goes on with the next one when each is answered', async () => {
  await warmUp();
  await locker.query('BEGIN');
  const before = count('request.shared');
  expect(await Promise.all(await together('SELECT 11 AS n', 'SELECT 12 AS n', READ_GUARDED, 'SELECT 14 AS n'))).toEqual([11, 12, 7, 14]);
  expect(count('request.shared') - before).toBe(3);
  await locker.query('COMMIT');
});

it('an error is told to the one who made it', async () => {
  await warmUp();
  await locker.query('BEGIN');
  for (let i = 0; i < 20; i += 1) await Promise.allSettled(readers.map((reader) => ask(reader, 'SELECT 1 / 0 AS n')));
  const before = count('request.shared');
  const answers = await together('SELECT 1 AS n', 'SELECT 1 / 0 AS n', 'SELECT 3 AS n', 'SELECT 4 / 0 AS n');
  expect(await Promise.allSettled(answers)).toMatchObject([
    { value: 1 },
    { reason: { code: '22012' } },
    { value: 3 },
    { reason: { code: '22012' } },
  ]);
  expect(count('request.shared') - before).toBe(3);
  await locker.query('COMMIT');
});

it('one that turns out to wait for a lock makes way for those behind it, and is answered when it can be', async () => {
  let guarded: Promise<number | undefined> | undefined;
  await whileLocked(async () => {
    const before = count('request.requeued');
    const [first, ...others] = await together(READ_GUARDED, 'SELECT 2 AS n', 'SELECT 3 AS n');
    guarded = first;
    expect(await Promise.all(others)).toEqual([2, 3]);
    expect(count('request.requeued') - before).toBe(1);
  });
  expect(await guarded).toBe(7);
});

it('one that is canceled hears of it, the others do not', async () => {
  await whileLocked(async () => {
    const [first, ...others] = await together(READ_GUARDED, 'SELECT 2 AS n', 'SELECT 3 AS n');
    const { processID, secretKey } = readers[0] as pg.Client & { readonly processID: number; readonly secretKey: number };
    const secret = Buffer.alloc(4);
    secret.writeInt32BE(secretKey);
    let code: string | undefined;
    first?.catch((error: pg.DatabaseError) => {
      code = error.code;
    });
    // To a server that has not come to read the statement yet, a cancel request means nothing.
    await eventually('it is canceled', async () => {
      await requestCancel(service, processID, secret);
      return code !== undefined;
    });
    expect(code).toBe('57014');
    expect(await Promise.all(others)).toEqual([2, 3]);
  });
});

it('nobody is answered with settings that the one before has changed', async () => {
  const german = `CREATE FUNCTION german() RETURNS int LANGUAGE sql AS $$ SELECT 1 FROM set_config('DateStyle', 'German, DMY', false) $$`;
  await locker.query(`${german}; CREATE VIEW in_german AS SELECT german() AS n`);
  await warmUp();
  await locker.query('BEGIN');
  const dated = `SELECT (DATE '2026-01-31')::text AS n`;
  for (let i = 0; i < 40; i += 1) await Promise.all(readers.map((reader) => ask(reader, dated)));
  const before = count('request.shared');
  const answers = await together('SELECT n FROM in_german', dated, dated);
  expect(await Promise.all(answers)).toEqual([1, '2026-01-31', '2026-01-31']);
  expect(count('request.shared') - before).toBe(2);
  // Which are its own, and stay.
  expect(await Promise.all(readers.map((reader) => ask(reader, dated)))).toEqual(['31.01.2026', '2026-01-31', '2026-01-31', '2026-01-31']);
  await locker.query('COMMIT');
  expect(await ask(readers[0], dated)).toBe('31.01.2026');
  await readers[0]?.query('RESET DateStyle');
});

it('one that vanishes takes nobody with it', async () => {
  await whileLocked(async () => {
    const [, ...others] = await together(READ_GUARDED, 'SELECT 2 AS n', 'SELECT 3 AS n');
    vanish(0);
    expect(await Promise.all(others)).toEqual([2, 3]);
  });
  readers.unshift(await service.connect(organization));
});

it('what a client says before it is answered waits for its turn', async () => {
  await warmUp();
  await locker.query('BEGIN');
  const [first, second] = await together('SELECT 1 AS n', 'SELECT 2 AS n');
  const more = readers.slice(0, 2).map((reader, i) => ask(reader, `SELECT ${i + 5} AS n`));
  expect(await Promise.all([first, second, ...more])).toEqual([1, 2, 5, 6]);
  await locker.query('COMMIT');
});

it('one whose text seems to do more than it does goes on as before', async () => {
  await warmUp();
  await locker.query('BEGIN');
  const seeming = (what: string) => `SELECT 1 AS n, '${what}' AS what`;
  for (let i = 0; i < 40; i += 1) await Promise.all(readers.map((reader) => ask(reader, seeming('nothing'))));
  expect(await Promise.all(await together(seeming('nothing'), seeming('setseed')))).toEqual([1, 1]);
  expect(await ask(readers[1], 'SELECT 3 AS n')).toBe(3);
  vanish(1);
  await locker.query('COMMIT');
  readers.push(await service.connect(organization));
});

describe('behind one who takes long to read a large answer', () => {
  const LARGE_BYTES = 40_000_000;
  beforeAll(async () => {
    await locker.query(`
      CREATE TABLE large (n int, v text);
      INSERT INTO large SELECT 1, 'x' UNION ALL SELECT 2, repeat('x', 1000000) FROM generate_series(1, ${LARGE_BYTES / 1_000_000})`);
  });

  /** @returns the slow one, and the answers of two behind it */
  async function behindSlowOne(): Promise<[Socket, Promise<number | undefined>[]]> {
    const slow = connect({ port: service.wirePort, host: '127.0.0.1' });
    const { id, apiKey } = organization;
    const settings = new Map([['client_encoding', 'UTF8']]);
    await logIn(WireClient.over(slow), { user: id, database: id, password: apiKey }, '3.0', settings);
    slow.removeAllListeners('data').pause();
    await warmUp();
    await locker.query('BEGIN');
    for (let i = 0; i < 40; i += 1) await Promise.all(readers.map((reader) => ask(reader, 'SELECT n, v FROM large WHERE n = 1')));
    const before = count('request.shared');
    let answers: Promise<number | undefined>[] = [];
    await whileHeld(async (waiting) => {
      slow.write(encodeFrontend('Query SELECT n, v FROM large WHERE n = 2'));
      await waiting(1);
      answers = readers.slice(0, 2).map((reader) => ask(reader, 'SELECT 5 AS n'));
      for (const answer of answers) answer.catch(() => {});
      await waiting(3);
    });
    await eventually('two are behind it', () => count('request.shared') - before === 2);
    return [slow, answers];
  }

  it('the others are answered when it vanishes', async () => {
    const [slow, answers] = await behindSlowOne();
    slow.destroy();
    expect(await Promise.all(answers)).toEqual([5, 5]);
    await locker.query('COMMIT');
  });

  it('one that vanishes takes nobody with it, however long it is until its turn', async () => {
    const [slow, [, answer]] = await behindSlowOne();
    vanish(0);
    await delay(5_500);
    let read = 0;
    slow.on('data', (chunk: Buffer) => {
      read += chunk.length;
    });
    slow.resume();
    expect(await answer).toBe(5);
    await eventually('all has been read', () => read > LARGE_BYTES);
    slow.destroy();
    await locker.query('COMMIT');
    readers.unshift(await service.connect(organization));
  });
});

it('is none with a depth of 1', async () => {
  const alone = await startTestService({ POSTERN_BACKENDS_PER_TENANT: '1', POSTERN_PIPELINE_DEPTH: '1' });
  const tenant = await alone.signUp();
  const clients = await Promise.all(Array.from({ length: 5 }, () => alone.connect(tenant)));
  for (let i = 0; i < 40; i += 1) await Promise.all(clients.map((client) => client.query('SELECT 1 AS n')));
  expect(alone.observations.some(({ name }) => name === 'request.shared')).toBe(false);
  await Promise.all(clients.map((client) => client.end()));
  await alone.close();
});

it('takes what is quick before all backends are busy, and leaves the others to what is not', async () => {
  const quick = vi.spyOn(StatementLatency.prototype, 'isQuick', 'get').mockReturnValue(true);
  const mayFollow = vi.spyOn(StatementLatency.prototype, 'mayFollow').mockReturnValue(true);
  const roomy = await startTestService({ POSTERN_BACKENDS_PER_TENANT: '8', POSTERN_PIPELINE_SPREAD: '1' });
  const tenant = await roomy.signUp();
  const clients = await Promise.all(Array.from({ length: 6 }, () => roomy.connect(tenant)));
  const shared = () => roomy.observations.filter(({ name }) => name === 'request.shared').length;
  for (let i = 0; i < 40; i += 1) await Promise.all(clients.map((client) => client.query('SELECT 1 AS n')));
  expect(shared()).toBeGreaterThan(40);
  const before = shared();
  // Each has one of its own, or the last would wait in vain.
  for (const sql of ['BEGIN', 'COMMIT']) await Promise.all(clients.map((client) => client.query(sql)));
  quick.mockReturnValue(false);
  for (let i = 0; i < 10; i += 1) await Promise.all(clients.map((client) => client.query('SELECT 1 AS n')));
  expect(shared()).toBe(before);
  await Promise.all(clients.map((client) => client.end()));
  await roomy.close();
  quick.mockRestore();
  mayFollow.mockRestore();
});

it('leaves nothing behind when all have gone', async () => {
  await eventually('no backend is lent', () => {
    const granted = count('lease.granted');
    return granted === count('lease.released');
  });
});
