import { expect, it } from 'vitest';
import { OTHERS_ID, RoleStatements, STATEMENTS_MAX, type StatementCounts, TEXTS_MAX } from '../../../src/catalog/statement-counters.ts';

const COUNTERS_BYTES = 64 * 1_048_576;

function statementsOf(memory = { bytes: 0, maxBytes: COUNTERS_BYTES }) {
  let started = 0;
  const role = { organizationId: 'org_1', role: 'own' as const };
  const statements = new RoleStatements(
    role,
    (sql) => sql.replaceAll('org_1.', 'public.'),
    memory,
    () => {
      started += 1;
    },
  );
  return { statements, memory, started: () => started };
}

const ran = (statements: RoleStatements, sql: string, durationMs = 1, hasFailed = false) => {
  for (const counter of statements.find(sql)) counter?.ran(performance.now(), durationMs, 2, 10, hasFailed);
};
const summary = (taken: readonly StatementCounts[]) =>
  taken.map(({ sql, calls, errors, rows, bytes }) => [sql, calls, errors, rows, bytes]);

it('counts texts that differ in constants together, each statement of a text by itself, and none about transactions and settings', () => {
  const { statements, started } = statementsOf();
  for (const id of [1, 22, 333]) ran(statements, `select * from org_1.t where id = ${id} and name = 'n${id}'`);
  ran(statements, 'select 1; select 2, 3', 5, true);
  for (const sql of ['BEGIN', ' /* x */ commit', 'set role x', "notify a, 'secret'", 'listen b', 'discard all']) ran(statements, sql);
  expect(started()).toBe(1);
  expect(summary(statements.takeAll())).toEqual([
    ['select * from public.t where id = $1 and name = $2', 3, 0, 6, 30],
    ['select $1', 1, 1, 2, 10],
    ['select $1, $2', 1, 1, 2, 10],
  ]);
  expect(statements.takeAll()).toEqual([]);
  expect(statements.isIdle).toBe(true);
  ran(statements, 'select 7');
  expect(started()).toBe(2);
  expect(summary(statements.takeAll())).toEqual([['select $1', 1, 0, 2, 10]]);
});

it.each([
  ["select 'a' as x", "select 'b' as y"],
  ['select a1 from t', 'select a2 from t'],
  ['select "1" from t', 'select "2" from t'],
  [`select "it's" , 'x'`, `select "it's" , y`],
  ["/*'*/ select x /*'*/", "/*'*/ select y /*'*/"],
  ["select 1 -- '\n, x -- '", "select 1 -- '\n, y -- '"],
  ["select $$ ' $$, x, $$ ' $$", "select $$ ' $$, y, $$ ' $$"],
  ['select $1 = $2', 'select $1 = $1'],
])('tells %s and %s apart', (one, other) => {
  const { statements } = statementsOf();
  const texts = [one, other, other, one].map((sql) => statements.find(sql)[0]?.sql);
  expect(texts[0]).not.toBe(texts[1]);
  expect(texts).toEqual([texts[0], texts[1], texts[1], texts[0]]);
});

it('reads a text as Latin-1 where it is UTF-8', () => {
  const { statements } = statementsOf();
  ran(statements, 'select "Größe" from t');
  for (const counter of statements.findLatin1(Buffer.from('select "Größe" from t').toString('latin1'))) counter?.ran(1, 1, 2, 10, false);
  expect(summary(statements.takeAll())).toEqual([['select "Größe" from t', 2, 0, 4, 20]]);
});

it('keeps the texts that take the most time, and counts the others together', () => {
  const { statements, memory } = statementsOf();
  ran(statements, 'select heavy from t', 10_000);
  for (let i = 0; i < 10_000; i += 1) {
    ran(statements, `select c${i} from t`, 0.5);
    if (i % 100 === 0) ran(statements, 'select often from t', 1);
  }
  expect(statements.size).toBeLessThanOrEqual(TEXTS_MAX + 100);
  expect(memory.bytes).toBeLessThan(1_048_576);
  const taken = statements.takeAll();
  expect(taken.reduce((sum, { calls }) => sum + calls, 0)).toBe(10_101);
  expect(taken.reduce((sum, { latency }) => sum + latency.reduce((a, b) => a + b, 0), 0)).toBe(10_101);
  expect(taken.find(({ sql }) => sql === 'select heavy from t')).toMatchObject({ calls: 1, totalMs: 10_000 });
  expect(taken.find(({ sql }) => sql === 'select often from t')).toMatchObject({ calls: 100 });
  expect(taken.find(({ queryId }) => queryId === OTHERS_ID)?.calls).toBeGreaterThan(9_000);
  statements.takeAll();
  expect([statements.size, memory.bytes, statements.isIdle]).toEqual([0, 0, true]);
});

it('takes no more memory for all organizations than the limit, and cuts long texts', () => {
  const memory = { bytes: 0, maxBytes: 100_000 };
  const all = [1, 2, 3].map(() => statementsOf(memory).statements);
  const long = `select ${'x'.repeat(20_000)}`;
  for (const statements of all) for (let i = 0; i < 50; i += 1) ran(statements, `${long}${i}`);
  expect(memory.bytes).toBeLessThanOrEqual(100_000);
  const taken = all.map((statements) => statements.takeAll());
  expect(taken.map((counts) => counts.reduce((sum, { calls }) => sum + calls, 0))).toEqual([50, 50, 50]);
  expect(taken[0]?.[0]?.sql).toHaveLength(8_000);
});

it('counts again what could not be written', () => {
  const { statements, started } = statementsOf();
  ran(statements, 'select 1', 3);
  ran(statements, 'select 1', 5, true);
  const taken = statements.takeAll();
  statements.takeAll();
  statements.giveBack(taken);
  expect(started()).toBe(2);
  ran(statements, 'select 1', 4);
  expect(statements.takeAll()).toMatchObject([{ sql: 'select $1', calls: 3, errors: 1, rows: 6, bytes: 30, totalMs: 12, maxMs: 5 }]);
});

it('reads the first statements of a text, and counts the others together', () => {
  const { statements } = statementsOf();
  const text = Array.from({ length: 1_000 }, (_, i) => `select a${i}`).join(';');
  expect(statements.find(text)).toHaveLength(STATEMENTS_MAX + 1);
  ran(statements, text);
  const taken = statements.takeAll();
  expect(taken).toHaveLength(STATEMENTS_MAX + 1);
  expect(taken.at(-1)?.queryId).toBe(OTHERS_ID);
});
