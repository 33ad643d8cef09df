import { describe, expect, it } from 'vitest';
import { contentOf, isIdentifier, isString, Lexer, type LexerOptions, Token, withExplicitEscapes } from '../../../src/syntax/scanner.ts';

const NAMES = new Map<number, string>(Object.entries(Token).map(([name, kind]) => [kind, name]));

function tokens(text: string, options?: LexerOptions): string[] {
  const lexer = new Lexer(text, options);
  const read: string[] = [];
  while (lexer.next() !== Token.End)
    read.push(`${NAMES.get(lexer.kind)} ${text.slice(lexer.start, lexer.end)}${lexer.terminated ? '' : ' …'}`);
  return read;
}

function contents(text: string, options?: LexerOptions): string[] {
  const lexer = new Lexer(text, options);
  const read: string[] = [];
  for (let kind = lexer.next(); kind !== Token.End; kind = lexer.next()) {
    if (isString(kind) || (isIdentifier(kind) && kind !== Token.Word)) read.push(contentOf(lexer)?.text ?? 'too large');
  }
  return read;
}

describe('Lexer', () => {
  it('takes no second byte of a letter for a backslash', () => {
    const sjis = { doubleBytes: 'sjis' } as const;
    // The bytes of a katakana letter, then those of one of half width, behind which a backslash escapes.
    expect(tokens(`E'\x83\\', public.t, E'\xb1\\', x'`, sjis)).toEqual(
      [`EscapeString E'\x83\\'`, 'Punctuation ,', 'Word public', 'Punctuation .', 'Word t', 'Punctuation ,'].concat(
        `EscapeString E'\xb1\\', x'`,
      ),
    );
    const big5 = { doubleBytes: 'all', standardConformingStrings: false } as const;
    expect(tokens(`'\xa5\\', 'it\\'s \xa5\\'`, big5)).toEqual([`EscapeString '\xa5\\'`, 'Punctuation ,', `EscapeString 'it\\'s \xa5\\'`]);
    expect(contents(`E'\xa5\\\\\\public \xa5\\n'`, { doubleBytes: 'all' })).toEqual(['\xa5\\\\public \xa5\\n']);
    expect(tokens(`'\xa5\\', x`, { doubleBytes: 'all' })).toEqual([`String '\xa5\\'`, 'Punctuation ,', 'Word x']);
    expect(withExplicitEscapes(`SELECT '\xa5\\'`, big5)).toBe(`SELECT  E'\xa5\\'`);
  });

  it.each<[string, string[]]>([
    ['', []],
    [' \t\r\n\f', []],
    ['select A_1$ from ünï', ['Word select', 'Word A_1$', 'Word from', 'Word ünï']],
    [
      '"a""b" U&"c" u&"d!0065" UESCAPE \'!\' x',
      ['QuotedIdentifier "a""b"', 'UnicodeIdentifier U&"c"', 'UnicodeIdentifier u&"d!0065" UESCAPE \'!\'', 'Word x'],
    ],
    [`'a''b' '\\' 'c'`, [`String 'a''b'`, `String '\\'`, `String 'c'`]],
    [`'a' -- x\n 'b' 'c'`, [`String 'a' -- x\n 'b'`, `String 'c'`]],
    [`'a' /* x */\n'b'`, [`String 'a'`, `String 'b'`]],
    [`e'a\\'b' E'\\\\' E'a'\n'\\'b'`, [`EscapeString e'a\\'b'`, `EscapeString E'\\\\'`, `EscapeString E'a'\n'\\'b'`].slice(0, 3)],
    [
      `b'01' X'1F' N'a' U&'b' uescape '!'`,
      [`BitString b'01'`, `BitString X'1F'`, 'Word N', `String 'a'`, `UnicodeString U&'b' uescape '!'`],
    ],
    [`U&'a' uescapes U&'b' uescape`, [`UnicodeString U&'a'`, 'Word uescapes', `UnicodeString U&'b'`, 'Word uescape']],
    ['$$a$b$$ $t1$ $$ $T1$ $t1$', ['DollarString $$a$b$$', 'DollarString $t1$ $$ $T1$ $t1$']],
    ['a$$b$$ $1$2 $a', ['Word a$$b$$', 'Parameter $1', 'Parameter $2', 'Unknown $', 'Word a']],
    ['$ä$x$ä$ $1a$', ['DollarString $ä$x$ä$', 'Parameter $1', 'Word a$']],
    [
      '1 1.5 .5 1. 1e10 1.5E-3 2e+x 0x1F 1_000',
      'Number 1,Number 1.5,Number .5,Number 1.,Number 1e10,Number 1.5E-3,Number 2e,Operator +,Word x,Number 0x1F,Number 1_000'.split(','),
    ],
    ['1..10', ['Number 1', 'Operator ..', 'Number 10']],
    [
      'a.b[1:2]::int,(c);',
      'Word a|Punctuation .|Word b|Punctuation [|Number 1|Operator :|Number 2|Punctuation ]|Operator ::|Word int|Punctuation ,|Punctuation (|Word c|Punctuation )|Punctuation ;'.split(
        '|',
      ),
    ],
    ['a:=b=>c<>-1', 'Word a,Operator :=,Word b,Operator =>,Word c,Operator <>-,Number 1'.split(',')],
    ['a+--x\nb*/*y*/c', 'Word a,Operator +,Word b,Operator *,Word c'.split(',')],
    ['/* a /* b */ c */ d -- e', ['Word d']],
    ['-- a\rb', ['Word b']],
    ['a\\b{c}', ['Word a', 'Unknown \\', 'Word b', 'Unknown {', 'Word c', 'Unknown }']],
    [`a 'b`, ['Word a', `String 'b …`]],
    [`E'b\\`, [`EscapeString E'b\\ …`]],
    ['"a""', ['QuotedIdentifier "a"" …']],
    ['$a$ b $b$', ['DollarString $a$ b $b$ …']],
    ['a /* b', ['Word a']],
  ])('%j', (text, wanted) => expect(tokens(text)).toEqual(wanted));

  it('begins where it is told', () => expect(tokens(`'a b' c`, { offset: 5 })).toEqual(['Word c']));

  it('takes backslashes for escapes where standard_conforming_strings is off', () => {
    expect(tokens(`'a\\'b'`, { standardConformingStrings: false })).toEqual([`EscapeString 'a\\'b'`]);
    expect(contents(`'a\\'b'`, { standardConformingStrings: false })).toEqual([`a'b`]);
  });

  it('reads bytes that are no UTF-8 as letters', () => {
    expect(tokens(Buffer.from([0x61, 0xff, 0xc3, 0x20, 0xe9]).toString('latin1'))).toEqual(['Word a\xff\xc3', 'Word \xe9']);
  });
});

function texts(sql: string, standardConformingStrings = true): string[] {
  const lexer = new Lexer(sql, { standardConformingStrings });
  const read: string[] = [];
  while (lexer.next() !== Token.End) read.push(sql.slice(lexer.start, lexer.end));
  return read;
}

describe('the texts of tokens', () => {
  it.each<[string, string[]]>([
    ['select a,b from t', ['select', 'a', ',', 'b', 'from', 't']],
    ["'it''s'", ["'it''s'"]],
    ["'a\\' b", ["'a\\'", 'b']],
    ["E'a\\' b'", ["E'a\\' b'"]],
    ["e'\\\\' b", ["e'\\\\'", 'b']],
    ["E'a'\n  'b\\'c' d", ["E'a'\n  'b\\'c'", 'd']],
    ["'a' 'b'", ["'a'", "'b'"]],
    ["B'01' x'ff' N'n' U&'\\0041'", ["B'01'", "x'ff'", 'N', "'n'", "U&'\\0041'"]],
    ['"a""b;" U&"c"', ['"a""b;"', 'U&"c"']],
    ['$$a;b$$ c', ['$$a;b$$', 'c']],
    ['$x$ $y$ $$ $x$ c', ['$x$ $y$ $$ $x$', 'c']],
    ['a$b$c', ['a$b$c']],
    ['$1 $23', ['$1', '$23']],
    ['1.5e10 0x1F 1_000', ['1.5e10', '0x1F', '1_000']],
    ['a -- b\nc', ['a', 'c']],
    ['a --b\rc', ['a', 'c']],
    ['a /* b /* c */ d */ e', ['a', 'e']],
    ['a/*/ b */c', ['a', 'c']],
    ['a-->b', ['a']],
    ['a->>b', ['a', '->>', 'b']],
    ['1$$a$$ 1$2', ['1', '$$a$$', '1', '$2']],
    ['größe ünï', ['größe', 'ünï']],
    ['a\f\v\tb', ['a', 'b']],
  ])('%s', (sql, expected) => {
    expect(texts(sql)).toEqual(expected);
  });

  it('a backslash escapes in plain strings where standard_conforming_strings is off', () => {
    expect(texts("'a\\' b' c", false)).toEqual(["'a\\' b'", 'c']);
  });

  it.each(["'never closed", '"never', '$a$ never $b$', "E'\\"])('what is never closed reaches to the end: %s', (sql) => {
    expect(texts(sql)).toEqual([sql]);
  });

  it('a comment that is never closed hides the rest', () => {
    expect(texts('a /* b /* c */')).toEqual(['a']);
  });

  it('reads two million characters of string in no time', () => {
    const sql = `select '${'x'.repeat(2_000_000)}', E'${'\\n'.repeat(1_000_000)}'`;
    const before = process.cpuUsage();
    expect(texts(sql)).toHaveLength(4);
    const { user, system } = process.cpuUsage(before);
    expect((user + system) / sql.length).toBeLessThan(0.25);
  });
});

describe('contentOf', () => {
  it.each<[string, string[]]>([
    [`'' 'a' 'a''b' ''''`, ['', 'a', `a'b`, `'`]],
    [`"a" "a""b"`, ['a', 'a"b']],
    [`'a'\n'b''c'\n  'd'`, [`ab'cd`]],
    [`E'a\\'b\\\\\\n\\t\\x41\\101\\u0041\\U00000041\\q'`, [`a'b\\\n\tAAAAq`]],
    [`E'a'\n'\\x62'`, ['ab']],
    [`U&'\\0061\\+000062\\\\c' U&"!0061b" UESCAPE '!'`, ['ab\\c', 'ab']],
    [`E'\\u'`, ['u']],
    [`E'\\UFFFFFFFF'`, ['\u{fffd}']],
    [`$$a'b$$ $x$$$$x$`, [`a'b`, '$$']],
    [`'not terminated`, ['not terminated']],
    [`'a''`, [`a'`]],
    [`$$a`, ['a']],
  ])('%s', (text, wanted) => expect(contents(text)).toEqual(wanted));

  it('knows where each character is written', () => {
    const text = `E'a\\x62c'\n'd''e'`;
    const lexer = new Lexer(text);
    lexer.next();
    const content = contentOf(lexer);
    expect(content?.text).toBe(`abcd'e`);
    const places = Array.from({ length: 6 }, (_, index) => text.slice(content?.start(index), content?.end(index + 1)));
    expect(places).toEqual(['a', '\\x62', 'c', 'd', `''`, 'e']);
  });

  it('does not decode what would take long', () => {
    expect(contents(`'${`''`.repeat(200_000)}'`)).toEqual(['too large']);
    expect(contents(`'${'a'.repeat(400_000)}'`)[0]).toHaveLength(400_000);
  });
});

describe('withExplicitEscapes', () => {
  it.each([
    ["select 'a\\b', E'\\n', $$\\$$, \"\\\" -- '\\'", "select  E'a\\\\b', E'\\n', $$\\$$, \"\\\" -- '\\'"],
    ["select'\\'", "select E'\\\\'"],
    ["select N'\\n', n 'x'", "select nchar E'\\\\n', n 'x'"],
    ["select 'a'\n'\\'", "select  E'a'\n'\\\\'"],
    ['select 1', 'select 1'],
  ])('writes %j so that a backslash is a letter whatever the setting is', (text, explicit) => {
    expect(withExplicitEscapes(text, {})).toBe(explicit);
    expect(withExplicitEscapes(explicit, { standardConformingStrings: false })).toBe(explicit);
  });

  it.each([["select 'it\\'s', 'a'", "select  E'it\\'s', 'a'"]])('writes %j so that a backslash escapes', (text, explicit) => {
    expect(withExplicitEscapes(text, { standardConformingStrings: false })).toBe(explicit);
    expect(withExplicitEscapes(explicit, {})).toBe(explicit);
  });
});
