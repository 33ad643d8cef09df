import { describe, expect, it } from 'vitest';
import { ClientStatements, ParseCache, STATEMENT_BOUNDS, StatementMemory } from '../../proxy/client-statements.ts';
import { hasNoTraits, shareableRequest } from '../../proxy/sharing.ts';
import { NO_SETTINGS, newServerStatement } from '../../src/backend/session-state.ts';
import { StatementRegistry } from '../../src/multiplex/statement-registry.ts';
import { MemoryBudget, MemoryReservation } from '../../src/runtime/memory-budget.ts';
import { NO_OPTIONS, NO_TRAITS } from '../../src/syntax/session-traits.ts';
import { encodeFrontend } from '../conversations/frontend-message.ts';

const READS = [
  'SELECT abalance FROM pgbench_accounts WHERE aid = 4711;',
  'select "u"."id", count(*) from "users" "u" where "u"."id" in ($1, $2) group by 1 order by 2 desc limit 10',
  'SELECT a::numeric(10, 2), coalesce(b, $1), lower(c) FROM t WHERE d = ANY ($2) AND EXISTS (SELECT 1 FROM u)',
  "SELECT * FROM t WHERE name = 'it''s; DELETE' AND n > 5",
];

const NOT_READS = [
  'UPDATE t SET n = n + 1',
  'BEGIN',
  'SELECT 1; SELECT 2',
  'SELECT pg_sleep(1)',
  'SELECT my_function(1)',
  'SELECT "my function" (1)',
  'SELECT public.f (1)',
  "SELECT set_config('a.b', 'c', false)",
  'SELECT * FROM t FOR UPDATE',
  'SELECT * FROM t FOR NO KEY UPDATE',
  'SELECT * INTO u FROM t',
  'SELECT 1 -- ; f()',
  'SELECT 1 /* ( */',
  "SELECT E'\\'', f('x')",
  'SELECT $$ text $$',
  `SELECT "it's", f('x')`,
  "SELECT 1 -- it's\n, f('x')",
  "SELECT $$ ' $$, f('x')",
  'WITH d AS (DELETE FROM t RETURNING *) SELECT * FROM d',
  'SELECT nextval($1)',
];

const latencyOf = (registry: StatementRegistry, sql: string) => registry.latencyOfQuery(sql, hasNoTraits);

describe('a text', () => {
  it.each(READS)('may share: %s', (sql) => expect(latencyOf(new StatementRegistry(), sql)).toBeDefined());
  it.each(NOT_READS)('may not: %s', (sql) => expect(latencyOf(new StatementRegistry(), sql)).toBeUndefined());

  it('is the same as one that differs in its literals', () => {
    const registry = new StatementRegistry();
    expect(latencyOf(registry, "SELECT 1 FROM t WHERE a = 5 AND b = 'x'")).toBe(
      latencyOf(registry, "SELECT 2 FROM t WHERE a = 77 AND b = 'y z'"),
    );
    expect(latencyOf(registry, 'SELECT 1 FROM t')).not.toBe(latencyOf(registry, 'SELECT 1 FROM u'));
  });

  it.each([
    ["SELECT E'a''b'", "SELECT E'\\'', nextval(s) --'"],
    ['SELECT 1 AS "0"', `SELECT 1 AS "'"; BEGIN; SELECT 1 AS "'"`],
  ])('is not the same where only what looks like a literal differs: %s', (harmless, other) => {
    const registry = new StatementRegistry();
    expect(latencyOf(registry, harmless)).toBeDefined();
    expect(latencyOf(registry, other)).toBeUndefined();
  });
});

describe('a request', () => {
  const server = newServerStatement(Buffer.from('SELECT n FROM t WHERE id = $1\0\0\0'));
  const statements = new ClientStatements(new StatementMemory(new MemoryReservation(new MemoryBudget(STATEMENT_BOUNDS), 'org')), {
    isOver: false,
  });
  statements.set('s', { server, traits: NO_TRAITS, signals: [], deallocates: [] });
  const registry = new StatementRegistry();
  const parseCache = new ParseCache();
  const context = { statements, parseCache, registry, settings: NO_SETTINGS, customOptions: NO_OPTIONS, context: '' };
  for (let i = 0; i < 100; i += 1) {
    registry.latencyOf(server)?.ran(1, 10, registry.baseline);
    latencyOf(registry, 'SELECT 1')?.ran(1, 10, registry.baseline);
  }
  const shareable = (...messages: readonly string[]) => shareableRequest(Buffer.concat(messages.map(encodeFrontend)), context);

  it.each([
    [['Query SELECT 2']],
    [['Bind "" s [1]', 'Execute "" 0', 'Sync']],
    [['Bind "" s [1]', 'Describe P ""', 'Execute "" 0', 'Sync']],
  ])('is shareable: %j', (messages) => expect(shareable(...messages)).toBeDefined());

  it.each([
    [['Query SELECT 2', 'Query SELECT 3']],
    [["Query SELECT 'currval'"]],
    [['Bind p s [1]', 'Execute p 0', 'Sync']],
    [['Bind "" s [1]', 'Execute "" 5', 'Sync']],
    [['Bind "" s [1]', 'Execute "" 0']],
    [['Bind "" s [1]', 'Execute "" 0', 'Sync', 'Sync']],
    [['Bind "" s [1]', 'Execute "" 0', 'Execute "" 0', 'Sync']],
    [['Bind "" other [1]', 'Execute "" 0', 'Sync']],
    [['Bind "" "" [1]', 'Execute "" 0', 'Sync']],
    [['Parse "" SELECT 1', 'Bind "" "" []', 'Execute "" 0', 'Sync']],
    [['Bind "" s [1]', 'Describe S s', 'Execute "" 0', 'Sync']],
    [['Bind "" s [1]', 'Raw 44 00000000', 'Execute "" 0', 'Sync']],
    [['Sync']],
    [['Terminate']],
  ])('is not shareable: %j', (messages) => expect(shareable(...messages)).toBeUndefined());

  it('is not shareable as long as it is not known to be short', () => expect(shareable('Query SELECT 2 AS other')).toBeUndefined());

  it('is not shareable where it is cut off, wherever', () => {
    const whole = Buffer.concat(['Bind "" s [1]', 'Describe P ""', 'Execute "" 0', 'Sync'].map(encodeFrontend));
    for (let end = 0; end < whole.length; end += 1) expect(shareableRequest(whole.subarray(0, end), context)).toBeUndefined();
  });
});
