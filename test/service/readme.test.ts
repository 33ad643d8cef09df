import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { describe, expect, it } from 'vitest';
import { readConfig } from '../../src/config.ts';

const read = (path: string) => readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8');
const readme = read('README.md');

/** Rows of the configuration table: the default in backquotes, or the word for what stands there without one. */
const documented = new Map([...readme.matchAll(/^\| `([A-Z_]+)` \| (.+?) \|/gm)].map(([, name = '', value = '']) => [name, value]));
const declared = [...read('src/config.ts').matchAll(/^ {2}(DATABASE_URL|POSTERN_\w+):/gm)].map(([, name = '']) => name);

describe('the README', () => {
  it('lists every variable of the configuration, and no other', () => {
    expect([...documented.keys()].toSorted()).toEqual(declared.toSorted());
    const mentioned = new Set(readme.match(/\bPOSTERN_[A-Z_]+[A-Z]\b/g));
    expect([...mentioned].filter((name) => !isBeginning(name) && !declared.includes(name))).toEqual([]);
  });

  it.each(declared)('gives the default of %s', (name) => {
    const defaults: Readonly<Record<string, unknown>> = readConfig({});
    const told = documented.get(name) ?? '';
    const value = /^`(.*)`$/.exec(told)?.[1];
    if (defaults[name] === undefined) expect(told).toMatch(/^(?:unset|generated)$/);
    else expect(name === 'POSTERN_DATA_DIR' ? resolve(value ?? '') : value).toBe(String(defaults[name]));
  });

  it('names scripts that there are', () => {
    const { scripts } = JSON.parse(read('package.json'));
    const named = [...`${readme}${read('CONTRIBUTING.md')}`.matchAll(/npm run ([\w:]+)/g)].map(([, script = '']) => script);
    for (const script of named) expect(scripts).toHaveProperty([script]);
  });
});

/** `POSTERN_BACKENDS_…` stands for several. */
function isBeginning(name: string): boolean {
  return readme.includes(`${name}_…`);
}
