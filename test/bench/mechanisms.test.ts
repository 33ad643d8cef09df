import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { MECHANISMS, mechanismsNamed } from './mechanisms.ts';

const DIST = new URL('../../dist/', import.meta.url);
const PACKAGE = new URL('../../package.json', import.meta.url);

test.each(MECHANISMS)('the product can be started without $name', ({ replacement, flag = '' }) => {
  if (replacement !== undefined) expect(readFileSync(new URL(replacement.module, DIST), 'utf8').split(replacement.text)).toHaveLength(2);
  expect(readFileSync(PACKAGE, 'utf8')).toContain(flag);
});

test('mechanisms are chosen by their names', () => {
  expect(mechanismsNamed(['all'])).toBe(MECHANISMS);
  expect(mechanismsNamed(['busy-polling', 'sharing']).map(({ name }) => name)).toEqual(['busy-polling', 'sharing']);
  expect(() => mechanismsNamed(['magic'])).toThrow('--without: there is no magic; there are all, nothing, busy-polling');
});
