import { basename, dirname } from 'node:path';
import { expect, it } from 'vitest';
import { arrowsUp, byteLimitsByHand, cycles, entriesPerFolder, evictionsByHand, modules, replyReaders, sizeOf, textOf } from './modules.ts';

const graph = modules();
const ENTRIES_MAX = 12;
/** A folder for each layer, and what starts and assembles them. */
const LARGER: ReadonlySet<string> = new Set(['src']);
const README_LINES_MAX = 220;
const README_WORDS_MAX = 1_500;
const FOLDER_README_LINES_MAX = 40;
const GLOSSARY_WORDS_MAX = 40;

it('no files import each other, types included', () => {
  expect(cycles(graph)).toEqual([]);
});

it('cycles are found', () => {
  const files = new Map([
    ['a', ['b', 'c']],
    ['b', ['c']],
    ['c', ['d', 'elsewhere']],
    ['d', ['b']],
    ['e', ['a']],
  ]);
  expect(cycles(files).map((group) => [...group].sort())).toEqual([['b', 'c', 'd']]);
});

it('no file imports from a higher layer, or from the other door', () => {
  expect(arrowsUp(graph)).toEqual([]);
  const wrong = new Map([
    ['src/runtime/a.ts', ['src/sql/b.ts']],
    ['proxy/a.ts', ['http/b.ts', 'src/sql/b.ts']],
    ['src/main.ts', ['http/b.ts']],
  ]);
  expect(arrowsUp(wrong)).toEqual(['src/runtime/a.ts → src/sql/b.ts', 'proxy/a.ts → http/b.ts']);
});

it(`no folder has more than ${ENTRIES_MAX} entries`, () => {
  const larger = [...entriesPerFolder(graph.keys())].filter(([folder, entries]) => entries > ENTRIES_MAX && !LARGER.has(folder));
  expect(larger).toEqual([]);
});

it('the README is for the first ten minutes', () => {
  const { lines, words } = sizeOf('README.md');
  expect(lines).toBeLessThanOrEqual(README_LINES_MAX);
  expect(words).toBeLessThanOrEqual(README_WORDS_MAX);
});

it(`the glossary has at most ${GLOSSARY_WORDS_MAX} entries`, () => {
  const [, glossary = ''] = /^## The glossary$(.*?)^## /ms.exec(textOf('CONTRIBUTING.md')) ?? [];
  const entries = [...glossary.matchAll(/^\| (?!word |--)/gm)];
  expect(entries.length).toBeGreaterThan(20);
  expect(entries.length).toBeLessThanOrEqual(GLOSSARY_WORDS_MAX);
});

it(`each folder of more than eight files says what is in it, in at most ${FOLDER_README_LINES_MAX} lines`, () => {
  const files = [...graph.keys()];
  const large = [...new Set(files.map((file) => dirname(file)))].filter((folder) => {
    return !LARGER.has(folder) && files.filter((file) => dirname(file) === folder).length > 8;
  });
  for (const folder of large) {
    expect(sizeOf(`${folder}/README.md`).lines, folder).toBeLessThanOrEqual(FOLDER_README_LINES_MAX);
    const named = textOf(`${folder}/README.md`);
    for (const file of files) if (dirname(file) === folder) expect(named, folder).toContain(`\`${basename(file)}\``);
  }
});

/** What is limited there is the size of one text or one reply. Results count in a budget besides. */
const SIZE_LIMITS: ReadonlySet<string> = new Set([
  'src/catalog/audit/entries/statement-record.ts #kept',
  'src/sql/parameters/json-writer.ts #characters',
  'src/sql/result/reply-size-limit.ts #bytes',
  'src/sql/session/warnings.ts #characters',
]);

it('bytes that are limited together count in a memory budget', () => {
  const byHand = [...graph.keys()].flatMap((file) => byteLimitsByHand(textOf(file)).map((field) => `${file} ${field}`));
  expect(byHand.filter((one) => !one.startsWith('src/runtime/') && !SIZE_LIMITS.has(one))).toEqual([]);
});

it('bounded maps are all of one kind', () => {
  const byHand = [...graph.keys()].filter((file) => evictionsByHand(textOf(file)) > 0);
  expect(byHand.filter((file) => !file.startsWith('src/runtime/'))).toEqual([]);
});

it('sums of bytes with a limit, and evictions, are found', () => {
  const limited = 'this.#bytes += length;\nif (this.#bytes > MAX_BYTES) refuse();';
  expect(byteLimitsByHand(limited)).toEqual(['#bytes']);
  expect(byteLimitsByHand(limited.replace('MAX_BYTES', 'written'))).toEqual([]);
  expect(byteLimitsByHand('this.#free -= bytes.length;\nreturn this.#free + more <= this.#maxBytes;')).toEqual(['#free']);
  const evicting = 'for (const oldest of this.#known.keys()) {\nif (this.#known.size <= KNOWN_MAX) break;\nthis.#known.delete(oldest);\n}';
  expect(evictionsByHand(evicting)).toBe(1);
  expect(evictionsByHand(evicting.replace('this.#known.delete', 'print'))).toBe(0);
  expect(evictionsByHand('if (this.#young.size >= this.#max) this.#young = new Set();')).toBe(1);
});

it('one file finds the tokens of SQL text: no other asks where a string or a quoted name ends', () => {
  const asks = /import \{[^}]*\b(?:quotedEnd|stringEnd)\b[^}]*\} from '[^']*token-ends\.ts'/;
  expect([...graph.keys()].filter((file) => asks.test(textOf(file)))).toEqual(['src/syntax/tokens/scanner.ts']);
});

/** What the relay's reader consists of besides: which request a message answers, and what the reply to a Describe says. */
const PARTS_OF_RELAY: ReadonlySet<string> = new Set(['src/backend/reply-queue.ts', 'proxy/prepared/describe-reply-reader.ts']);

it('two files read the replies of backends: one for values, and the relay', () => {
  const readers = replyReaders(graph.keys());
  expect(readers.filter((file) => !PARTS_OF_RELAY.has(file))).toEqual(['proxy/relay/backend-messages.ts', 'src/protocol/reply-reader.ts']);
  for (const part of PARTS_OF_RELAY) expect(readers).toContain(part);
});

it('one file finds the columns of a DataRow for values in text format', () => {
  const walks = [...graph.keys()].filter((file) => /toString\('utf8', at, at \+ length\)/.test(textOf(file)));
  expect(walks).toEqual(['src/protocol/backend.ts']);
});
