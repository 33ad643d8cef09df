import { expect, it } from 'vitest';
import { randomSecretBytes, timeOrderedUuid } from '../../../src/runtime/bytes.ts';

it('gives the requested number of bytes, whatever was given before', () => {
  for (const size of [0, 1, 18, 4_095, 4_096, 4_097, 10_000, 5]) expect(randomSecretBytes(size)).toHaveLength(size);
});

it('never gives the same bytes twice, nor changes those that it gave', () => {
  const given = Array.from({ length: 2_000 }, () => randomSecretBytes(12));
  const first = given.map((bytes) => bytes.toString('hex'));
  randomSecretBytes(4_096);
  expect(new Set(first).size).toBe(2_000);
  expect(given.map((bytes) => bytes.toString('hex'))).toEqual(first);
});

it('makes ids that are UUIDs, each new, in the order of their time', () => {
  const ids = Array.from({ length: 2_000 }, () => timeOrderedUuid(1_768_000_000_000));
  for (const id of ids) expect(id).toMatch(/^019ba503-1000-7[0-9a-f]{3}-8[0-9a-f]{3}-[0-9a-f]{12}$/);
  expect(new Set(ids).size).toBe(2_000);
  expect(timeOrderedUuid(1_768_000_000_001) > (ids[0] ?? '')).toBe(true);
});
