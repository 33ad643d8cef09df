import { isMisquotedPassword, redactSecrets } from './redaction.ts';
import { Code, isString, Lexer, Token, type TokenKind } from './scanner.ts';
import { eachStatement } from './statements.ts';

/**
 * The statements of a text with their constants taken out, one text for each that is not empty. Texts that differ only in constants, white
 * space between tokens, comments, and in the lengths of lists of constants or parameters are the same:
 *
 *     select * from t where id in (7, 8) and name = 'x' and at > $1
 *     select * from t where id in ($2 ...) and name = $3 and at > $1
 *
 * The places of columns in ORDER BY and GROUP BY stay. What stands for the dots in such a list is a comment, as in pg_stat_statements of PostgreSQL 18. API keys, and passwords in double quotes, are masked. What follows a literal
 * that would end elsewhere with the other standard_conforming_strings is left out.
 *
 * @param max how many statements are read
 */
export function normalizedStatements(sql: string, max = Number.POSITIVE_INFINITY): readonly string[] {
  return textsOf(sql.includes('\\') ? unambiguousPart(sql) : sql, max)
    .map((text) => redactSecrets(new Normalizer(text).text(), false))
    .filter((text) => text !== '');
}

/** Mostly there is one. */
function textsOf(sql: string, max: number): readonly string[] {
  const semicolon = sql.indexOf(';');
  if (semicolon < 0) return [sql];
  if (sql.slice(semicolon + 1, semicolon + END_CHARACTERS).trim() === '' && sql.length < semicolon + END_CHARACTERS) {
    return [sql.slice(0, semicolon)];
  }
  const texts: string[] = [];
  for (const statement of eachStatement(sql)) {
    if (statement !== undefined) texts.push(statement.text);
    if (texts.length === max) break;
  }
  return texts;
}

const END_CHARACTERS = 16;

function unambiguousPart(sql: string): string {
  const lexer = new Lexer(sql);
  while (lexer.next() !== Token.End) {
    const { kind, start, end } = lexer;
    if (kind !== Token.String || !sql.slice(start, end).includes('\\')) continue;
    const other = new Lexer(sql, { standardConformingStrings: false, offset: start });
    other.next();
    if (other.end !== end) return sql.slice(0, end);
  }
  return sql;
}

function isConstant(kind: TokenKind): boolean {
  return isString(kind) || kind === Token.BitString || kind === Token.Number;
}

/** In place of a constant. Larger numbers are those of parameters. */
const CONSTANT = 0;
const MORE = ' /*, ... */';
/** Constants that are words. They stay, but may stand in a list of constants. */
const CONSTANT_WORD = /^(?:null|true|false|default)$/i;

/** An opened parenthesis or bracket. */
interface Group {
  /** Where its first part is. */
  readonly start: number;
  readonly kind: 'in' | 'row' | 'other';
  /** There are only constants and parameters in it so far. */
  isList: boolean;
}

const NOWHERE = -1;
/** Numbers there are places of columns: with others the statement is another one. */
const POSITION = /^[1-9]\d{0,2}$/;
const BY = /^by$/i;
const SORTED = /^(?:order|group)$/i;
/** Before an item of such a list. */
const SORT_ITEM = /^(?:by|,)$/i;
const AFTER_SORTED = /^(?:having|limit|offset|fetch|for|window|union|except|intersect|rows|range|groups)$/i;

class Normalizer {
  readonly #sql: string;
  /** Tokens and the spaces between them; numbers are placeholders. */
  readonly #parts: (string | number)[] = [];
  readonly #groups: Group[] = [];
  /** Of the last row of constants after VALUES: where its parts begin and end, if only a comma has followed. */
  #rowEnd = -1;
  #hasMoreRows = false;
  /** How many groups the last list of ORDER BY or GROUP BY stands in. */
  #sortedAt = NOWHERE;
  /** Parameters have been left out, so that the others get other numbers. */
  #mustRenumber = false;

  constructor(sql: string) {
    this.#sql = sql;
  }

  text(): string {
    const lexer = new Lexer(this.#sql);
    let previous = '';
    for (let end = 0; lexer.next() !== Token.End; end = lexer.end) {
      if (lexer.start > end && end > 0) this.#parts.push(' ');
      const { kind } = lexer;
      if (isConstant(kind) || isMisquotedPassword(kind, previous)) {
        const number = kind === Token.Number ? this.#sql.slice(lexer.start, lexer.end) : '';
        if (this.#groups.length === this.#sortedAt && SORT_ITEM.test(previous) && POSITION.test(number)) {
          this.#parts.push(number);
          previous = number;
          continue;
        }
        if (kind === Token.Number) this.#dropSign(previous);
        this.#parts.push(CONSTANT);
        previous = '';
        continue;
      }
      const text = this.#sql.slice(lexer.start, lexer.end);
      if (kind === Token.Word) this.#sorts(text, previous);
      this.#token(kind, text, previous);
      previous = text;
    }
    while (this.#groups.length > 0) this.#cutGroup();
    return this.#joined();
  }

  /** Notes where a list of ORDER BY or GROUP BY begins, and where it ends. */
  #sorts(word: string, previous: string): void {
    if (BY.test(word) && SORTED.test(previous)) this.#sortedAt = this.#groups.length;
    else if (this.#groups.length === this.#sortedAt && AFTER_SORTED.test(word)) this.#sortedAt = NOWHERE;
  }

  #token(kind: TokenKind, text: string, previous: string): void {
    if (kind === Token.Parameter) this.#parts.push(Math.min(Number(text.slice(1)), PARAMETERS_MAX));
    else if (kind === Token.Punctuation) this.#punctuation(text, previous);
    else {
      const group = this.#groups.at(-1);
      const isSign = kind === Token.Operator && (text === '-' || text === '+');
      if (group !== undefined && !isSign && !(kind === Token.Word && CONSTANT_WORD.test(text))) group.isList = false;
      if (group?.kind !== 'row') this.#rowEnd = -1;
      this.#parts.push(text);
    }
  }

  /** A sign in front of a number belongs to it, unless it may be an operator between two values. */
  #dropSign(previous: string): void {
    if (previous !== '-' && previous !== '+') return;
    const parts = this.#parts;
    const sign = parts.length - 1;
    const before = parts[sign - 1] === ' ' ? parts[sign - 2] : parts[sign - 1];
    if (parts[sign] === previous && typeof before === 'string' && BEFORE_SIGN.test(before)) parts.pop();
  }

  #punctuation(text: string, previous: string): void {
    const mark = text.charCodeAt(0);
    if (mark === Code.Close || mark === Code.CloseBracket) {
      this.#close(text);
      return;
    }
    const parts = this.#parts;
    if (mark === Code.Open || mark === Code.OpenBracket) {
      const isRow = /^values$/i.test(previous) || (previous === ',' && this.#rowEnd >= 0);
      const group = this.#groups.at(-1);
      if (group !== undefined) group.isList = false;
      if (!isRow) this.#rowEnd = -1;
      const isIn = mark === Code.Open ? /^in$/i.test(previous) : /^array$/i.test(previous);
      parts.push(text);
      this.#groups.push({ start: parts.length, kind: isRow ? 'row' : isIn ? 'in' : 'other', isList: true });
      return;
    }
    if (mark !== Code.Comma) {
      this.#rowEnd = -1;
      const group = this.#groups.at(-1);
      if (group !== undefined) group.isList = false;
    }
    parts.push(text);
  }

  #close(text: string): void {
    const group = this.#groups.pop();
    if (this.#groups.length < this.#sortedAt) this.#sortedAt = NOWHERE;
    const parts = this.#parts;
    if (group?.isList === true && group.kind === 'in' && parts.length > group.start) this.#foldList(group.start);
    parts.push(text);
    if (group?.kind === 'row' && group.isList) this.#rowEnded();
    else this.#rowEnd = -1;
  }

  #foldList(start: number): void {
    const first = this.#parts.slice(start).find((part) => typeof part === 'number');
    if (first === undefined) return;
    this.#leaveOut(start);
    this.#parts.push(first, MORE);
  }

  /** Another row of constants is left out. */
  #rowEnded(): void {
    if (this.#rowEnd < 0) {
      this.#rowEnd = this.#parts.length;
      this.#hasMoreRows = false;
      return;
    }
    this.#leaveOut(this.#rowEnd);
    if (!this.#hasMoreRows) this.#parts.push(MORE);
    this.#hasMoreRows = true;
    this.#rowEnd = this.#parts.length;
  }

  /** The text is cut within a group. */
  #cutGroup(): void {
    const group = this.#groups.pop();
    if (group?.isList !== true) return;
    if (group.kind === 'in') this.#foldList(group.start);
    else if (group.kind === 'row' && this.#rowEnd >= 0) this.#rowEnded();
  }

  #leaveOut(start: number): void {
    const parts = this.#parts;
    for (let at = start; at < parts.length; at += 1) {
      const part = parts[at];
      if (typeof part === 'number' && part !== CONSTANT) this.#mustRenumber = true;
    }
    parts.length = start;
  }

  /** Constants get the numbers after those of parameters. */
  #joined(): string {
    const parameters = [...new Set(this.#parts.filter((part) => typeof part === 'number' && part !== CONSTANT))].map(Number);
    parameters.sort((a, b) => a - b);
    const numbers = new Map(this.#mustRenumber ? parameters.map((number, index) => [number, index + 1]) : []);
    let last = this.#mustRenumber ? parameters.length : (parameters.at(-1) ?? 0);
    let text = '';
    for (const part of this.#parts) {
      if (typeof part === 'string') text += part;
      else if (part === CONSTANT) text += `$${++last}`;
      else text += `$${numbers.get(part) ?? part}`;
    }
    return text;
  }
}

/** Of tokens after which a sign is a number's. */
const BEFORE_SIGN = /[=<>(,[*/%]$/;
/** As many as there can be in a statement. */
const PARAMETERS_MAX = 65_535;
