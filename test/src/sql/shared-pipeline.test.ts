import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest';
import { LatencyBaseline, StatementLatency } from '../../../src/backend/session-state.ts';
import { Multiplexers, SharedPipeline } from '../../../src/multiplex/multiplexer.ts';
import { runQuery } from '../../../src/sql/query.ts';
import { QueryScheduler } from '../../../src/sql/query-scheduler.ts';
import { eventually } from '../../support/eventually.ts';
import { createTestDatabase, type TestDatabase } from '../../support/leases.ts';

const BACKENDS = 20;
const GUARDED = 'SELECT n FROM guarded';

let database: TestDatabase;
beforeAll(async () => {
  // A tenth of them is for organizations that have none.
  database = await createTestDatabase(BACKENDS + 2);
  await database.asOwner('CREATE TABLE guarded (n int)');
});
afterAll(() => database.close());
afterEach(() => vi.restoreAllMocks());

test('however many backends an organization has at work, few are looked at', async () => {
  vi.spyOn(StatementLatency.prototype, 'isQuick', 'get').mockReturnValue(true);
  vi.spyOn(StatementLatency.prototype, 'mayFollow').mockReturnValue(true);
  vi.spyOn(LatencyBaseline.prototype, 'stallTimeoutMs', 'get').mockReturnValue(60_000);
  const isOpen = vi.spyOn(SharedPipeline.prototype, 'isOpen').mockReturnValue(false);
  const leases = await Promise.all(Array.from({ length: BACKENDS }, () => database.lease()));
  const [tenant] = leases.map((lease) => lease.tenant);
  if (tenant === undefined) throw new Error('no lease');
  const request = () => ({ sql: GUARDED, rowMode: 'array' as const, timeoutMs: 60_000 });
  for (const lease of leases) await (await runQuery(lease, request())).done;
  const queries = new QueryScheduler(
    { lease: () => database.lease(), mayKeepBusy: () => true },
    new Multiplexers({ depth: 8, spread: 1 }),
    () => {},
  );
  await database.admin.query('BEGIN; LOCK TABLE guarded IN ACCESS EXCLUSIVE MODE');
  const answers = [];
  for (let n = 1; n <= BACKENDS; n += 1) {
    isOpen.mockClear();
    answers.push(queries.run(tenant, request()));
    await eventually('it has a backend', () => database.pool.snapshot().leased === n);
    expect(isOpen.mock.calls.length).toBe(Math.min(n - 1, 16));
  }
  await database.admin.query('COMMIT');
  await Promise.all(answers);
});
