import type pg from 'pg';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { requestCancel } from '../support/cancel-request.ts';
import { eventually } from '../support/eventually.ts';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';

/** What several clients have in one backend's pipeline. One backend is the locker's; all others have to share the other one. */
let service: TestService;
let organization: TestOrganization;
let locker: pg.Client;
let sleeper: pg.Client;
let readers: pg.Client[];
beforeAll(async () => {
  service = await startTestService({ POSTERN_BACKENDS_PER_TENANT: '2' });
  organization = await service.signUp();
  locker = await service.connect(organization);
  sleeper = await service.connect(organization);
  await locker.query('CREATE TABLE guarded (n int); INSERT INTO guarded VALUES (7)');
  readers = await Promise.all(Array.from({ length: 4 }, () => service.connect(organization)));
});
afterAll(async () => {
  await Promise.all([locker, sleeper, ...readers].map((client) => client.end().catch(() => {})));
  await service.close();
});

const count = (name: string) => service.observations.filter((observation) => observation.name === name).length;
const ask = async (client: pg.Client | undefined, sql: string) => (await client?.query<{ n: number }>(sql))?.rows[0]?.n;
const READ_GUARDED = 'SELECT n FROM guarded';

/** All wait for the backend that the sleeper has, in this order, and then go together. */
async function together(...sqls: readonly string[]): Promise<Promise<number | undefined>[]> {
  const slept = sleeper.query('SELECT pg_sleep(0.15)');
  await new Promise((resolve) => setTimeout(resolve, 30));
  const answers: Promise<number | undefined>[] = [];
  for (const [i, sql] of sqls.entries()) {
    const answer = ask(readers[i], sql);
    answer.catch(() => {});
    answers.push(answer);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  await slept;
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
  const before = count('wire.shared');
  expect(await Promise.all(await together('SELECT 11 AS n', 'SELECT 12 AS n', READ_GUARDED, 'SELECT 14 AS n'))).toEqual([11, 12, 7, 14]);
  expect(count('wire.shared') - before).toBe(3);
  await locker.query('COMMIT');
});

it('an error is told to the one who made it', async () => {
  await warmUp();
  await locker.query('BEGIN');
  for (let i = 0; i < 20; i += 1) await Promise.allSettled(readers.map((reader) => ask(reader, 'SELECT 1 / 0 AS n')));
  const before = count('wire.shared');
  const answers = await together('SELECT 1 AS n', 'SELECT 1 / 0 AS n', 'SELECT 3 AS n', 'SELECT 4 / 0 AS n');
  expect(await Promise.allSettled(answers)).toMatchObject([
    { value: 1 },
    { reason: { code: '22012' } },
    { value: 3 },
    { reason: { code: '22012' } },
  ]);
  expect(count('wire.shared') - before).toBe(3);
  await locker.query('COMMIT');
});

it('one that turns out to wait for a lock makes way for those behind it, and is answered when it can be', async () => {
  let guarded: Promise<number | undefined> | undefined;
  await whileLocked(async () => {
    const before = count('wire.set_aside');
    const [first, ...others] = await together(READ_GUARDED, 'SELECT 2 AS n', 'SELECT 3 AS n');
    guarded = first;
    expect(await Promise.all(others)).toEqual([2, 3]);
    expect(count('wire.set_aside') - before).toBe(1);
  });
  expect(await guarded).toBe(7);
});

it('one that is canceled hears of it, the others do not', async () => {
  await whileLocked(async () => {
    const [first, ...others] = await together(READ_GUARDED, 'SELECT 2 AS n', 'SELECT 3 AS n');
    const { processID, secretKey } = readers[0] as pg.Client & { readonly processID: number; readonly secretKey: number };
    const secret = Buffer.alloc(4);
    secret.writeInt32BE(secretKey);
    await requestCancel(service, processID, secret);
    await expect(first).rejects.toMatchObject({ code: '57014' });
    expect(await Promise.all(others)).toEqual([2, 3]);
  });
});

it('one that vanishes takes nobody with it', async () => {
  await whileLocked(async () => {
    const [, ...others] = await together(READ_GUARDED, 'SELECT 2 AS n', 'SELECT 3 AS n');
    const [gone] = readers.splice(0, 1);
    gone?.on('error', () => {});
    (gone as pg.Client & { connection: { stream: { destroy(): void } } }).connection.stream.destroy();
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

it('is none with a depth of 1', async () => {
  const alone = await startTestService({ POSTERN_BACKENDS_PER_TENANT: '1', POSTERN_PIPELINE_DEPTH: '1' });
  const tenant = await alone.signUp();
  const clients = await Promise.all(Array.from({ length: 5 }, () => alone.connect(tenant)));
  for (let i = 0; i < 40; i += 1) await Promise.all(clients.map((client) => client.query('SELECT 1 AS n')));
  expect(alone.observations.some(({ name }) => name === 'wire.shared')).toBe(false);
  await Promise.all(clients.map((client) => client.end()));
  await alone.close();
});

it('leaves nothing behind when all have gone', async () => {
  await eventually('no backend is lent', () => {
    const granted = count('lease.granted');
    return granted === count('lease.released');
  });
});
