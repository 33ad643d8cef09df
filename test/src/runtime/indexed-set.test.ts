import { expect, test } from 'vitest';
import { IndexedSet } from '../../../src/runtime/indexed-set.ts';

test('a member is in the set until it is deleted, in any order', () => {
  const crowd = new IndexedSet<Named>();
  const [a, b, c, d] = ['a', 'b', 'c', 'd'].map((name) => ({ index: -1, name })) as [Named, Named, Named, Named];
  for (const one of [a, b, c, a]) crowd.add(one);
  const names = () => crowd.all().map(({ name }) => name);
  expect([names(), crowd.size]).toEqual([['a', 'b', 'c'], 3]);
  expect(crowd.delete(a)).toBe(true);
  expect(crowd.delete(a)).toBe(false);
  expect(names().sort()).toEqual(['b', 'c']);
  crowd.add(d);
  expect(crowd.delete(c)).toBe(true);
  expect(crowd.delete(d)).toBe(true);
  expect(names()).toEqual(['b']);
  expect(crowd.delete(b)).toBe(true);
  crowd.add(a);
  expect(names()).toEqual(['a']);
});

type Named = { index: number; name: string };
