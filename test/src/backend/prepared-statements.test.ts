import { expect, test } from 'vitest';
import { newServerStatement, PreparedStatements } from '../../../src/backend/prepared-statements.ts';

const [a, b, c, d] = ['a', 'b', 'c', 'd'].map((sql) => newServerStatement(Buffer.from(`${sql}\0\0\0`))) as [
  Statement,
  Statement,
  Statement,
  Statement,
];

type Statement = ReturnType<typeof newServerStatement>;

test('the statement that was not used for longest makes room, however often others were', () => {
  const prepared = new PreparedStatements(2);
  expect(prepared.add(a)).toBe(undefined);
  expect(prepared.use(a)).toBe(true);
  expect(prepared.add(b)).toBe(undefined);
  expect(prepared.use(a)).toBe(true);
  expect(prepared.use(a)).toBe(true);
  expect(prepared.add(c)).toBe(b);
  expect(prepared.use(a)).toBe(true);
  expect(prepared.add(d)).toBe(c);
  expect([...prepared]).toEqual([a, d]);
});

test('what is gone is not there, though it was the last one used', () => {
  const prepared = new PreparedStatements(2);
  prepared.add(a);
  prepared.use(a);
  prepared.delete(a);
  expect(prepared.use(a)).toBe(false);
  prepared.add(a);
  prepared.use(a);
  prepared.clear();
  expect(prepared.use(a)).toBe(false);
});
