import { expect, it } from 'vitest';
import { recordStatement } from '../../../src/catalog/audit/records.ts';
import type { Observation } from '../../../src/observation.ts';
import { SlowStatements } from '../../../src/observers/slow-statements.ts';

const SQL = 'SELECT pg_sleep(1)';

function tellers(afterMs: number) {
  const observed: Observation[] = [];
  const slow = new SlowStatements({ POSTERN_SLOW_STATEMENT_MS: afterMs }, (observation) => observed.push(observation));
  return { slow, observed };
}

const request = (durationMs: number, sql = SQL): Extract<Observation, { name: 'http.request' }> => ({
  name: 'http.request',
  action: 'query',
  origin: { surface: 'http', sourceIp: '203.0.113.7' },
  actor: { organizationId: 'org_a' },
  statement: { sql },
  outcome: { status: 'ok', durationMs },
});

it('tells of requests that take long, by the hash that the audit log has', () => {
  const { slow, observed } = tellers(100);
  slow.handlers['http.request']?.(request(99));
  slow.handlers['http.request']?.(request(100.4));
  const { sqlHash } = recordStatement({ sql: SQL });
  const message = 'a statement of org_a took 100 ms';
  expect(observed).toEqual([{ name: 'statement.slow', organizationId: 'org_a', door: 'http', durationMs: 100, sqlHash, message }]);
});

it('hashes no long text, and tells of nothing unless it is asked to', () => {
  const [{ slow, observed }, none] = [tellers(100), tellers(0)];
  slow.handlers['http.request']?.(request(500, `SELECT '${'x'.repeat(10_000)}'`));
  expect(observed).toHaveLength(1);
  expect(observed[0]).not.toHaveProperty('sqlHash');
  none.slow.handlers['http.request']?.(request(1e9));
  expect(none.observed).toEqual([]);
});
