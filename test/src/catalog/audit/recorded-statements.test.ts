import { expect, test } from 'vitest';
import { StatementTextCache } from '../../../../src/catalog/audit/records.ts';
import type { ObservedStatement } from '../../../../src/observation.ts';

function counting(): { memory: StatementTextCache; made: string[] } {
  const made: string[] = [];
  const make = ({ sql, command }: ObservedStatement) => {
    made.push(sql);
    return `${command}: ${sql}`;
  };
  return { memory: new StatementTextCache(make), made };
}

test('what was made of a statement is remembered, as long as nothing in the statement differs', () => {
  const { memory, made } = counting();
  for (const command of ['A', 'A', 'B', 'A']) expect(memory.textOf({ sql: 'x', command })).toBe(`${command}: x`);
  expect(made).toHaveLength(3);
});

test('what comes often is kept among many that come once', () => {
  const { memory, made } = counting();
  for (let n = 0; n < 2_000; n++) {
    memory.textOf({ sql: `${n} ${'x'.repeat(5_000)}` });
    memory.textOf({ sql: 'often' });
  }
  expect(made.filter((sql) => sql === 'often')).toHaveLength(1);
  expect(made).toHaveLength(2_001);
});

test('what has not come for long is forgotten, and what is very long not kept', () => {
  const { memory, made } = counting();
  memory.textOf({ sql: 'once' });
  for (let n = 0; n < 500; n++) memory.textOf({ sql: `${n} ${'x'.repeat(5_000)}` });
  memory.textOf({ sql: 'once' });
  expect(made.filter((sql) => sql === 'once')).toHaveLength(2);
  const long = 'x'.repeat(20_000);
  expect([1, 2].map(() => memory.textOf({ sql: long }).length)).toEqual([20_011, 20_011]);
  expect(made.filter((sql) => sql === long)).toHaveLength(2);
});
