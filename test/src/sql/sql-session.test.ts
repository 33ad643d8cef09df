import { afterAll, beforeAll, expect, onTestFinished, test, vi } from 'vitest';
import type { ServiceError } from '../../../src/errors.ts';
import { decodeTextRow } from '../../../src/protocol/backend.ts';
import { Deadline } from '../../../src/runtime/event-loop.ts';
import { describeStatement } from '../../../src/sql/description.ts';
import { extendedQuery } from '../../../src/sql/pipeline.ts';
import { SqlSession } from '../../../src/sql/session.ts';
import { createTestDatabase, type TestDatabase } from '../../support/leases.ts';

let database: TestDatabase;

beforeAll(async () => {
  database = await createTestDatabase();
  await database.asOwner('CREATE TABLE t (a int)');
});

afterAll(() => database.close());

async function backendPid(session: SqlSession): Promise<string> {
  let pid = '';
  await session.query('SELECT pg_backend_pid()', {
    row: (source, start) => {
      pid = decodeTextRow(source, start)[0] ?? '';
    },
  });
  return pid;
}

test('requests sent together are answered in order, errors included', async () => {
  const session = new SqlSession(await database.lease(), { timeoutMs: 0 });
  const [one, two, three] = await Promise.allSettled([
    session.query('SELECT 1'),
    session.request(extendedQuery('SELECT 1 / 0')),
    session.query('BEGIN'),
  ]);
  expect(one).toMatchObject({ value: { tag: { command: 'SELECT' }, status: 'I' } });
  expect(two).toMatchObject({ reason: { fields: { code: '22012' } } });
  expect(three).toMatchObject({ value: { tag: { command: 'BEGIN' }, status: 'T' } });
  await session.end();
});

test('what is left open is rolled back, and the backend lent again', async () => {
  const session = new SqlSession(await database.lease(), { timeoutMs: 0 });
  await session.query('BEGIN; INSERT INTO t VALUES (1)');
  const pid = await backendPid(session);
  await session.end();
  const next = new SqlSession(await database.lease(), { timeoutMs: 0 });
  expect(await backendPid(next)).toBe(pid);
  expect(await next.query('SELECT * FROM t')).toMatchObject({ tag: { rowCount: 0 }, status: 'I' });
  await next.end();
});

test('a description that nothing follows leaves the session usable', async () => {
  const session = new SqlSession(await database.lease(), { timeoutMs: 0 });
  const pid = await backendPid(session);
  expect(await describeStatement(session, 'SELECT $1::int AS a')).toMatchObject({ parameters: [23], fields: [{ name: 'a' }] });
  await session.end();
  const next = new SqlSession(await database.lease(), { timeoutMs: 0 });
  expect(await backendPid(next)).toBe(pid);
  await next.end();
});

// Nothing but COPY can bring these about, and COPY is refused beforehand: this is the second line.
test.each(['COPY t FROM STDIN', "COPY (SELECT 'x' FROM generate_series(1, 100000)) TO STDOUT"])(
  'a COPY that got through is stopped: %s',
  async (sql) => {
    const session = new SqlSession(await database.lease(), { timeoutMs: 0 });
    await expect(session.request(extendedQuery(sql))).rejects.toMatchObject({ kind: 'unsupported_statement' });
    await session.end();
    expect(database.pool.snapshot()).toMatchObject({ leased: 0, idle: 1 });
  },
);

test('what was sent behind such a COPY is not run', async () => {
  const session = new SqlSession(await database.lease(), { timeoutMs: 0 });
  const requests = ['COPY t FROM STDIN', 'INSERT INTO t VALUES (1)'].map((sql) => session.request(extendedQuery(sql)));
  expect(await Promise.allSettled(requests)).toMatchObject([{ reason: { kind: 'unsupported_statement' } }, { status: 'rejected' }]);
  await session.end();
  expect(database.pool.snapshot()).toMatchObject({ leased: 0 });
});

test('a backend that does not obey a cancel request is dropped', async () => {
  const lease = await database.lease();
  const resume = vi.spyOn(Deadline.prototype, 'resume');
  onTestFinished(() => resume.mockRestore());
  const session = new SqlSession(lease, { timeoutMs: 600_000, obeyTimeoutMs: 200 });
  const [deadline] = resume.mock.contexts as Deadline[];
  const stubborn = `DO $$ BEGIN FOR i IN 1..20 LOOP BEGIN PERFORM pg_sleep(1); EXCEPTION WHEN query_canceled THEN NULL; END; END LOOP; END $$`;
  const refused = expect(session.query(stubborn)).rejects.toMatchObject({ kind: 'statement_timeout' } satisfies Partial<ServiceError>);
  await database.until("SELECT count(*) = 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'");
  deadline?.expire();
  await refused;
  await session.end();
  expect(database.pool.snapshot()).toMatchObject({ leased: 0, idle: 0 });
});

test('nothing more is begun once the time is up', async () => {
  const session = new SqlSession(await database.lease(), { timeoutMs: 50 });
  await expect(session.query('SELECT pg_sleep(10)')).rejects.toMatchObject({ kind: 'statement_timeout' });
  await expect(session.query('INSERT INTO t VALUES (1)')).rejects.toMatchObject({ kind: 'statement_timeout' });
  await expect(describeStatement(session, 'SELECT 1')).rejects.toMatchObject({ kind: 'statement_timeout' });
  await session.end();
});

test('a message that is too large is refused without being kept', async () => {
  const session = new SqlSession(await database.lease(), { timeoutMs: 0 });
  await expect(session.query("SELECT repeat('x', 34000000)")).rejects.toMatchObject({ kind: 'response_too_large' });
  await session.end();
});

test('a lease whose backend is already closed', async () => {
  const lease = await database.lease();
  const closed = new Promise<void>((resolve) => {
    lease.backend.receiver = { data() {}, drain() {}, closed: () => resolve() };
  });
  lease.backend.destroy();
  await closed;
  const session = new SqlSession(lease, { timeoutMs: 0 });
  await expect(session.query('SELECT 1')).rejects.toMatchObject({ kind: 'backend_lost' });
  await session.end();
});
