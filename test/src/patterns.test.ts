import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { transformSync } from 'esbuild';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';

const ROOT = new URL('../../', import.meta.url).pathname;

/** Characters beyond the mere linear cost at which a pattern is suspected: the first two find what is more than quadratic before it takes long. */
const SIZES = [512, 4_096, 16_384];
/** How much longer than {@link LINEAR} a pattern may take for the same text. A quadratic one takes some thousands of times as long. */
const TIMES_LINEAR = 100;
/** Below this it is the clock that is measured, or a collection of garbage. */
const LEAST_MS = 10;
const TRIES = 6;

/** Tried at each place, where it looks at the character and two behind it. */
const LINEAR = /[^\n][^\r]\uffff/g;

interface Pattern {
  readonly place: string;
  readonly pattern: RegExp;
}

describe('the patterns of the project', () => {
  const literals = sources().flatMap(literalsOf);
  let made: Pattern[] = [];
  const original = globalThis.RegExp;
  beforeAll(async () => {
    made = await madeAtStart(original);
  });
  afterAll(() => {
    globalThis.RegExp = original;
    vi.resetModules();
  });

  it('are found', () => {
    expect(literals.length).toBeGreaterThan(150);
    expect(made.length).toBeGreaterThan(10);
  });

  it('know a quadratic pattern', () => {
    expect(slowInput(/a+b/g)).toBeDefined();
    expect(slowInput(/\bset\s*(?:=|\s)\s*'/)).toBeDefined();
    expect(slowInput(/(\w+:\/\/[^\s:/@"]*):[^\s@"]*@/g)).toBeDefined();
    expect(slowInput(/(?<!a)a+b/g)).toBeUndefined();
  });

  it('take a time that grows with the text and no faster', () => {
    const slow = [...literals, ...made].flatMap(({ place, pattern }) => {
      const input = slowInput(pattern);
      return input === undefined ? [] : [`${place} ${pattern}: ${input}`];
    });
    expect(slow).toEqual([]);
  });
});

function sources(): string[] {
  return ['src', 'proxy', 'http'].flatMap((folder) =>
    readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' })
      .filter((file) => /\.tsx?$/.test(file))
      .map((file) => join(folder, file)),
  );
}

/** Without comments and types, a slash begins a pattern where no value stands before it. */
const TOKEN =
  /"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`(?:[^`\\]|\\[\s\S])*`|(?<=(?:^|[=(,[:?!&|{};>~+]|\breturn|\bof|\bcase)\s*)\/((?:[^/[\\\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+)\/([dgimsuvy]*)/g;

function literalsOf(file: string): Pattern[] {
  const { code } = transformSync(readFileSync(join(ROOT, file), 'utf8'), {
    loader: file.endsWith('x') ? 'tsx' : 'ts',
    minifyWhitespace: true,
    legalComments: 'none',
  });
  return [...code.matchAll(TOKEN)].flatMap(([, source, flags]) => {
    return source === undefined ? [] : [{ place: file, pattern: new RegExp(source, flags) }];
  });
}

/** Those that modules assemble when they are loaded. */
async function madeAtStart(original: RegExpConstructor): Promise<Pattern[]> {
  const found: Pattern[] = [];
  let file = '';
  vi.resetModules();
  globalThis.RegExp = new Proxy(original, {
    construct(target, args, newTarget) {
      const pattern: RegExp = Reflect.construct(target, args, newTarget);
      if (!found.some((known) => String(known.pattern) === String(pattern))) found.push({ place: file, pattern });
      return pattern;
    },
  });
  try {
    const assembling = sources().filter(
      (one) => !one.startsWith('http/console/') && /^const .*new RegExp\(/m.test(readFileSync(join(ROOT, one), 'utf8')),
    );
    for (file of assembling) await import(join(ROOT, file));
  } finally {
    globalThis.RegExp = original;
  }
  return found;
}

/** @returns an input for which the pattern takes too long */
function slowInput(pattern: RegExp): string | undefined {
  const slow = inputsFor(pattern).find((input) => SIZES.some((size) => isSlow(pattern, textOf(input, size))));
  return slow && JSON.stringify(slow);
}

/** A beginning, which may be empty, and what is repeated after it. */
type Input = readonly [start: string, repeated: string];

const LETTERS = [
  'a',
  'A',
  '0',
  ' ',
  '\n',
  '\t',
  "'",
  '"',
  '/',
  ':',
  '@',
  '.',
  ',',
  ';',
  '-',
  '_',
  '$',
  '(',
  ')',
  '[',
  '\\',
  '=',
  '*',
  '%',
  '<',
  '&',
  '\u00e9',
  '\u200b',
];

function inputsFor(pattern: RegExp): Input[] {
  const own = LETTERS.filter((letter) => pattern.source.includes(letter.trim() || '\\s') || 'a0 '.includes(letter));
  const pairs = own.flatMap((a) => own.filter((b) => a !== b).map((b): Input => ['', a + b]));
  const prefixes = prefixesOf(pattern.source);
  return [
    ...LETTERS.map((letter): Input => ['', letter]),
    ...pairs,
    ...prefixes.map((prefix): Input => ['', prefix]),
    ...prefixes.flatMap((prefix) => own.map((letter): Input => [prefix, letter])),
  ];
}

function textOf([start, repeated]: Input, size: number): string {
  return (start + repeated.repeat(Math.ceil(size / repeated.length))).slice(0, size);
}

/** How many of a group's alternatives are tried. */
const ALTERNATIVES = 6;

/** What the pattern begins with, as a text that it matches: after each of its parts. */
function prefixesOf(source: string): string[] {
  const found = Array.from({ length: ALTERNATIVES }, (_, choice) => prefixesWith(source, choice));
  return [...new Set(found.flat())].slice(0, 60);
}

/** @param choice which alternative is taken in the group that has the most of them; the last in those that have fewer */
function prefixesWith(source: string, choice: number): string[] {
  const prefixes: string[] = [];
  let text = '';
  /** Of each group around this place: where its text began, and which alternative this is. */
  const groups = [{ start: 0, alternative: 0 }];
  for (const [atom] of source.matchAll(ATOM)) {
    const group = groups.at(-1);
    if (group === undefined) break;
    if (atom.startsWith('(')) groups.push({ start: text.length, alternative: 0 });
    else if (atom === ')') groups.pop();
    else if (atom === '|') {
      group.alternative += 1;
      if (group.alternative <= choice) text = text.slice(0, group.start);
    } else if (group.alternative <= choice) {
      text += letterFor(atom);
      if (text !== '') prefixes.push(text);
    }
  }
  return prefixes;
}

const ATOM = /\\[pP]\{[^}]*\}|\\u\{?[0-9a-f]{2,6}\}?|\\x..|\\.|\[(?:\\.|[^\]\\])*\]|\(\?<?[:=!]?(?:\w+>)?|\{\d*,?\d*\}|[\s\S]/gi;

function letterFor(atom: string): string {
  if (/^(?:[()^$*+?|]|\{.*\}|\\[bB1-9])$/s.test(atom)) return '';
  if (atom === '.') return 'a';
  if (atom.length === 1) return atom;
  const one = new RegExp(`^${atom}$`, 'iu');
  return LETTERS.find((letter) => one.test(letter)) ?? '';
}

/** A busy machine makes one attempt slow, and not each of several. */
function isSlow(pattern: RegExp, text: string): boolean {
  for (let tries = 0; tries < TRIES; tries += 1) {
    const bound = Math.max(LEAST_MS, timeOf(LINEAR, text) * TIMES_LINEAR);
    if (timeOf(pattern, text) <= bound) return false;
  }
  return true;
}

/** Of the processor. */
function timeOf(pattern: RegExp, text: string): number {
  const before = process.cpuUsage();
  pattern.lastIndex = 0;
  if (pattern.global) text.replace(pattern, '');
  else pattern.exec(text);
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1_000;
}
