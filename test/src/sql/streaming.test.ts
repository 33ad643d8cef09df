import { Readable } from 'node:stream';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { type QueryReply, runQuery } from '../../../src/sql/query.ts';
import { eventually } from '../../support/eventually.ts';
import { createTestDatabase, type TestDatabase } from '../../support/leases.ts';

const MIB = 1_048_576;

let database: TestDatabase;

beforeAll(async () => {
  database = await createTestDatabase();
});

afterAll(() => database.close());

async function start(sql: string): Promise<{ body: Readable; done: QueryReply['done'] }> {
  const { body, done } = await runQuery(await database.lease(), { sql, rowMode: 'array', timeoutMs: 60_000 });
  if (!(body instanceof Readable)) throw new Error('not a stream');
  return { body, done };
}

async function readAll(body: Readable): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of body) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
}

/** A function in the select list is not run to its end beforehand. */
const ENDLESS = "SELECT repeat('x', 1000), generate_series(1, 100000000)";

/** The backend has filled every buffer between us and waits for us to read. */
const WAITS_FOR_CLIENT = "SELECT count(*) = 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'ClientWrite'";
const NOTHING_RUNS =
  "SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = current_database() AND state = 'active' AND pid <> pg_backend_pid()";

test('a small reply is one buffer, a large one a stream of the same document', async () => {
  const small = await runQuery(await database.lease(), { sql: 'SELECT n FROM generate_series(1, 1000) n', rowMode: 'array', timeoutMs: 0 });
  expect(Buffer.isBuffer(small.body)).toBe(true);
  const { body, done } = await start("SELECT n, repeat('é\"', 50) FROM generate_series(1, 20000) n");
  const document = JSON.parse(await readAll(body));
  expect(document.rows).toHaveLength(20_000);
  expect(document.rows[19_999]).toEqual([20_000, 'é"'.repeat(50)]);
  expect(document).toMatchObject({ rowCount: 20_000, command: 'SELECT', fields: [{ name: 'n' }, { name: 'repeat' }] });
  expect(await done).toMatchObject({ command: 'SELECT', rowCount: 20_000 });
});

test('200 MB flow through in little memory', async () => {
  const before = process.memoryUsage.rss();
  const { body, done } = await start("SELECT n, repeat('x', 1000) FROM generate_series(1, 200000) n");
  let bytes = 0;
  let chunks = 0;
  let peak = before;
  let last = '';
  for await (const chunk of body) {
    bytes += chunk.length;
    if (chunks++ % 64 === 0) peak = Math.max(peak, process.memoryUsage.rss());
    last = chunk.toString('latin1');
  }
  const { durationMs } = await done;
  // 200,000 rows of [n,"…"] and commas between them, n having 1,088,895 digits in all.
  const rows = 200_000 * (1_000 + '[,""]'.length) + 1_088_895 + 199_999;
  const frame =
    '{"fields":[{"name":"n","dataTypeID":23,"dataType":"int4"},{"name":"repeat","dataTypeID":25,"dataType":"text"}],"rowAsArray":true,"rows":[';
  const end = `],"rowCount":200000,"command":"SELECT","durationMs":${durationMs}}`;
  expect(bytes).toBe(frame.length + rows + end.length);
  expect(last.endsWith(`[200000,"${'x'.repeat(1_000)}"]${end}`)).toBe(true);
  // Beside what the engine takes for garbage before it looks.
  expect(peak - before).toBeLessThan(100 * MIB);
});

describe('large rows', () => {
  const MUCH = 'SELECT repeat(chr(1), 30000000)';
  const ALL_OF_ITS_ROOM = 128 * MIB;
  const fullness = () => database.results.exhaustedBy(database.name, ALL_OF_ITS_ROOM);

  test('that are not read are held up to a limit, and only while their readers are connected', async () => {
    const outcomes = await Promise.allSettled(Array.from({ length: 8 }, () => start(MUCH)));
    const streams = outcomes.flatMap((outcome) => (outcome.status === 'fulfilled' ? [outcome.value.body] : []));
    const refused = outcomes.flatMap((outcome) => (outcome.status === 'rejected' ? [outcome.reason] : []));
    expect(streams.length).toBeGreaterThan(0);
    // Each holds the row as it came, and its backend; of what it becomes there is never more than a part.
    expect(streams.length).toBeLessThanOrEqual(4);
    for (const reason of refused) expect(['too_many_requests', 'pool_timeout']).toContain(reason.kind);
    expect(fullness()).toBe('its own');
    for (const stream of streams) stream.destroy();
    await eventually('their room is given back', () => fullness() === undefined);
    await database.until(NOTHING_RUNS);
  });

  test('are whole where they are read, and leave nothing behind', async () => {
    const { body, done } = await start('SELECT repeat(chr(1), 5000000) FROM generate_series(1, 2)');
    const { rows } = JSON.parse(await readAll(body));
    const row = ['\u0001'.repeat(5_000_000)];
    expect(rows.length === 2 && rows.every(([text]: [string]) => text === row[0])).toBe(true);
    expect(await done).toMatchObject({ rowCount: 2 });
    expect(fullness()).toBeUndefined();
  });

  test('wait for those ahead of them where all have readers', async ({ onTestFinished }) => {
    // Nobody has waited for too long as long as our clock stands still, be the machine as busy as it may.
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    onTestFinished(() => void vi.useRealTimers());
    const lengths = Array.from({ length: 8 }, async () => (await readAll((await start("SELECT repeat('x', 30000000)")).body)).length);
    for (const length of await Promise.all(lengths)) expect(length).toBeGreaterThan(30_000_000);
    expect(fullness()).toBeUndefined();
  });

  test('that are too large leave the session in order, and say whether the statement was carried out', async () => {
    await database.asOwner('CREATE TABLE made (x text)');
    const insert = "INSERT INTO made SELECT repeat('x', n) FROM (VALUES (34000000), (1000)) AS lengths (n) RETURNING x";
    const error = await start(insert).then(
      () => undefined,
      (reason: unknown) => reason,
    );
    const { rowCount } = await database.admin.query('SELECT FROM made');
    expect(error).toMatchObject({
      kind: 'response_too_large',
      detail: rowCount === 2 ? 'The statement was carried out all the same.' : undefined,
    });
    expect(database.pool.snapshot()).toMatchObject({ leased: 0 });
    expect(fullness()).toBeUndefined();
  });
});

test('a reader that goes away has the statement cancelled', async () => {
  const { body, done } = await start(ENDLESS);
  await database.until(WAITS_FOR_CLIENT);
  body.destroy();
  await expect(done).rejects.toMatchObject({ kind: 'query_canceled' });
  await database.until(NOTHING_RUNS);
  expect(database.pool.snapshot()).toMatchObject({ leased: 0 });
});

test('a failure after the first byte breaks the stream off', async () => {
  const { body, done } = await start("SELECT 1 / (200000 - n), repeat('x', 10) FROM generate_series(1, 300000) n");
  await expect(readAll(body)).rejects.toMatchObject({ fields: { code: '22012' } });
  await expect(done).rejects.toMatchObject({ fields: { code: '22012' } });
});

test('so does a backend that is lost', async () => {
  const { body, done } = await start(ENDLESS);
  await database.until(WAITS_FOR_CLIENT);
  await database.admin.query(
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'ClientWrite'",
  );
  await expect(readAll(body)).rejects.toThrow();
  await expect(done).rejects.toThrow();
  expect(database.pool.snapshot()).toMatchObject({ leased: 0 });
});

test('a rejection without a listener does no harm', async () => {
  const { body } = await start(ENDLESS);
  body.destroy();
  await database.until(NOTHING_RUNS);
});
