import { expect, it } from 'vitest';
import { freshBytes } from '../../src/random.ts';

it('gives as many bytes as asked for, however many were given before', () => {
  for (const size of [0, 1, 18, 4_095, 4_096, 4_097, 10_000, 5]) expect(freshBytes(size)).toHaveLength(size);
});

it('never gives the same bytes twice, nor changes those that it gave', () => {
  const given = Array.from({ length: 2_000 }, () => freshBytes(12));
  const first = given.map((bytes) => bytes.toString('hex'));
  freshBytes(4_096);
  expect(new Set(first).size).toBe(2_000);
  expect(given.map((bytes) => bytes.toString('hex'))).toEqual(first);
});
