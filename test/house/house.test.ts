import { expect, it } from 'vitest';
import { arrowsUp, byteLimitsByHand, cycles, evictionsByHand, fileOf, modules, replyReaders, textOf } from './modules.ts';

const graph = modules();

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

/** What is limited there is the size of one text or one reply. Results count in a budget besides. */
const SIZE_LIMITS: ReadonlySet<string> = new Set([
  'StreamedRecord#kept',
  'JsonText#characters',
  'ReplySizeLimit#bytes',
  'Notices#characters',
  // The log's own lines, which wait for whoever reads the standard output.
  'LogOutput#waitingBytes',
]);

it('bytes that are limited together count in a memory budget', () => {
  const files = [...graph.keys()].filter((file) => !file.startsWith('src/runtime/'));
  expect(files.flatMap((file) => byteLimitsByHand(textOf(file))).filter((field) => !SIZE_LIMITS.has(field))).toEqual([]);
});

it('bounded maps are all of one kind', () => {
  const byHand = [...graph.keys()].filter((file) => evictionsByHand(textOf(file)) > 0);
  expect(byHand.filter((file) => !file.startsWith('src/runtime/'))).toEqual([]);
});

it('sums of bytes with a limit, and evictions, are found', () => {
  const limited = 'this.#bytes += length;\nif (this.#bytes > MAX_BYTES) refuse();';
  expect(byteLimitsByHand(limited)).toEqual(['#bytes']);
  expect(byteLimitsByHand(`import a\nclass First {\n}\n\nexport class Second {\n${limited}`)).toEqual(['Second#bytes']);
  expect(byteLimitsByHand(limited.replace('MAX_BYTES', 'written'))).toEqual([]);
  expect(byteLimitsByHand('this.#free -= bytes.length;\nreturn this.#free + more <= this.#maxBytes;')).toEqual(['#free']);
  const evicting = 'for (const oldest of this.#known.keys()) {\nif (this.#known.size <= KNOWN_MAX) break;\nthis.#known.delete(oldest);\n}';
  expect(evictionsByHand(evicting)).toBe(1);
  expect(evictionsByHand(evicting.replace('this.#known.delete', 'print'))).toBe(0);
  expect(evictionsByHand('if (this.#young.size >= this.#max) this.#young = new Set();')).toBe(1);
});

it('one file finds the tokens of SQL text: no other asks where a string or a quoted name ends', () => {
  const asks = /import \{[^}]*\b(?:quotedEnd|stringEnd)\b[^}]*\} from '[^']*\/(?:token-ends|scanner)\.ts'/;
  expect(fileOf('quotedEnd')).toMatch(/^src\/syntax\//);
  expect([...graph.keys()].filter((file) => asks.test(textOf(file)) && file !== fileOf('Lexer'))).toEqual([]);
});

/** Readers of the relay: of the messages, of which request a message answers, and of what the reply to a Describe says. */
const RELAY_READERS = ['BackendReplies', 'ReplyQueue', 'DescribeReply'];

it('two read the replies of backends: one for values, and the relay', () => {
  expect(replyReaders(graph.keys())).toEqual([...new Set([...RELAY_READERS, 'ReplyReader'].map(fileOf))].sort());
});

it('one file finds the columns of a DataRow for values in text format', () => {
  const walks = [...graph.keys()].filter((file) => /toString\((?:'utf8'|encoding), at, at \+ length\)/.test(textOf(file)));
  expect(walks).toEqual([fileOf('decodeTextRow')]);
});
