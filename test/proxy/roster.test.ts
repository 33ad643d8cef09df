import { expect, it } from 'vitest';
import { Roster } from '../../proxy/roster.ts';

it('has those who have come and have not left, also where places are taken again', () => {
  const roster = new Roster<string>();
  const [a, b] = [roster.add('a'), roster.add('b')];
  roster.delete(a);
  expect([[...roster], roster.size]).toEqual([['b'], 1]);
  roster.add('c');
  roster.add('d');
  expect([[...roster].toSorted(), roster.size]).toEqual([['b', 'c', 'd'], 3]);
  roster.delete(b);
  expect([...roster].toSorted()).toEqual(['c', 'd']);
});

it('goes on while its members leave', () => {
  const roster = new Roster<number>();
  const places = [1, 2, 3].map((member) => roster.add(member));
  const seen: number[] = [];
  for (const member of roster) {
    seen.push(member);
    for (const place of places.splice(0)) roster.delete(place);
  }
  expect([seen, roster.size]).toEqual([[1], 0]);
});
