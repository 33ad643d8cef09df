import { expect, test } from 'vitest';
import { filterOf, probesOf } from '../../../../src/catalog/audit/blocks.ts';

const ids = (from: number, count: number) => Array.from({ length: count }, (_, n) => `req-${from + n}`);
const mayHold = (filter: Buffer, id: string) =>
  probesOf(id).every((bit) => ((filter[(bit % (8 * filter.length)) >> 3] ?? 0) >> (bit & 7)) & 1);

test.each([1, 2, 7, 128, 256])('knows all of %i request ids, and few others', (count) => {
  const filter = filterOf(ids(0, count));
  expect(filter).toHaveLength(count);
  for (const id of ids(0, count)) expect(mayHold(filter, id)).toBe(true);
  const mistaken = ids(1_000_000, 2_000).filter((id) => mayHold(filter, id));
  expect(mistaken.length).toBeLessThan(count < 128 ? 1_000 : 100);
});

test('of none holds none', () => {
  for (const id of ['', 'a', 'req-1']) expect(mayHold(filterOf([]), id)).toBe(false);
});
