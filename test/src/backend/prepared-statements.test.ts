import { expect, test } from 'vitest';
import { newPreparedStatements, newServerStatement } from '../../../src/backend/session-state.ts';

const [a, b, c, d] = ['a', 'b', 'c', 'd'].map((sql) => newServerStatement(Buffer.from(`${sql}\0\0\0`))) as [
  Statement,
  Statement,
  Statement,
  Statement,
];

type Statement = ReturnType<typeof newServerStatement>;

test('the statement that was not used for longest makes room, however often others were', () => {
  const prepared = newPreparedStatements(2, 1_000);
  expect(prepared.set(a, a)).toEqual([]);
  expect(prepared.use(a)).toBe(a);
  expect(prepared.set(b, b)).toEqual([]);
  expect(prepared.use(a)).toBe(a);
  expect(prepared.use(a)).toBe(a);
  expect(prepared.set(c, c)).toEqual([b]);
  expect(prepared.use(a)).toBe(a);
  expect(prepared.set(d, d)).toEqual([c]);
  expect([...prepared.values()]).toEqual([a, d]);
});

test('what is gone is not there, though it was the last one used', () => {
  const prepared = newPreparedStatements(2, 1_000);
  prepared.set(a, a);
  prepared.use(a);
  prepared.delete(a);
  expect(prepared.use(a)).toBe(undefined);
  prepared.set(a, a);
  prepared.use(a);
  prepared.clear();
  expect(prepared.use(a)).toBe(undefined);
});

test('large ones make room for each other, as many as it takes, and the last one stays', () => {
  const prepared = newPreparedStatements(10, 1_000);
  const large = (bytes: number) => newServerStatement(Buffer.alloc(bytes));
  const [first, second, third, largest] = [large(400), large(400), large(900), large(2_000)] as const;
  expect(prepared.set(first, first)).toEqual([]);
  expect(prepared.set(second, second)).toEqual([]);
  expect(prepared.set(second, second)).toEqual([]);
  expect(prepared.set(third, third)).toEqual([first, second]);
  expect(prepared.set(largest, largest)).toEqual([third]);
  expect([...prepared.values()]).toEqual([largest]);
  expect(prepared.set(first, first)).toEqual([largest]);
  prepared.delete(first);
  prepared.delete(first);
  prepared.set(second, second);
  prepared.clear();
  expect(prepared.set(third, third)).toEqual([]);
  expect(prepared.set(a, a)).toEqual([]);
});
