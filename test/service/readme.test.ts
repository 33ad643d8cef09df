import { existsSync } from 'node:fs';
import { dirname, join, normalize, resolve } from 'node:path';
import { describe, expect, it } from 'vitest';
import { readConfig } from '../../src/config.ts';
import { DOCUMENTS, REPOSITORY, readDocument } from '../support/documents.ts';

const texts = new Map<string, string>(DOCUMENTS.map((path) => [path, readDocument(path)]));
const everything = [...texts.values()].join('\n');
const readme = readDocument('README.md');

/** The tables of settings: other tables name some of them too. */
const tables = [...everything.matchAll(/^\| variable \| default \| meaning \|\n((?:\|.*\n)+)/gm)].map(([, table = '']) => table).join('');
/** Their rows: the default in backquotes, or the word for what stands there without one. */
const rows = [...tables.matchAll(/^\| `([A-Z_]+)` \| (.+?) \|/gm)].map(([, name = '', value = '']) => [name, value] as const);
const documented = new Map(rows);
const declared = [...readDocument('src/config.ts').matchAll(/^ {2}(DATABASE_URL|POSTERN_\w+):/gm)].map(([, name = '']) => name);

describe('the documents', () => {
  it('list every variable of the configuration once, and no other', () => {
    expect(rows.map(([name]) => name).toSorted()).toEqual(declared.toSorted());
    const mentioned = new Set(everything.match(/\bPOSTERN_[A-Z_]+[A-Z]\b/g));
    const isKnown = (name: string) => declared.includes(name) || declared.includes(name.replace(/_FILE$/, ''));
    expect([...mentioned].filter((name) => !isBeginning(name) && !isKnown(name))).toEqual([]);
  });

  it.each(declared)('give the default of %s', (name) => {
    const defaults: Readonly<Record<string, unknown>> = readConfig({});
    const told = documented.get(name) ?? '';
    const value = /^`(.*)`$/.exec(told)?.[1];
    if (defaults[name] === undefined) expect(told).toMatch(/^(?:unset|generated)$/);
    else expect(name === 'POSTERN_DATA_DIR' ? resolve(value ?? '') : value).toBe(String(defaults[name]));
  });

  it('name scripts that there are', () => {
    const { scripts } = JSON.parse(readDocument('package.json'));
    const text = `${everything}${readDocument('CONTRIBUTING.md')}`;
    const named = [...text.matchAll(/npm (?:run (?:--silent )?([\w:]+)|(start|test)\b)/g)].map(([, script, short = '']) => script ?? short);
    expect(named.length).toBeGreaterThan(10);
    for (const script of named) expect(scripts).toHaveProperty([script]);
  });

  it.each([...texts])('in %s, link to files and headings that there are', (path, text) => {
    for (const [, file = '', heading] of text.matchAll(/\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)/g)) {
      const target = file === '' ? path : normalize(join(dirname(path), file));
      expect(existsSync(join(REPOSITORY, target)), target).toBe(true);
      if (heading !== undefined) expect(headingsOf(readDocument(target)), target).toContain(heading);
    }
  });

  it('give names of files that there are, where they say what a folder holds', () => {
    for (const [path, text] of texts) {
      const [, table = ''] = /^\| here \|.*\n\|[-|]+\|\n((?:\|.*\n)+)/m.exec(text) ?? [];
      for (const [, cell = ''] of table.matchAll(/^\| (.+?) \|/gm)) {
        for (const [, name = ''] of cell.matchAll(/`([^`]+)`/g)) expect(existsSync(join(REPOSITORY, dirname(path), name)), name).toBe(true);
      }
    }
  });
});

describe('the README', () => {
  it('is short', () => {
    expect(readme.trimEnd().split('\n').length).toBeLessThanOrEqual(220);
    expect(readme.trim().split(/\s+/).length).toBeLessThanOrEqual(1500);
  });

  it('gives figures that the benchmarks give', () => {
    const [, section = ''] = readme.split(/^## Numbers$/m);
    const [table = ''] = /(?:^\|.*\n)+/m.exec(section) ?? [];
    const figures = table.match(/(?<![\d,])\d+[.,]\d+/g) ?? [];
    expect(figures.length).toBeGreaterThan(8);
    for (const figure of figures) expect(readDocument('test/bench/README.md')).toMatch(new RegExp(`(?<![\\d.])${figure}(?!\\d)`));
  });
});

/** `POSTERN_BACKENDS_…` stands for several. */
function isBeginning(name: string): boolean {
  return everything.includes(`${name}_…`);
}

/** As links name them. */
function headingsOf(markdown: string): string[] {
  return [...markdown.matchAll(/^#+ (.+)$/gm)].map(([, heading = '']) =>
    heading
      .toLowerCase()
      .replace(/[^\w\- ]/g, '')
      .replaceAll(' ', '-'),
  );
}
