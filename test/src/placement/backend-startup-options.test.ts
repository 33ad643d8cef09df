import { expect, test } from 'vitest';
import { FIXED_SETTINGS, sessionOptions } from '../../../src/placement/cluster.ts';

const placement = { kind: 'database', cluster: 'default', database: 'org_1', schema: 'public', role: 'org_1' } as const;

test('spaces in a value are escaped, so that each setting is one argument', () => {
  expect(sessionOptions(placement, { statementTimeoutMs: 30_000, idleInTransactionTimeoutMs: 300_000 }, 180_004)).toBe(
    String.raw`-c search_path="$user",\ public -c role=none -c statement_timeout=30000 -c idle_in_transaction_session_timeout=300000 ` +
      '-c idle_session_timeout=0 -c lock_timeout=0 -c transaction_timeout=0 -c default_transaction_read_only=off ' +
      String.raw`-c default_transaction_isolation=read\ committed -c default_transaction_deferrable=off -c local_preload_libraries=`,
  );
});

test('all that are in it are known as settings that no default of a role changes', () => {
  const options = sessionOptions(placement, { statementTimeoutMs: 0, idleInTransactionTimeoutMs: 0 }, 180_004);
  expect([...options.matchAll(/-c (\w+)=/g)].map(([, name]) => name)).toEqual([...FIXED_SETTINGS]);
});

test('a server that has no transaction_timeout is not sent one', () => {
  const limits = { statementTimeoutMs: 0, idleInTransactionTimeoutMs: 0 };
  expect(sessionOptions(placement, limits, 160_004)).not.toContain('transaction_timeout=0 -c default');
  expect(sessionOptions(placement, limits, 170_000)).toContain('transaction_timeout=0 -c default');
});

test("an organization's schema stands in the search path where public does", () => {
  const shared = { ...placement, kind: 'schema', database: 'postern_shared', schema: 'org_1' } as const;
  expect(sessionOptions(shared, { statementTimeoutMs: 0, idleInTransactionTimeoutMs: 0 }, 180_004)).toMatch(
    /^-c search_path="\$user",\\ org_1 -c /,
  );
});
