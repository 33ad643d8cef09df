import { Code, lowerCase } from '../../../syntax/characters.ts';
import { isString, Lexer, type LexerOptions, Token, type TokenKind } from '../../../syntax/scanner.ts';
import { skipWhitespace } from '../../../syntax/token-ends.ts';
import { type Content, contentOf } from '../tokens/content.ts';
import { isWordAt, type Keyword } from '../tokens/words.ts';
import type { Call } from './roles.ts';

/** A token that was read. */
export interface Span {
  kind: TokenKind;
  start: number;
  end: number;
}

/** A qualifier that might be the name of a relation: `public.id` after `FROM users AS public`. */
export interface Candidate {
  readonly edit: number;
  /** Offset behind the qualifier, in the scope's text. */
  readonly end: number;
}

/** Of a name that is longer than any that means something, the beginning is enough. */
const NAME_MAX = 256;

/** As tokens: so far behind the name of a column stands what it is compared with. */
const BEHIND_MENTION = 8;

const nothing = (): Span => ({ kind: Token.End, start: 0, end: 0 });

/** SQL being read, and what has to be remembered of it: the whole text, or what a literal in it says. */
export class Scope {
  readonly lexer: Lexer;
  readonly outer: Scope | undefined;
  /** Where the text of this scope is written in the outer one. */
  readonly content: Content | undefined;
  readonly depth: number;
  /** Nothing from here on can need an edit. */
  until: number;
  /** So many tokens are read from there on. */
  #left = BEHIND_MENTION;
  readonly calls: Call[] = [];
  /** The tokens before the current one, the nearest first; of kind End before the first of the text. */
  last = nothing();
  second = nothing();
  third = nothing();

  /** Offset of the current statement. */
  statement = 0;
  /** A list of schemas is being read. */
  list: 'schema' | 'path' | undefined;
  /** An item of the list was read: without a comma the list is at its end. */
  listed = false;
  /** Offset of the last SET that belongs to no UPDATE. */
  setting = -1;
  /** Number of open parentheses when EXECUTE was read, whose string is SQL; -1 elsewhere. */
  dynamic = -1;
  /** Between DECLARE and BEGIN of a function. */
  declaring = false;
  /** A rule is being made. */
  rule = false;
  /** `public` stood somewhere without qualifying anything: it may be the name of a relation. */
  bare = false;
  candidates: Candidate[] = [];
  readonly #options: LexerOptions;
  #language: string | undefined;
  /** UPDATE was read and its SET not yet. */
  #updating = false;

  constructor(text: string, until: number, options: LexerOptions, outer?: Scope, content?: Content) {
    this.lexer = new Lexer(text, options);
    this.until = until;
    this.outer = outer;
    this.content = content;
    this.depth = outer === undefined ? 0 : outer.depth + 1;
    this.#options = options;
  }

  /** Whether nothing from the current token on is to be read. */
  passesEnd(): boolean {
    const { kind, start } = this.lexer;
    if (kind === Token.End) return true;
    if (start < this.until) return false;
    this.#left -= 1;
    return this.#left < 0 || this.until === 0;
  }

  /** The current token becomes the last one. */
  advance(): void {
    const { lexer, third } = this;
    this.third = this.second;
    this.second = this.last;
    this.last = third;
    third.kind = lexer.kind;
    third.start = lexer.start;
    third.end = lexer.end;
  }

  /** At a semicolon. */
  beginStatement(): void {
    this.statement = this.lexer.end;
    // `DO ALSO (NOTIFY a; NOTIFY b)` is one statement.
    this.rule &&= this.calls.length > 0;
    this.calls.length = this.rule ? 1 : 0;
    this.dynamic = -1;
    this.bare = false;
    if (this.candidates.length > 0) this.candidates = [];
    this.#language = undefined;
    this.#updating = false;
  }

  /** The rest stays as it is. */
  giveUp(): void {
    this.until = 0;
  }

  /** The next token begins a list of schemas. */
  expect(list: 'schema' | 'path'): void {
    this.list = list;
    this.listed = false;
  }

  /** Remembers what a keyword changes about what follows. */
  note(keyword: Keyword): void {
    switch (keyword) {
      case 'update':
        this.#updating = this.nextCode() !== Code.Open && !this.isMark(this.last, Code.Dot);
        break;
      case 'set':
        this.setting = this.#updating ? -1 : this.lexer.start;
        this.#updating = false;
        break;
      case 'execute':
        this.dynamic = this.calls.length;
        break;
      case 'into':
      case 'using':
      case 'loop':
        if (this.calls.length <= this.dynamic) this.dynamic = -1;
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
        this.rule ||= this.isOneOf(this.last, ['create', 'replace']);
        break;
    }
  }

  /** The statement's LANGUAGE, whether it stands before the current token or behind it; '' where it has none. */
  language(): string {
    this.#language ??= this.#languageAhead();
    return this.#language;
  }

  #languageAhead(): string {
    const ahead = this.ahead();
    for (let tokens = 0; tokens < 32 && ahead.next() !== Token.End && !this.isMark(ahead, Code.Semicolon); tokens++) {
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

  /** Whether the token is that punctuation mark. */
  isMark(span: Span, code: number): boolean {
    return span.kind === Token.Punctuation && this.lexer.text.charCodeAt(span.start) === code;
  }

  /** The name that a token says, as the server knows it; '' for what is no plainly written identifier. */
  nameOf(span: Span): string {
    const { text } = this.lexer;
    const end = Math.min(span.end, span.start + NAME_MAX);
    if (span.kind === Token.Word) return lowerCase(text.slice(span.start, end));
    return span.kind === Token.QuotedIdentifier ? text.slice(span.start + 1, end - 1) : '';
  }

  /** Code of the first character behind the current token that is neither white space nor comment; NaN at the end. */
  nextCode(): number {
    const { text, end } = this.lexer;
    return text.charCodeAt(skipWhitespace(text, end));
  }

  /** A lexer of its own for what follows the current token. */
  ahead(): Lexer {
    const lexer = new Lexer(this.lexer.text, this.#options);
    lexer.moveTo(this.lexer.end);
    return lexer;
  }
}

/** The name behind LANGUAGE, also in the old spelling as a string. */
function languageAt(ahead: Lexer): string {
  return ahead.next() === Token.Word ? lowerCase(ahead.text.slice(ahead.start, ahead.end)) : quotedName(ahead);
}

function quotedName(lexer: Lexer): string {
  return isString(lexer.kind) || lexer.kind === Token.QuotedIdentifier ? (contentOf(lexer)?.text.toLowerCase() ?? '') : '';
}
