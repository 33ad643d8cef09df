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
  const prepared = new PreparedStatements(2, 1_000);
  expect(prepared.add(a)).toEqual([]);
  expect(prepared.use(a)).toBe(true);
  expect(prepared.add(b)).toEqual([]);
  expect(prepared.use(a)).toBe(true);
  expect(prepared.use(a)).toBe(true);
  expect(prepared.add(c)).toEqual([b]);
  expect(prepared.use(a)).toBe(true);
  expect(prepared.add(d)).toEqual([c]);
  expect([...prepared]).toEqual([a, d]);
});

test('what is gone is not there, though it was the last one used', () => {
  const prepared = new PreparedStatements(2, 1_000);
  prepared.add(a);
  prepared.use(a);
  prepared.delete(a);
  expect(prepared.use(a)).toBe(false);
  prepared.add(a);
  prepared.use(a);
  prepared.clear();
  expect(prepared.use(a)).toBe(false);
});

test('large ones make room for each other, as many as it takes, and the last one stays', () => {
  const prepared = new PreparedStatements(10, 1_000);
  const large = (bytes: number) => newServerStatement(Buffer.alloc(bytes));
  const [first, second, third, largest] = [large(400), large(400), large(900), large(2_000)] as const;
  expect(prepared.add(first)).toEqual([]);
  expect(prepared.add(second)).toEqual([]);
  expect(prepared.add(second)).toEqual([]);
  expect(prepared.add(third)).toEqual([first, second]);
  expect(prepared.add(largest)).toEqual([third]);
  expect([...prepared]).toEqual([largest]);
  expect(prepared.add(first)).toEqual([largest]);
  prepared.delete(first);
  prepared.delete(first);
  prepared.add(second);
  prepared.clear();
  expect(prepared.add(third)).toEqual([]);
  expect(prepared.add(a)).toEqual([]);
});
