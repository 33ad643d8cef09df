import { EditList, type Edits } from './edits.ts';
import {
  Code,
  type Content,
  contentOf,
  identifierText,
  isIdentifier,
  isString,
  Lexer,
  type LexerOptions,
  lowerCase,
  skipWhitespace,
  Token,
  type TokenKind,
} from './scanner.ts';
import { eachStatement } from './statements.ts';

/** Function bodies and other SQL in literals are nested. More deeply nested SQL is not read. */
const DEPTH_MAX = 8;

/** The server's parser refuses parentheses that are nested more deeply, so such a text is never run. */
const NESTED_MAX = 10_000;

/** Keywords that are not a function's name before a parenthesis. */
const BEFORE_GROUPING = new Set(
  'select distinct where and or not on when then else case by having default check execute return'.split(' '),
);

/** Reads a text token by token, with the SQL in its literals, and tells its subclass what the names and literals mean. */
export abstract class SqlReader {
  #scope: Scope | undefined;

  /** @param until nothing from this offset on has to be read */
  protected constructor(text: string, until: number, options: LexerOptions) {
    this.#scope = new Scope(text, until, options);
  }

  protected abstract word(scope: Scope): void;
  protected abstract quotedIdentifier(scope: Scope): void;
  /** An identifier in a list of schemas. */
  protected abstract schemaName(scope: Scope): void;
  /** A literal, or a quoted identifier in a list of schemas. @param meaning undefined: it is data, as far as the context says */
  protected abstract literal(scope: Scope, meaning: LiteralMeaning | undefined): void;
  protected abstract parameter(scope: Scope): void;
  protected abstract endStatement(scope: Scope): void;

  /** Reads about `budget` more characters. @returns whether the whole text has been read */
  run(budget = Number.POSITIVE_INFINITY): boolean {
    for (let left = budget; left > 0 && this.#scope !== undefined; ) {
      const scope = this.#scope;
      const from = scope.lexer.end;
      this.#step(scope);
      left -= scope.lexer.end - from + 1;
    }
    return this.#scope === undefined;
  }

  /** Reads the SQL in a literal next, and after it what follows the literal. @param until negative: it need not be read */
  protected enter(scope: Scope, content: Content, until: number): void {
    if (until < 0 || scope.depth === DEPTH_MAX) return;
    this.#scope = new Scope(content.text, until, scope.optionsOf(content), scope, content);
  }

  /** At `search_path`. */
  protected searchPath(scope: Scope): void {
    const end = settingEnd(scope);
    if (end < 0) return;
    scope.lexer.moveTo(end);
    scope.expect('path');
  }

  /** At `standard_conforming_strings`. */
  protected strings(scope: Scope): void {
    const value = settingEnd(scope) < 0 ? undefined : stringsValueAt(scope.ahead());
    if (value !== undefined) scope.setsStrings(value);
  }

  #step(scope: Scope): void {
    const { lexer } = scope;
    const kind = lexer.next();
    if (scope.passesEnd()) {
      this.endStatement(scope);
      this.#scope = scope.outer;
      return;
    }
    if (scope.list === undefined || !this.#listItem(scope, kind)) this.#read(scope, kind);
    scope.advance();
  }

  #read(scope: Scope, kind: TokenKind): void {
    switch (kind) {
      case Token.Word:
        this.word(scope);
        break;
      case Token.QuotedIdentifier:
      case Token.UnicodeIdentifier:
        this.quotedIdentifier(scope);
        break;
      case Token.String:
      case Token.EscapeString:
      case Token.UnicodeString:
      case Token.DollarString:
        this.#literal(scope);
        break;
      case Token.Punctuation:
        this.#punctuation(scope);
        break;
      case Token.Parameter:
        this.parameter(scope);
        break;
    }
  }

  /** Reads a token at which a list of schemas may continue. @returns false if the list ended before it */
  #listItem(scope: Scope, kind: TokenKind): boolean {
    const { lexer } = scope;
    if (scope.isPunctuation(lexer, Code.Comma)) {
      scope.hasItem = false;
      return true;
    }
    if (scope.hasItem || !(isIdentifier(kind) || isString(kind))) {
      scope.list = undefined;
      return false;
    }
    if (scope.list === 'schema' && scope.isOneOf(lexer, ['if', 'not', 'exists', 'concurrently'])) return true;
    scope.hasItem = true;
    if (kind === Token.Word) this.schemaName(scope);
    else this.literal(scope, 'name');
    return true;
  }

  #literal(scope: Scope): void {
    this.literal(scope, meaningOfLiteral(scope));
    const call = scope.calls.at(-1);
    if (call?.meanings !== SET_CONFIG && call?.meanings !== PAIRS) return;
    const name = contentOf(scope.lexer)?.text;
    if (call.meanings === PAIRS && call.argument % 2 === 0 && name === 'schemaname') call.meanings = namedArgument(call.argument + 1);
    else if (call.meanings === SET_CONFIG && call.argument === 0 && name?.toLowerCase() === 'search_path') call.meanings = SET_SEARCH_PATH;
  }

  #punctuation(scope: Scope): void {
    if (scope.calls.length > NESTED_MAX) {
      scope.giveUp();
      return;
    }
    switch (scope.lexer.text.charCodeAt(scope.lexer.start)) {
      case Code.Open:
        this.#open(scope);
        break;
      case Code.OpenBracket:
        scope.calls.push(bracket(scope));
        return;
      case Code.Close:
        this.#close(scope);
        break;
      case Code.CloseBracket:
        scope.calls.pop();
        break;
      case Code.Comma:
        this.#comma(scope);
        break;
      case Code.Semicolon:
        this.endStatement(scope);
        scope.beginStatement();
    }
  }

  #open(scope: Scope): void {
    const { last } = scope;
    const name = scope.nameOf(last);
    const { row, rows } = rowsOf(scope);
    const meanings = row ?? (name === '' ? undefined : (listOfNames(scope) ?? argumentsOf(name)));
    const grouping = row === undefined && (name === '' || (last.kind === Token.Word && BEFORE_GROUPING.has(name)));
    scope.calls.push({ meanings, grouping, argument: 0, name, columns: undefined, rows });
  }

  #close(scope: Scope): void {
    noteColumn(scope);
    scope.closed = scope.calls.pop();
  }

  #comma(scope: Scope): void {
    const call = scope.calls.at(-1);
    if (call === undefined) return;
    noteColumn(scope);
    call.argument++;
  }
}

/** A token. */
interface Span {
  kind: TokenKind;
  start: number;
  end: number;
}

/** A qualifier that might be the name of a relation: `public.id` after `FROM users AS public`. */
interface Candidate {
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
  #readsCatalogs: boolean | undefined;
  #bareParameters: ReadonlyMap<string, number> | undefined;
  /** The number of tokens that are still read after `until`. */
  #left = TOKENS_AFTER_MENTION;
  readonly calls: Call[] = [];
  /** The parenthesis that was closed last. */
  closed: Call | undefined;
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

  /** Whether the text mentions the catalogs. */
  get readsCatalogs(): boolean {
    const { text } = this.lexer;
    this.#readsCatalogs ??= text.length <= TEXT_MAX_CHARACTERS && CATALOG.test(text);
    return this.#readsCatalogs;
  }

  /** How often the text has each parameter without a cast, or something that looks like one. */
  get bareParameters(): ReadonlyMap<string, number> {
    this.#bareParameters ??= countOf(this.lexer.text.match(BARE_PARAMETER) ?? []);
    return this.#bareParameters;
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

const BARE_PARAMETER = /\$\d+(?!\d|\s*::)/g;

function countOf(words: readonly string[]): ReadonlyMap<string, number> {
  const counts = new Map<string, number>();
  for (const word of words) counts.set(word, (counts.get(word) ?? 0) + 1);
  return counts;
}

/** How many tokens behind a function's body are searched for its SET clauses. */
const CLAUSES_MAX = 64;

/** The value that is set, of a lexer at the name `standard_conforming_strings`; undefined for DEFAULT and FROM CURRENT. */
function stringsValueAt(ahead: Lexer): boolean | undefined {
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

/** The meaning of the current string; undefined for data, as in most strings. */
function meaningOfLiteral(scope: Scope): LiteralMeaning | undefined {
  return meaningByWhatPrecedes(scope) ?? meaningByCall(scope) ?? meaningByCast(scope);
}

function meaningByWhatPrecedes(scope: Scope): LiteralMeaning | undefined {
  const { last, second, third } = scope;
  if (scope.executeDepth >= 0 && isExecuted(scope)) return 'sql';
  const compared = meaningByComparison(scope);
  if (compared !== undefined) return compared;
  if (last.kind !== Token.Word && last.kind !== Token.QuotedIdentifier) return undefined;
  if (scope.isWord(last, 'as')) return isCopyOption(scope) ? undefined : meaningOfBody(scope);
  if (scope.isWord(last, 'do') || (scope.isWord(second, 'language') && scope.isWord(third, 'do'))) return meaningOfBody(scope);
  return meaningOfType(scope.nameOf(last));
}

/** `DELIMITER AS ','`, as COPY was written before 9.0. */
function isCopyOption(scope: Scope): boolean {
  return scope.isOneOf(scope.second, ['delimiter', 'delimiters', 'null', 'quote', 'escape']);
}

/** The body of a function or of DO. It counts as data if its language is not SQL or PL/pgSQL. */
function meaningOfBody(scope: Scope): LiteralMeaning | undefined {
  const language = scope.language();
  return language === '' || language === 'sql' || language === 'plpgsql' ? 'sql' : undefined;
}

/** A literal inside more grouping parentheses than this counts as data. */
const GROUPS_MAX = 8;

/** Whether the string is part of `EXECUTE 'SELECT …' || x` or `EXECUTE format('SELECT …', x)`. Arguments of other functions are data. */
function isExecuted(scope: Scope): boolean {
  if (scope.calls.length - scope.executeDepth > GROUPS_MAX) return false;
  return scope.calls.slice(scope.executeDepth).every((call) => call.grouping || (call.meanings === FORMAT && call.argument === 0));
}

/** `nextval('public.s')`, also with parentheses that only group: `nextval(('public.s'::text)::regclass)`. */
function meaningByCall(scope: Scope): LiteralMeaning | undefined {
  const { calls } = scope;
  const highest = Math.max(calls.length - 1 - GROUPS_MAX, 0);
  let level = calls.length - 1;
  while (level > highest && calls[level]?.grouping) level--;
  const call = calls[level];
  if (call === undefined) return undefined;
  if (call.meanings === SCHEMAS) return 'name';
  if (call.meanings === DATABASES) return 'database';
  if (call.meanings === SCHEMA_ARRAY) return 'array';
  if (call.meanings === CONFIGURED) return call.argument === 0 && scope.nextCode() === Code.Comma ? 'sql' : undefined;
  return call.meanings?.[call.argument];
}

/** `'public.users'::regclass`, `CAST('public.users' AS regclass)`. */
function meaningByCast(scope: Scope): LiteralMeaning | undefined {
  const named = castsAfter(scope).find(({ name }) => !isTextType(name));
  return named === undefined ? undefined : meaningOfType(named.name);
}

interface Cast {
  /** The type, without `pg_catalog.`. */
  readonly name: string;
  /** `regclass[]` */
  readonly isArray: boolean;
}

const NO_CASTS: readonly Cast[] = [];

/** The types to which the current token is cast, one after the other; up to the first that is none of text. */
function castsAfter(scope: Scope): readonly Cast[] {
  const next = scope.nextCode();
  let level = scope.calls.length - 1;
  if (next !== Code.Colon && next !== Code.Close && scope.calls[level]?.meanings !== CAST) return NO_CASTS;
  const ahead = scope.ahead();
  const casts: Cast[] = [];
  for (let tokens = 0; tokens < 2 * GROUPS_MAX && ahead.next() !== Token.End; tokens++) {
    if (scope.isPunctuation(ahead, Code.Close) && scope.calls[level]?.grouping) level--;
    else if (isCast(ahead.text, ahead) || (scope.isWord(ahead, 'as') && scope.calls[level]?.meanings === CAST)) {
      const name = typeAt(ahead, scope);
      casts.push({ name, isArray: ahead.text.charCodeAt(skipWhitespace(ahead.text, ahead.end)) === Code.OpenBracket });
      if (!isTextType(name)) break;
    } else break;
  }
  return casts;
}

/** Whether the token is `::`. */
export function isCast(text: string, { kind, start }: Span): boolean {
  return kind === Token.Operator && text.startsWith('::', start);
}

/** The type after the lexer's token, without `pg_catalog.`. */
function typeAt(ahead: Lexer, scope: Scope): string {
  ahead.next();
  const type = scope.nameOf(ahead);
  if (type !== 'pg_catalog') return type;
  ahead.next();
  ahead.next();
  return scope.nameOf(ahead);
}

/** Columns of the catalogs and of information_schema that hold names of schemas. */
const SCHEMA_COLUMNS = new Set(
  `nspname schemaname schema_name table_schema view_schema constraint_schema unique_constraint_schema sequence_schema domain_schema
  routine_schema specific_schema trigger_schema event_object_schema udt_schema object_schema parameter_schema`.split(/\s+/),
);

/** Shows that a statement reads the catalogs. Otherwise a column of such a name may belong to one of the organization's tables. */
const CATALOG =
  /\binformation_schema\b|\bpg_(?:catalog|namespace|tables|views|matviews|indexes|sequences|policies|stats|stat_\w+|statio_\w+)\b/i;
/** Longer texts are not searched for the catalogs, nor for what their parameters name. */
const TEXT_MAX_CHARACTERS = 65_536;

/** Columns of information_schema that hold names of databases. */
const DATABASE_COLUMNS = new Set(
  `table_catalog catalog_name view_catalog constraint_catalog sequence_catalog domain_catalog routine_catalog specific_catalog
  trigger_catalog event_object_catalog udt_catalog object_catalog`.split(/\s+/),
);

/** Functions that give the name of the schema or database. Some need no parentheses. */
const NAMING = new Map<string, 'name' | 'database'>([
  ['current_schema', 'name'],
  ['current_database', 'database'],
  ['current_catalog', 'database'],
]);

const LESS = 0x3c;
const EXCLAMATION = 0x21;
const EQUALITIES = new Set(['=', '<>', '!=']);
const PATTERNS = new Set(['~~', '!~~', '~~*', '!~~*']);
const EXPRESSIONS = new Set(['~', '!~', '~*', '!~*']);
/** The pattern that psql sends for `\d public.users`. */
const PSQL_PATTERN = '^(public)$';

/** What the current literal is compared with: `nspname = 'public'`, `table_catalog = 'org_…'`, `'public' = nspname`. */
function meaningByComparison(scope: Scope): LiteralMeaning | undefined {
  const { last, second, third, lexer } = scope;
  if (last.kind === Token.Operator) {
    const operator = lexer.text.slice(last.start, last.end);
    if (EQUALITIES.has(operator)) return meaningOfOperand(scope, second) ?? meaningByOperandAfter(scope);
    if (PATTERNS.has(operator)) return meaningOfPattern(scope, second, 'like');
    return EXPRESSIONS.has(operator) ? meaningOfPattern(scope, second, 'expression') : undefined;
  }
  if (scope.isOneOf(last, ['like', 'ilike'])) return meaningOfPattern(scope, scope.isWord(second, 'not') ? third : second, 'like');
  if (scope.isPunctuation(last, Code.Close) && lexer.text.startsWith(PSQL_PATTERN, lexer.start + 1) && scope.readsCatalogs)
    return 'expression';
  return meaningByOperandAfter(scope);
}

/** `nspname`, `current_schema()`, `current_schema` */
function meaningOfOperand(scope: Scope, span: Span): 'name' | 'database' | undefined {
  const { third, closed } = scope;
  if (scope.isPunctuation(span, Code.Close)) return scope.isPunctuation(third, Code.Open) ? NAMING.get(closed?.name ?? '') : undefined;
  const naming = span.kind === Token.Word && !scope.isPunctuation(third, Code.Dot) ? NAMING.get(scope.nameOf(span)) : undefined;
  return naming ?? meaningOfColumn(scope, span);
}

function meaningOfPattern(scope: Scope, span: Span, meaning: 'like' | 'expression'): 'like' | 'expression' | undefined {
  return meaningOfColumn(scope, span) === 'name' ? meaning : undefined;
}

/** `'public' = n.nspname` */
function meaningByOperandAfter(scope: Scope): 'name' | 'database' | undefined {
  const next = scope.nextCode();
  if (next !== Code.Equals && next !== LESS && next !== EXCLAMATION) return undefined;
  const ahead = scope.ahead();
  if (ahead.next() !== Token.Operator || !EQUALITIES.has(ahead.text.slice(ahead.start, ahead.end))) return undefined;
  for (let parts = 0; parts < 3 && isIdentifier(ahead.next()); parts++) {
    const dot = skipWhitespace(ahead.text, ahead.end);
    if (ahead.text.charCodeAt(dot) !== Code.Dot) return NAMING.get(scope.nameOf(ahead)) ?? meaningOfColumn(scope, ahead);
    ahead.moveTo(dot + 1);
  }
  return undefined;
}

/** What the names in a column are of; undefined for other columns, and where the column may be of the organization's own table. */
function meaningOfColumn(scope: Scope, span: Span): 'name' | 'database' | undefined {
  if (!isIdentifier(span.kind)) return undefined;
  const name = scope.nameOf(span);
  if (name === 'datname') return 'database';
  if (SCHEMA_COLUMNS.has(name)) return scope.readsCatalogs ? 'name' : undefined;
  return DATABASE_COLUMNS.has(name) && scope.readsCatalogs ? 'database' : undefined;
}

/** The names that the current parenthesis encloses: `nspname IN ('public', 'other')`, `nspname = ANY ($1)`; undefined for others. */
function listOfNames(scope: Scope): Arguments | undefined {
  const { last, second, third } = scope;
  if (scope.isWord(last, 'in')) {
    const meaning = meaningOfColumn(scope, scope.isWord(second, 'not') ? third : second);
    if (meaning !== undefined) return meaning === 'name' ? SCHEMAS : DATABASES;
  }
  if (!scope.isOneOf(last, ['any', 'all', 'some']) || second.kind !== Token.Operator) return undefined;
  return meaningOfColumn(scope, third) === 'name' ? SCHEMA_ARRAY : undefined;
}

/** The bracket of `nspname = ANY (ARRAY['public'])`, or any other. */
function bracket(scope: Scope): Call {
  const isArray = scope.isWord(scope.last, 'array') && scope.calls.at(-1)?.meanings === SCHEMA_ARRAY;
  return { meanings: isArray ? SCHEMAS : undefined, grouping: false, argument: 0, name: '', columns: undefined, rows: undefined };
}

/** At a comma or a parenthesis that closes: notes for the row that the parenthesis encloses whether a column of names is before it. */
function noteColumn(scope: Scope): void {
  const call = scope.calls.at(-1);
  if (call === undefined || (call.name !== '' && call.name !== 'row' && !call.grouping) || call.argument > ROW_MAX) return;
  const meaning = meaningOfColumn(scope, scope.last);
  if (meaning === undefined) return;
  call.columns ??= [];
  call.columns[call.argument] = meaning;
}

/** A longer row is not compared with a row of names. */
const ROW_MAX = 16;

/**
 * What the current parenthesis encloses, if it stands beside a row of columns: `(table_schema, table_name) = ('public', 't')`.
 * `rows` is of a list of such rows, `IN (('public', 't'), …)`.
 */
function rowsOf(scope: Scope): { readonly row?: Arguments | undefined; readonly rows?: Arguments | undefined } {
  const outer = scope.calls.at(-1)?.rows;
  if (outer !== undefined) return { row: outer };
  const columns = scope.closed?.columns;
  if (columns === undefined) return {};
  let [last, second]: [Span, Span] = [scope.last, scope.second];
  if (scope.isWord(last, 'row')) [last, second] = [second, scope.third];
  else if (scope.isWord(last, 'in'))
    return scope.isPunctuation(scope.isWord(second, 'not') ? scope.third : second, Code.Close) ? { rows: columns } : {};
  const isCompared = last.kind === Token.Operator && EQUALITIES.has(scope.lexer.text.slice(last.start, last.end));
  return isCompared && scope.isPunctuation(second, Code.Close) ? { row: columns } : {};
}

/**
 * What the current parameter names, if it is compared with the name of a schema or database, or names something in SQL's syntax.
 * Only the statement itself has parameters of the client.
 */
export function meaningOfParameter(scope: Scope): ParameterMeaning | undefined {
  // What replaces a parameter is up to fifty times as long.
  if (scope.lexer.text.length > TEXT_MAX_CHARACTERS) return undefined;
  const call = scope.calls.at(-1);
  const types = castsAfter(scope);
  const [first] = types;
  if (call?.meanings === SCHEMA_ARRAY) return 'array';
  if (call?.meanings === SCHEMAS) return 'name';
  if (call?.meanings === DATABASES) return 'database';
  const compared = meaningByComparison(scope);
  if (compared !== undefined) return compared === 'database' ? 'database' : 'name';
  if (!isWhole(scope)) return undefined;
  const meaning = call?.meanings?.[call.argument];
  if (meaning === 'name' || meaning === 'database' || meaning === 'path') return meaning;
  const named = types.find(({ name }) => !isTextType(name));
  if (named === undefined) {
    if (meaning === 'schema') return 'schema';
    const kind = call !== undefined && meaning === 'sql' ? NAMED.get(call.meanings ?? []) : undefined;
    if (kind !== 'regclass') return kind;
    return first !== undefined ? 'text' : isNamedAgain(scope) ? undefined : kind;
  }
  if (named.name === 'regnamespace') return named.isArray ? undefined : 'schema';
  if (meaningOfType(named.name) !== 'sql') return undefined;
  if (named !== first) return named.isArray ? undefined : 'text';
  if (isNamedAgain(scope)) return undefined;
  if (named.isArray) return 'text[]';
  return named.name === 'regclass' ? 'regclass' : 'text';
}

/** Whether the current token is all that is cast, or a whole argument: not `'public.' || $1`. */
function isWhole(scope: Scope): boolean {
  const next = scope.nextCode();
  if (next === Code.Colon) return true;
  const { last } = scope;
  const begins = scope.isPunctuation(last, Code.Open) || scope.isPunctuation(last, Code.Comma);
  return begins && (next === Code.Comma || next === Code.Close || scope.calls.at(-1)?.meanings === CAST);
}

/** Whether the text has the same parameter elsewhere without a cast: then its type must stay. */
function isNamedAgain(scope: Scope): boolean {
  const { text, start, end } = scope.lexer;
  return (scope.bareParameters.get(text.slice(start, end)) ?? 0) > (scope.nextCode() === Code.Colon ? 0 : 1);
}

/**
 * An expression that replaces the current parameter and turns a name in its value that clients use into the one on the server. It has
 * the parameter's type, which follows from the comparison, or from a cast after the parameter; or the type text, where the server
 * would read the value as a name.
 */
export function parameterExpression(scope: Scope, meaning: ParameterMeaning, from: string, to: string): string {
  const { text, start, end } = scope.lexer;
  const parameter = text.slice(start, end);
  CAST_TO.lastIndex = end;
  const type = CAST_TO.exec(text)?.[1] ?? 'pg_catalog.name';
  const written = `${parameter}::pg_catalog.text`;
  switch (meaning) {
    case 'array':
      return `pg_catalog.array_replace(${parameter}::${type}[], '${from}', '${to}')`;
    case 'name':
    case 'database':
      return `(CASE WHEN ${parameter}::${type} OPERATOR(pg_catalog.=) '${from}' THEN '${to}' ELSE ${parameter}::${type} END)`;
    case 'schema':
      return `(CASE WHEN ${written} OPERATOR(pg_catalog.=) ANY (ARRAY['${from}', '"${from}"']) THEN '${to}' ELSE ${written} END)`;
    case 'path':
      return `pg_catalog.regexp_replace(${written}, '[[:<:]]${from}[[:>:]]', '${to}', 'g')`;
    case 'text':
      return qualified(written, to);
    case 'relation':
      return `(CASE WHEN ${isOid(written)} THEN ${written}::pg_catalog.oid::pg_catalog.regclass::pg_catalog.text ELSE ${qualified(written, to)} END)`;
    case 'regclass':
      return `(CASE WHEN ${isOid(written)} THEN ${written}::pg_catalog.oid::pg_catalog.regclass ELSE ${qualified(written, to)}::pg_catalog.regclass END)`;
    case 'text[]':
      return `ARRAY(SELECT ${qualified('given.name', to)} FROM pg_catalog.unnest(${written}[]) AS given (name))`;
  }
}

const isOid = (expression: string): string => `${expression} OPERATOR(pg_catalog.~) '^[0-9]+$'`;

/** Puts the schema in the place of each `public` before a dot, as the server reads names; `public.f(public.mood)` has two. */
const qualified = (expression: string, schema: string): string =>
  `pg_catalog.regexp_replace(${expression}, '(?<![^[:space:](,])("public"|[pP][uU][bB][lL][iI][cC])(?=[[:space:]]*[.])', '${schema}', 'g')`;

/** `::text`, `::text[]` */
const CAST_TO = /\s*::\s*(\w+)/y;

/** Columns and relations with names of roles. An organization's role is called as its schema. */
const NAMES_ROLES = /owner|grant|\brol|usename|\buser\b|_user\b|userbyid|_privileges\b/i;
/** Views that have a column of roles, which `*` reads. */
const WITH_ROLES = /\b(?:pg_tables|pg_views|pg_matviews|pg_sequences|schemata)\b/i;

/**
 * Whether a text is one query of the catalogs about the schema `public`, in whose answer names of the schema can be told from those of
 * roles.
 */
export function asksForPublic(text: string, options?: LexerOptions): boolean {
  return text.includes("'public'") && asksCatalogs(text, options);
}

/** As {@link asksForPublic}, if the schema is the value of one of the parameters. */
export function asksByParameter(text: string, options?: LexerOptions): boolean {
  return PARAMETER.test(text) && asksCatalogs(text, options);
}

const PARAMETER = /\$\d/;

function asksCatalogs(text: string, options: LexerOptions | undefined): boolean {
  if (text.length > TEXT_MAX_CHARACTERS) return false;
  if (!CATALOG.test(text) || NAMES_ROLES.test(text) || (text.includes('*') && WITH_ROLES.test(text))) return false;
  return isOneQuery(text, options);
}

const SEARCH_PATH = /'search_path'/i;
const READS_SETTINGS = /\b(?:current_setting|set_config|pg_settings)\b/i;

/** Whether a text is one query that reads, or sets and returns, the session's search_path. */
export function readsSearchPath(text: string, options?: LexerOptions): boolean {
  return text.length <= TEXT_MAX_CHARACTERS && SEARCH_PATH.test(text) && READS_SETTINGS.test(text) && isOneQuery(text, options);
}

function isOneQuery(text: string, options: LexerOptions | undefined): boolean {
  const statements = [...eachStatement(text, options)].filter((statement) => statement !== undefined);
  return statements.length === 1 && QUERY_BEGINS.test(text);
}

const QUERY_BEGINS = /^(?:\s|--[^\n]*\n)*(?:select|with)\b/i;

/** A subpattern `public` of a regular expression, an element of an array's literal. */
const WORD = /(?<!\w)public(?!\w)/g;
const ELEMENT = /public(?<=[{,]\s*"?public)(?="?\s*[,}])/g;

/** Where a literal names the schema `public`. @param meaning of the literal: of a name, names or a pattern */
export function publicIn(text: string, meaning: 'name' | 'like' | 'expression' | 'array'): [start: number, end: number][] {
  if (meaning === 'like') return isPatternOfPublic(text) ? [[0, text.length]] : [];
  if (meaning === 'name') return text === 'public' ? [[0, text.length]] : [];
  return [...text.matchAll(meaning === 'array' ? ELEMENT : WORD)].map(({ 0: { length }, index }) => [index, index + length]);
}

/** `pub%`. Patterns that other schemas match too stay as they are. */
function isPatternOfPublic(pattern: string): boolean {
  if (pattern === 'public') return true;
  if (pattern.length > PATTERN_MAX || !/^pub[lic%_]*$/.test(pattern)) return false;
  return new RegExp(`^${pattern.replaceAll('%', '.*').replaceAll('_', '.')}$`).test('public');
}

/** A longer pattern is not one of `public`. */
const PATTERN_MAX = 32;

/** Collects the edits of a text. Offsets are those of any scope in it, for example of a literal in a function body. */
export class NestedEdits {
  readonly #list: EditList;

  /** @param bytes whether the text is bytes, decoded as Latin-1 */
  constructor(text: string, bytes: boolean) {
    this.#list = new EditList(text, bytes);
  }

  /** In the order of the text, not overlapping. */
  get edits(): Edits {
    return this.#list;
  }

  /**
   * @param text must not contain backslashes; quotes in it are doubled once for each string that encloses the scope
   * @returns the edit's index
   */
  add(scope: Scope, start: number, end: number, text: string): number {
    const { outer, content } = scope;
    return outer === undefined || content === undefined
      ? this.#list.add(start, end, text)
      : this.addWithin(outer, content, start, end, text);
  }

  /** As {@link add}, with offsets in the content of a literal or quoted identifier of the scope. */
  addWithin(scope: Scope, content: Content, start: number, end: number, text: string): number {
    const from = content.start(start);
    return this.add(scope, from, start === end ? from : content.end(end), content.written(text));
  }

  remove(indexes: ReadonlySet<number>): void {
    this.#list.remove(indexes);
  }
}

/**
 * At PREPARE: the offset after `PREPARE TRANSACTION 'id'`; else -1. A prepared transaction would keep its locks when its session is gone,
 * and the server has no privilege for it.
 */
export function preparedTransactionEnd(scope: Scope): number {
  if (!beginsStatement(scope)) return -1;
  const ahead = scope.ahead();
  ahead.next();
  if (!scope.isWord(ahead, 'transaction') || !isString(ahead.next())) return -1;
  return ahead.end;
}

/** Keywords after which a statement can begin, in function bodies and in rules (`DO ALSO NOTIFY changed`). */
const BEFORE_STATEMENTS = ['begin', 'atomic', 'then', 'else', 'loop', 'do', 'also', 'instead'];

/** Keywords that cannot name a channel: in `CASE WHEN a THEN notify END`, notify is a column. */
const RESERVED = ['end', 'else', 'when', 'then', 'as', 'is', 'in', 'and', 'or', 'from', 'not', 'asc', 'desc'];

function beginsStatement(scope: Scope): boolean {
  const { last, second, declaring } = scope;
  if (declaring) return false;
  if (last.kind === Token.End || scope.isPunctuation(last, Code.Semicolon) || scope.isOneOf(last, BEFORE_STATEMENTS)) return true;
  return scope.isPunctuation(last, Code.Open) && scope.isOneOf(second, ['do', 'also', 'instead']);
}

/**
 * At LISTEN, UNLISTEN or NOTIFY: a lexer at the channel's name. Undefined if the token is an identifier
 * (`SELECT notify FROM users`), and for `UNLISTEN *`.
 */
export function channelNamed(scope: Scope): Lexer | undefined {
  if (!beginsStatement(scope)) return undefined;
  const channel = scope.ahead();
  if (!isIdentifier(channel.next()) || scope.isOneOf(channel, RESERVED)) return undefined;
  const behind = scope.ahead();
  behind.moveTo(channel.end);
  const ends = behind.next() === Token.End || [Code.Semicolon, Code.Comma, Code.Close].some((mark) => scope.isPunctuation(behind, mark));
  return ends ? channel : undefined;
}

/** Keywords before SCHEMA that mean that a schema's name follows. `FOREIGN` is not one: that schema is on another server. */
const BEFORE_SCHEMA = ['create', 'drop', 'alter', 'on', 'in', 'set', 'add', 'with', 'reindex'];

/** Whether names of schemas follow the current token, which is SCHEMA. */
export function introducesSchemas(scope: Scope): boolean {
  const { last, second } = scope;
  if (scope.isOneOf(last, BEFORE_SCHEMA) || scope.isPunctuation(last, Code.Close)) return true;
  if (scope.isOneOf(last, ['session', 'local'])) return scope.isWord(second, 'set');
  return scope.isOneOf(second, ['extension', 'exists', 'version']);
}

/** A statement that creates a schema which is there already. */
interface ExistingSchema {
  /** Offset after the statement. */
  readonly end: number;
  /** Whether it says IF NOT EXISTS. */
  readonly isSkipped: boolean;
}

/**
 * At the SCHEMA of `CREATE SCHEMA [IF NOT EXISTS] public [AUTHORIZATION role]`; undefined for other statements. The statement must be
 * replaced, because it needs the CREATE privilege on the database even if the schema exists, and no organization has that in this
 * placement.
 * @param schema another name of the schema
 */
export function existingSchema(scope: Scope, schema: string): ExistingSchema | undefined {
  if (!scope.isWord(scope.last, 'create')) return undefined;
  const ahead = scope.ahead();
  ahead.next();
  const isSkipped = scope.isWord(ahead, 'if');
  if (isSkipped) {
    for (const word of ['not', 'exists']) {
      ahead.next();
      if (!scope.isWord(ahead, word)) return undefined;
    }
    ahead.next();
  }
  if (!isIdentifier(ahead.kind) || !['public', schema].includes(identifierText(ahead))) return undefined;
  let { end } = ahead;
  ahead.next();
  if (scope.isWord(ahead, 'authorization')) {
    ahead.next();
    end = ahead.end;
    ahead.next();
  }
  return ahead.kind === Token.End || scope.isPunctuation(ahead, Code.Semicolon) ? { end, isSkipped } : undefined;
}

/** At `search_path` after SET: the offset after the `=` or TO that follows; -1 if this sets no setting. */
function settingEnd(scope: Scope): number {
  const set = scope.isOneOf(scope.last, ['session', 'local']) ? scope.second : scope.last;
  if (set.start !== scope.setStart || !scope.isWord(set, 'set')) return -1;
  const ahead = scope.ahead();
  ahead.next();
  const assigns = scope.isWord(ahead, 'to') || (ahead.kind === Token.Operator && ahead.text.slice(ahead.start, ahead.end) === '=');
  return assigns ? ahead.end : -1;
}

/**
 * What a string literal contains, if it is not data.
 * - `sql`: SQL, or a name in SQL's syntax (a function's body, `'public.users'` for regclass)
 * - `schema`: the name of one schema, in SQL's syntax
 * - `name`: the name of one schema, without quotes
 * - `path`: a list of schemas, as in the setting search_path
 * - `database`: the name of the database, without quotes
 * - `like`, `expression`: a pattern for names of schemas, of LIKE or as a regular expression
 * - `array`: names of schemas, as an array is written
 */
export type LiteralMeaning = 'sql' | 'schema' | 'name' | 'path' | 'database' | 'like' | 'expression' | 'array';

/**
 * What the value of a parameter is.
 * - `name`, `array`, `database`, `path`: as of a literal
 * - `schema`: the name of one schema, in SQL's syntax
 * - `text`: a name in SQL's syntax, for a function that takes text, or for a cast of text; `text[]` several
 * - `relation`: the same, or the oid of a relation
 * - `regclass`: the same, where the server takes a regclass
 */
export type ParameterMeaning = 'name' | 'array' | 'database' | 'path' | 'schema' | 'text' | 'text[]' | 'relation' | 'regclass';

/** The meanings of literals among a function's arguments, by position. */
type Arguments = readonly (LiteralMeaning | undefined)[];

/** A parenthesis or bracket that is open at the current token. */
interface Call {
  /** The meanings of literals in it; undefined for functions whose arguments are data. */
  meanings: Arguments | undefined;
  /** Whether the parenthesis only groups an expression. */
  readonly grouping: boolean;
  /** Index of the current argument. */
  argument: number;
  /** The function, or the word before the parenthesis; '' if there is none. */
  readonly name: string;
  /** What the columns in it name that end an argument, by argument, if it encloses a row. */
  columns: LiteralMeaning[] | undefined;
  /** What the rows in it name, if it encloses a list of rows. */
  readonly rows: Arguments | undefined;
}

/** `CAST('…' AS regclass)`: the type decides. */
const CAST: Arguments = [];
/** `set_config('search_path', …)`: the first argument decides about the second. */
const SET_CONFIG: Arguments = [];
const SET_SEARCH_PATH: Arguments = [undefined, 'path'];
/** `pg_restore_relation_stats('schemaname', 'public', …)`: an argument decides about the next. */
const PAIRS: Arguments = [];
/** `format('…')`: SQL inside EXECUTE, data elsewhere. */
const FORMAT: Arguments = [];
/** `nspname IN ('public', …)`: all literals are names of schemas. */
const SCHEMAS: Arguments = [];
/** `datname IN ('org_…', …)` */
const DATABASES: Arguments = [];
/** `nspname = ANY ($1)`: the parameter is an array of names. */
const SCHEMA_ARRAY: Arguments = [];
/** `to_tsvector('public.english', …)`: the first argument is a name if there is a second. */
const CONFIGURED: Arguments = [];

/** Functions that take a regclass. */
const RELATION: Arguments = ['sql'];
/** Functions that take the name of a relation as text, or its oid. */
const RELATION_BY_TEXT: Arguments = ['sql'];
/** Functions that take another name as text. */
const NAMED_BY_TEXT: Arguments = ['sql'];
/** Functions that take a query as text, or a name that stays in parameters. */
const QUERY: Arguments = ['sql'];
const RELATION_PRIVILEGE: Arguments = ['sql', 'sql'];
const PRIVILEGE: Arguments = ['sql', 'sql'];

/** What a parameter is among the arguments of such functions. */
const NAMED = new Map<Arguments, ParameterMeaning>([
  [RELATION, 'regclass'],
  [RELATION_BY_TEXT, 'relation'],
  [RELATION_PRIVILEGE, 'relation'],
  [NAMED_BY_TEXT, 'text'],
  [PRIVILEGE, 'text'],
]);

/** Functions of pg_catalog that take names as literals: as reg* types or as text. */
const FUNCTIONS = new Map<string, Arguments>([
  ['cast', CAST],
  ['set_config', SET_CONFIG],
  ['format', FORMAT],
  ...named(CONFIGURED, 'to_tsvector to_tsquery plainto_tsquery phraseto_tsquery websearch_to_tsquery'),
  ...named(RELATION, 'nextval currval setval pg_sequence_last_value'),
  ...named(RELATION_BY_TEXT, 'pg_get_viewdef row_security_active'),
  ...named(NAMED_BY_TEXT, 'to_regclass to_regtype to_regtypemod to_regproc to_regprocedure to_regoper to_regoperator to_regcollation'),
  ...named(NAMED_BY_TEXT, 'pg_get_serial_sequence'),
  ...named(RELATION, 'pg_relation_size pg_table_size pg_indexes_size pg_total_relation_size pg_relation_filepath pg_relation_filenode'),
  ...named(RELATION, 'pg_relation_is_updatable pg_column_is_updatable pg_relation_is_publishable pg_index_has_property'),
  ...named(RELATION, 'pg_index_column_has_property pg_get_replica_identity_index pg_partition_tree pg_partition_root'),
  ...named(RELATION, 'pg_partition_ancestors brin_summarize_new_values brin_summarize_range brin_desummarize_range'),
  ...named(RELATION, 'gin_clean_pending_list table_to_xml table_to_xmlschema table_to_xml_and_xmlschema'),
  ...named(QUERY, 'query_to_xml ts_stat ts_lexize ts_parse ts_token_type pg_basetype'),
  ...named(RELATION_PRIVILEGE, 'has_table_privilege has_column_privilege has_any_column_privilege has_sequence_privilege'),
  ...named(PRIVILEGE, 'has_function_privilege has_type_privilege'),
  ['tsvector_update_trigger', [undefined, 'sql']],
  ['has_schema_privilege', ['name', 'name']],
  ['to_regnamespace', ['schema']],
  ['pg_database_size', ['database']],
  ...named(PAIRS, 'pg_restore_relation_stats pg_restore_attribute_stats'),
  ...named(['name'], 'pg_clear_relation_stats pg_clear_attribute_stats'),
  ...named(['name'], 'schema_to_xml schema_to_xmlschema schema_to_xml_and_xmlschema'),
]);

/** The arguments of a function of which one is the name of a schema. */
function namedArgument(argument: number): Arguments {
  const meanings: LiteralMeaning[] = [];
  meanings[argument] = 'name';
  return meanings;
}

function named(meanings: Arguments, names: string): [string, Arguments][] {
  return names.split(' ').map((name) => [name, meanings]);
}

/** Types to which a literal with a name is cast: `'public.users'::regclass`. */
const TYPES = new Map<string, LiteralMeaning>([
  ['regclass', 'sql'],
  ['regtype', 'sql'],
  ['regproc', 'sql'],
  ['regprocedure', 'sql'],
  ['regoper', 'sql'],
  ['regoperator', 'sql'],
  ['regcollation', 'sql'],
  ['regconfig', 'sql'],
  ['regdictionary', 'sql'],
  ['regnamespace', 'schema'],
]);

/** @param name folded to lower case */
const argumentsOf = (name: string): Arguments | undefined => FUNCTIONS.get(name);
/** @param name folded to lower case */
const meaningOfType = (name: string): LiteralMeaning | undefined => TYPES.get(name);

/** Types to which a literal may be cast first: `('public.s'::text)::regclass`. */
const isTextType = (name: string): boolean => name === 'text' || name === 'varchar' || name === 'name';

/** Keywords and names at which the reader acts. All others matter only next to these, and of literals. */
const KEYWORDS = [
  'public',
  'schema',
  'search_path',
  'listen',
  'unlisten',
  'notify',
  'pg_notify',
  'prepare',
  'set',
  'update',
  'execute',
  'into',
  'using',
  'loop',
  'language',
  'declare',
  'begin',
  'rule',
  'standard_conforming_strings',
] as const;

type Keyword = (typeof KEYWORDS)[number];

const BY_TEXT = new Map<string, Keyword>(KEYWORDS.map((word) => [word, word]));

/** Bit n of an entry means that a keyword of n characters begins with that letter. Most identifiers then need no lookup in the map. */
const LENGTHS = new Uint32Array(128);
for (const word of KEYWORDS) {
  const letter = word.charCodeAt(0);
  LENGTHS[letter] = LENGTHS[letter & ~0x20] = (LENGTHS[letter] ?? 0) | (1 << word.length);
}

/** The keyword from `start` to `end`, in upper or lower case; undefined for other identifiers. */
export function keywordAt(text: string, start: number, end: number): Keyword | undefined {
  const length = end - start;
  if (length > 27 || (((LENGTHS[text.charCodeAt(start) & 0x7f] ?? 0) >> length) & 1) === 0) return undefined;
  return BY_TEXT.get(text.slice(start, end).toLowerCase());
}

/** Whether the token from `start` to `end` is that keyword. @param word in lower case */
function isWordAt(text: string, start: number, end: number, word: string): boolean {
  if (end - start !== word.length) return false;
  for (let at = 0; at < word.length; at++) {
    const code = text.charCodeAt(start + at);
    const wanted = word.charCodeAt(at);
    if (code !== wanted && (code >= 0x80 || (code | 0x20) !== wanted)) return false;
  }
  return true;
}
