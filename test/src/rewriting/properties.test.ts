import { describe, expect, it } from 'vitest';
import { lastMention, rewriteLargeSql, rewriteSql } from '../../../src/rewriting/rewrite-sql.ts';
import type { Edits } from '../../../src/syntax/edits.ts';
import { Lexer, Token } from '../../../src/syntax/scanner.ts';
import { SeededRandom } from '../../support/random.ts';
import { SCHEMA, TARGET } from './marked.ts';

/** Every rule's words, every quote open and closed, and things that are none of anybody's business. */
const PIECES = [
  ...'public PUBLIC "public" U&"public" "Public" users "User" a x schema SCHEMA search_path "search_path"'.split(' '),
  ...'SET SESSION LOCAL TO = FROM AS DO CREATE DROP ALTER IF NOT EXISTS ON IN GRANT WITH JOIN UPDATE INTO SELECT'.split(' '),
  ...'LISTEN UNLISTEN NOTIFY pg_notify nextval set_config has_schema_privilege regclass CAST EXECUTE format USING'.split(' '),
  ...'FUNCTION LANGUAGE sql plpgsql BEGIN END DECLARE THEN LOOP OPERATOR ( ) ( ) [ ] , , ; ; . . . :: || * + $1 1.5 1..2'.split(' '),
  `'public'`,
  `'public.x'`,
  `'search_path'`,
  `'chan'`,
  `'it''s public.x'`,
  `E'public.\\'x'`,
  `E'p\\165blic.x'`,
  `U&'public.x'`,
  `B'01'`,
  `'public.'\n'x'`,
  '$$public.x$$',
  '$a$ DO $b$ public.x $b$ $a$',
  `'DO ''public.x'' '`,
  `'`,
  `"`,
  '$$',
  '$a$',
  `E'`,
  `\\`,
  '/*',
  '*/',
  '--',
  '\n',
  'ü',
  '😀',
  '"ä.public"',
  '',
  '',
];

function soup(random: SeededRandom): string {
  const length = 1 + random.below(24);
  const gap = (): string => ['', ' ', ' ', '\n', '/**/'][random.below(5)] ?? '';
  return Array.from({ length }, () => (PIECES[random.below(PIECES.length)] ?? '') + gap()).join('');
}

/** The edits made one by one, which also must be in order and not overlap. */
function reassembled(bytes: Buffer, edits: Edits): Buffer {
  const pieces: Buffer[] = [];
  let from = 0;
  for (const { start, end, text } of edits) {
    if (start < from || end < start) return Buffer.alloc(0);
    pieces.push(bytes.subarray(from, start), Buffer.from(text, 'latin1'));
    from = end;
  }
  return Buffer.concat([...pieces, bytes.subarray(from)]);
}

function soups(seed: number, count: number): string[] {
  const random = new SeededRandom(seed);
  return Array.from({ length: count }, () => soup(random));
}

describe('for any text', () => {
  it('what is not edited is as it was', () => {
    for (const text of soups(1, 10_000)) {
      const bytes = Buffer.from(text);
      const { sql, edits } = rewriteSql(bytes, TARGET);
      if (!sql.equals(reassembled(bytes, edits)) || (edits.length === 0 && sql !== bytes)) expect.fail(text);
    }
  });

  it('strings and bytes are rewritten alike', () => {
    for (const text of soups(2, 5_000)) expect(rewriteSql(Buffer.from(text), TARGET).sql.toString()).toBe(rewriteSql(text, TARGET).sql);
  });

  it('slices make no difference', async () => {
    const texts = soups(3, 30).map((text) => `${text} `.repeat(2000));
    for (const text of texts) {
      const bytes = Buffer.from(text);
      expect((await rewriteLargeSql(bytes, TARGET)).sql.equals(rewriteSql(bytes, TARGET).sql)).toBe(true);
    }
  });

  it('a target whose schema is public changes nothing', () => {
    for (const text of soups(4, 5_000)) expect(rewriteSql(text, { schema: 'public' })).toMatchObject({ sql: text, edits: [] });
  });

  it('a schema with a name as long as public changes nothing but that word', () => {
    for (const text of soups(5, 5_000)) {
      const { edits } = rewriteSql(text, { schema: 'org_xy' });
      for (const edit of [...edits].filter(({ text: put }) => put === 'org_xy')) {
        expect(text.slice(edit.start, edit.end)).toMatch(/^public$|p\\165blic/i);
      }
    }
  });

  it('comments between tokens make no difference', () => {
    for (const text of soups(6, 5_000)) {
      const commented = withComments(text);
      const plain = [...rewriteSql(text, TARGET).edits].map((edit) => edit.text);
      expect([...rewriteSql(commented, TARGET).edits].map((edit) => edit.text)).toEqual(plain);
    }
  });

  it('what was rewritten needs no rewriting', () => {
    for (const text of soups(7, 5_000)) {
      const { sql } = rewriteSql(text, TARGET);
      expect(rewriteSql(sql, TARGET).sql).toBe(sql);
    }
  });
});

/** A comment behind every token; not where it would end a line comment, a string that is continued, or what never ends. */
function withComments(text: string): string {
  const lexer = new Lexer(text);
  let commented = '';
  let from = 0;
  while (lexer.next() !== Token.End && lexer.terminated) {
    const joins = lexer.kind === Token.Operator || text.charAt(lexer.end) === '';
    commented += text.slice(from, lexer.end) + (joins ? '' : '/* x */');
    from = lexer.end;
  }
  return commented + text.slice(from);
}

describe('lastMention', () => {
  it('finds what a search for the words finds', () => {
    const random = new SeededRandom(8);
    const pieces = [
      'public',
      'LISTEN',
      'Notify',
      'unlisten',
      'pub',
      'lic',
      'li',
      'sten',
      'not',
      'ify',
      'p',
      'l',
      'n',
      ' ',
      'ü',
      '\u0150',
      '.',
      'c',
    ];
    for (let round = 0; round < 10_000; round++) {
      const text = Array.from({ length: random.below(12) }, () => pieces[random.below(pieces.length)]).join('');
      const wanted = Math.max(...['public', 'listen', 'notify'].map((word) => ends(text.toLowerCase(), word)));
      expect(lastMention(text)).toBe(wanted);
      const bytes = Buffer.from(text);
      expect(lastMention(bytes)).toBe(wanted < 0 ? -1 : Buffer.byteLength(text.slice(0, wanted)));
    }
  });

  it('stays between its bounds', () => {
    expect(lastMention('public public', 0, 12)).toBe(6);
    expect(lastMention('public public', 1, 12)).toBe(-1);
    expect(lastMention(Buffer.from('public public'), 7, 13)).toBe(13);
  });
});

function ends(text: string, word: string): number {
  const at = text.lastIndexOf(word);
  return at < 0 ? -1 : at + word.length;
}

describe('large texts', () => {
  const row = `(1, 'it''s', 'public.x', "public", now()),\n`;

  it('are rewritten while others run', async () => {
    const text = Buffer.from(`INSERT INTO public.t VALUES\n${row.repeat(20_000)} (public.f())`);
    let turns = 0;
    const counting = setInterval(() => turns++, 0);
    const { sql, edits } = await rewriteLargeSql(text, TARGET);
    clearInterval(counting);
    expect(edits).toHaveLength(2);
    expect(sql.equals(Buffer.from(`INSERT INTO ${SCHEMA}.t VALUES\n${row.repeat(20_000)} (${SCHEMA}.f())`))).toBe(true);
    expect(turns).toBeGreaterThan(5);
  });

  it('without anything to rewrite are returned as they are', async () => {
    const text = Buffer.from('SELECT 1; '.repeat(200_000));
    expect((await rewriteLargeSql(text, TARGET)).sql).toBe(text);
    const data = Buffer.from(`SELECT 'public.x'; ${'SELECT 1; '.repeat(200_000)}`);
    expect((await rewriteLargeSql(data, TARGET)).sql).toBe(data);
  });

  it.each([
    ['open parentheses', '('.repeat(200_000) + `'public.x',`.repeat(20_000)],
    ['calls of calls', 'pg_notify('.repeat(50_000)],
    ['unfinished functions', `AS 'public.x' `.repeat(50_000)],
    ['comments that never end', 'public./*'.repeat(50_000)],
    ['dollar quotes that never end', '$a$ public.x $b$ '.repeat(50_000)],
    ['quotes in quotes', `DO '${`''''''''public.x`.repeat(20_000)}'`],
    ['relations called public', 'SELECT public.a FROM b public; '.repeat(20_000)],
    ['casts of casts', `'public.x'${'::text'.repeat(100_000)}`],
    ['lists without end', `SET search_path = ${'public, '.repeat(50_000)}`],
    ['names of channels', 'LISTEN LISTEN '.repeat(50_000)],
  ])('made to be slow take no longer than others: %s', (_, text) => {
    const before = process.cpuUsage();
    rewriteSql(text, TARGET);
    const { user, system } = process.cpuUsage(before);
    expect((user + system) / text.length).toBeLessThan(2);
  });
});
