import { describe, expect, it } from 'vitest';
import { BoundedMap } from '../../../src/runtime/bounded-map.ts';

const filled = (map: BoundedMap<string, string>, ...keys: readonly string[]) => {
  for (const key of keys) map.set(key, `of ${key}`);
  return map;
};
const keysIn = (map: BoundedMap<string, string>) => [...'abcdef'].filter((key) => map.get(key) !== undefined).join('');

describe('a bounded map', () => {
  it('forgets what was added first, when there are too many', () => {
    const map = filled(new BoundedMap({ maxEntries: 3 }), 'a', 'b', 'c', 'd');
    expect([keysIn(map), map.size]).toEqual(['bcd', 3]);
  });

  it('forgets what was used longest ago', () => {
    const map = filled(new BoundedMap({ maxEntries: 3 }), 'a', 'b', 'c');
    expect([map.use('a'), map.use('a'), map.use('b')]).toEqual(['of a', 'of a', 'of b']);
    expect(keysIn(filled(map, 'd', 'e'))).toBe('bde');
  });

  it('does not take a look for a use', () => {
    const map = filled(new BoundedMap({ maxEntries: 2 }), 'a', 'b');
    expect(map.get('a')).toBe('of a');
    expect(keysIn(filled(map, 'c'))).toBe('bc');
  });

  it('forgets as many as are too heavy together', () => {
    const map = new BoundedMap<string, string>({ maxEntries: 10, maxWeight: 10, weightOf: (_, value) => value.length });
    map.set('a', 'xxxx');
    map.set('b', 'xxxx');
    map.set('c', 'xxxxxxx');
    expect(keysIn(map)).toBe('c');
    map.set('c', 'xx');
    map.set('d', 'xxxxxxxx');
    expect(keysIn(map)).toBe('cd');
    expect(map.set('e', 'x'.repeat(11))).toEqual(['xx', 'xxxxxxxx']);
    expect([keysIn(map), map.size]).toEqual(['e', 1]);
    expect(keysIn(filled(map, 'a', 'b'))).toBe('ab');
  });

  it('counts what is deleted, replaced and cleared no more', () => {
    const map = new BoundedMap<string, string>({ maxEntries: 10, maxWeight: 8, weightOf: (_, value) => value.length });
    filled(map, 'a', 'b');
    expect([map.delete('a'), map.delete('a')]).toEqual([true, false]);
    expect(keysIn(filled(map, 'b', 'c'))).toBe('bc');
    map.clear();
    expect(keysIn(filled(map, 'e', 'f'))).toBe('ef');
  });

  it('forgets nothing for what is restored', () => {
    const map = filled(new BoundedMap<string, string>({ maxEntries: 2 }), 'a', 'b');
    map.restore('c', 'of c');
    expect([keysIn(map), [...map.values()]]).toEqual(['abc', ['of a', 'of b', 'of c']]);
    expect(map.set('d', 'of d')).toEqual(['of a', 'of b']);
  });

  it('keeps values that are nothing', () => {
    const map = new BoundedMap<string, string | null>({ maxEntries: 2 });
    map.set('a', null);
    expect([map.get('a'), map.use('a'), map.size]).toEqual([null, null, 1]);
  });
});
