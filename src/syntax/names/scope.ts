import { Code, lowerCase } from '../tokens/characters.ts';
import { type Content, contentOf } from '../tokens/quoted-content.ts';
import { isString, Lexer, type LexerOptions, Token, type TokenKind } from '../tokens/scanner.ts';
import { skipWhitespace } from '../tokens/whitespace-and-comments.ts';
import type { Call } from './functions-taking-names.ts';
import { isWordAt, type Keyword } from './keywords.ts';

/** A token. */
export interface Span {
  kind: TokenKind;
  start: number;
  end: number;
}

/** A qualifier that might be the name of a relation: `public.id` after `FROM users AS public`. */
export interface Candidate {
  readonly edit: number;
  /** Offset after the qualifier, in the scope's text. */
  readonly end: number;
}

/** All names that have a meaning here are shorter, so only the beginning of a longer one is compared. */
const NAME_MAX = 256;

/** In tokens: the literal with which a column is compared is at most this far after the column's name. */
const TOKENS_AFTER_MENTION = 8;

const noToken = (): Span => ({ kind: Token.End, start: 0, end: 0 });

/** SQL that is being read, with the state of reading it: the whole text, or the content of a literal in it. */
export class Scope {
  readonly lexer: Lexer;
  readonly outer: Scope | undefined;
  /** Maps offsets of this scope's text to the outer one. */
  readonly content: Content | undefined;
  readonly depth: number;
  /** Nothing from this offset on can need an edit. */
  until: number;
  /** The number of tokens that are still read after `until`. */
  #left = TOKENS_AFTER_MENTION;
  readonly calls: Call[] = [];
  /** The three tokens before the current one, the nearest first. Their kind is End if there is no such token. */
  last = noToken();
  second = noToken();
  third = noToken();

  /** Offset of the current statement. */
  statementStart = 0;
  /** The kind of list of schemas that is being read. */
  list: 'schema' | 'path' | undefined;
  /** The last token was an item of the list, so without a comma the list ends. */
  hasItem = false;
  /** Offset of the last SET that does not belong to an UPDATE. */
  setStart = -1;
  /** Number of open parentheses at EXECUTE, after which strings are SQL; -1 elsewhere. */
  executeDepth = -1;
  /** The current token is between DECLARE and BEGIN of a function. */
  declaring = false;
  /** The statement is CREATE RULE. */
  inRule = false;
  /** The statement contains a `public` that qualifies nothing, so it may be the name of a relation. */
  hasBarePublic = false;
  candidates: Candidate[] = [];
  /** How this scope is read. */
  readonly options: LexerOptions;
  /** The value of `standard_conforming_strings` that the statement's SET clause gives to the function that it creates. */
  #functionStrings: boolean | undefined;
  /** The value that an earlier statement has set: the whole text is read before it runs, but not the SQL in literals. */
  #laterStrings: boolean | undefined;
  #language: string | undefined;
  /** UPDATE was read, but not yet its SET. */
  #updating = false;

  constructor(text: string, until: number, options: LexerOptions, outer?: Scope, content?: Content) {
    this.lexer = new Lexer(text, options);
    this.until = until;
    this.outer = outer;
    this.content = content;
    this.depth = outer === undefined ? 0 : outer.depth + 1;
    this.options = options;
  }

  /** Whether the rest, from the current token on, need not be read. */
  passesEnd(): boolean {
    const { kind, start } = this.lexer;
    if (kind === Token.End) return true;
    if (start < this.until) return false;
    this.#left -= 1;
    return this.#left < 0 || this.until === 0;
  }

  /** Makes the current token the last one. */
  advance(): void {
    const { lexer, third } = this;
    this.third = this.second;
    this.second = this.last;
    this.last = third;
    third.kind = lexer.kind;
    third.start = lexer.start;
    third.end = lexer.end;
  }

  /** Begins a new statement after a semicolon. */
  beginStatement(): void {
    this.statementStart = this.lexer.end;
    // `DO ALSO (NOTIFY a; NOTIFY b)` is one statement.
    this.inRule &&= this.calls.length > 0;
    this.calls.length = this.inRule ? 1 : 0;
    this.executeDepth = -1;
    this.hasBarePublic = false;
    if (this.candidates.length > 0) this.candidates = [];
    this.#language = undefined;
    this.#functionStrings = undefined;
    this.#updating = false;
  }

  /** The statement sets `standard_conforming_strings`, for the function that it creates or for what runs after it. */
  setsStrings(value: boolean): void {
    const first = new Lexer(this.lexer.text, { ...this.options, offset: this.statementStart });
    first.next();
    if (this.isOneOf(first, ['create', 'alter'])) this.#functionStrings = value;
    else this.#laterStrings = value;
  }

  /** How the SQL in the current literal is read: when it runs, or when the function that it is the body of is made. */
  optionsOf(content: Content): LexerOptions {
    if (!content.text.includes('\\')) return this.options;
    const value = this.#functionStrings ?? this.#stringsAhead() ?? this.#laterStrings;
    return value === undefined ? this.options : { ...this.options, standardConformingStrings: value };
  }

  /** The value that a SET clause behind a function's body gives. */
  #stringsAhead(): boolean | undefined {
    const ahead = this.ahead();
    for (let tokens = 0; tokens < CLAUSES_MAX && ahead.next() !== Token.End && !this.isPunctuation(ahead, Code.Semicolon); tokens++) {
      if (!this.isWord(ahead, 'set')) continue;
      ahead.next();
      if (this.nameOf(ahead) === 'standard_conforming_strings') return stringsValueAt(ahead);
    }
    return undefined;
  }

  /** Leaves the rest of the text as it is. */
  giveUp(): void {
    this.until = 0;
  }

  /** Begins a list of schemas with the next token. */
  expect(list: 'schema' | 'path'): void {
    this.list = list;
    this.hasItem = false;
  }

  /** Remembers a keyword that changes the meaning of what follows. */
  note(keyword: Keyword): void {
    switch (keyword) {
      case 'update':
        this.#updating = this.nextCode() !== Code.Open && !this.isPunctuation(this.last, Code.Dot);
        break;
      case 'set':
        this.setStart = this.#updating ? -1 : this.lexer.start;
        this.#updating = false;
        break;
      case 'execute':
        this.executeDepth = this.calls.length;
        break;
      case 'into':
      case 'using':
      case 'loop':
        if (this.calls.length <= this.executeDepth) this.executeDepth = -1;
        break;
      case 'language':
        this.#language = languageAt(this.ahead());
        break;
      case 'declare':
        this.declaring = this.depth > 0;
        break;
      case 'begin':
        this.declaring = false;
        break;
      case 'rule':
        this.inRule ||= this.isOneOf(this.last, ['create', 'replace']);
        break;
    }
  }

  /** The statement's LANGUAGE, before or after the current token; '' if it has none. */
  language(): string {
    this.#language ??= this.#languageAhead();
    return this.#language;
  }

  #languageAhead(): string {
    const ahead = this.ahead();
    for (let tokens = 0; tokens < 32 && ahead.next() !== Token.End && !this.isPunctuation(ahead, Code.Semicolon); tokens++) {
      if (this.isWord(ahead, 'language')) return languageAt(ahead);
    }
    return '';
  }

  /** @param word in lower case */
  isWord(span: Span, word: string): boolean {
    return span.kind === Token.Word && isWordAt(this.lexer.text, span.start, span.end, word);
  }

  isOneOf(span: Span, words: readonly string[]): boolean {
    return span.kind === Token.Word && words.some((word) => isWordAt(this.lexer.text, span.start, span.end, word));
  }

  /** Whether the token is this punctuation character. */
  isPunctuation(span: Span, code: number): boolean {
    return span.kind === Token.Punctuation && this.lexer.text.charCodeAt(span.start) === code;
  }

  /** The name of an identifier, folded as the server folds it; '' for other tokens and for `U&"…"`. */
  nameOf(span: Span): string {
    const { text } = this.lexer;
    const end = Math.min(span.end, span.start + NAME_MAX);
    if (span.kind === Token.Word) return lowerCase(text.slice(span.start, end));
    return span.kind === Token.QuotedIdentifier ? text.slice(span.start + 1, end - 1) : '';
  }

  /** Code of the first character after the current token that is neither white space nor comment; NaN at the end. */
  nextCode(): number {
    const { text, end } = this.lexer;
    return text.charCodeAt(skipWhitespace(text, end));
  }

  /** A new lexer that begins after the current token. */
  ahead(): Lexer {
    const lexer = new Lexer(this.lexer.text, this.options);
    lexer.moveTo(this.lexer.end);
    return lexer;
  }
}

/** How many tokens behind a function's body are searched for its SET clauses. */
const CLAUSES_MAX = 64;

/** The value that is set, of a lexer at the name `standard_conforming_strings`; undefined for DEFAULT and FROM CURRENT. */
export function stringsValueAt(ahead: Lexer): boolean | undefined {
  ahead.next();
  if (ahead.text.charAt(ahead.start) !== '=' && ahead.text.slice(ahead.start, ahead.end).toLowerCase() !== 'to') return undefined;
  const kind = ahead.next();
  const value = isString(kind) || kind === Token.QuotedIdentifier ? contentOf(ahead)?.text : ahead.text.slice(ahead.start, ahead.end);
  return booleanSetting(value ?? '');
}

/**
 * The value of `standard_conforming_strings` after a statement.
 * @param start the value that RESET goes back to
 * @returns undefined for a statement other than SET and RESET, and for one that leaves the value as it is
 */
export function stringsAfter(statement: string, start: boolean): boolean | undefined {
  const lexer = new Lexer(statement);
  const word = () => (lexer.next() === Token.Word || lexer.kind === Token.QuotedIdentifier ? nameAt(lexer) : '');
  const command = word();
  if (command !== 'set' && command !== 'reset') return undefined;
  let name = word();
  if (command === 'reset') return name === 'all' || name === 'standard_conforming_strings' ? start : undefined;
  if (name === 'session' || name === 'local') name = word();
  if (name !== 'standard_conforming_strings') return undefined;
  const { end } = lexer;
  const value = stringsValueAt(lexer);
  return value ?? (/^\s*(?:=|to\s)\s*default\b/i.test(statement.slice(end)) ? start : undefined);
}

/** The name of an identifier, in lower case. */
function nameAt({ text, kind, start, end }: Lexer): string {
  return (kind === Token.QuotedIdentifier ? text.slice(start + 1, end - 1) : text.slice(start, end)).toLowerCase();
}

/** A setting's value, as the server reads it. @see https://www.postgresql.org/docs/current/config-setting.html#CONFIG-SETTING-NAMES-VALUES */
function booleanSetting(value: string): boolean | undefined {
  const word = value.trim().toLowerCase();
  if (word === '') return undefined;
  if (word === 'on' || word === '1' || 'true'.startsWith(word) || 'yes'.startsWith(word)) return true;
  return word === 'of' || word === 'off' || word === '0' || 'false'.startsWith(word) || 'no'.startsWith(word) ? false : undefined;
}

/** The name after LANGUAGE, which may also be a string. */
function languageAt(ahead: Lexer): string {
  return ahead.next() === Token.Word ? lowerCase(ahead.text.slice(ahead.start, ahead.end)) : quotedName(ahead);
}

function quotedName(lexer: Lexer): string {
  return isString(lexer.kind) || lexer.kind === Token.QuotedIdentifier ? (contentOf(lexer)?.text.toLowerCase() ?? '') : '';
}
