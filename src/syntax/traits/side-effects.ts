import { lowerCase } from '../tokens/characters.ts';
import { isIdentifier, isQuotedIdentifier, Lexer, Token, type TokenKind } from '../tokens/scanner.ts';
import { STATELESS_NAMES } from './harmless-functions.ts';
import { objectChanges } from './object-changes.ts';
import {
  type CustomOptions,
  changesDefaults,
  customOptions,
  endsWithTransaction,
  type LeavesState,
  NO_OPTIONS,
  setsLocally,
  UNNAMED_OPTIONS,
  updatesSettings,
  withOptions,
} from './session-state.ts';

/** What a statement may change in its session beyond its transaction. */
export interface SideEffects {
  /** `no`: the next user of the session can notice nothing. */
  readonly leavesState: LeavesState;
  /** The statement reads the last value that a sequence gave to this session (`currval`, `lastval`). */
  readonly readsSequences: boolean;
  /** The statement changes the settings with which new sessions start. */
  readonly changesDefaults: boolean;
  /** The statement creates a table or view from a query, of which its command tag (`SELECT`) says nothing. */
  readonly createsFromQuery: boolean;
  /** The statement only reads or writes rows. If it fails, it has had no effect, and may run again. */
  readonly isPlain: boolean;
  /** Customized options that may exist in the session afterwards, even if it is reset. */
  readonly customOptions: CustomOptions;
}

const PLAIN = new Set(['select', 'insert', 'update', 'delete', 'merge', 'with', 'values', 'table']);
const HARMLESS = new Set(['explain', 'show', 'lock', 'savepoint', 'release', 'rollback', 'notify']);
const TEMPORARY = /^(?:temp|temporary|pg_temp.*)$/;
/** A name with Unicode escapes (`U&"pg\005ftemp"`) may be any name. */
const QUOTED_TEMPORARY = /^(?:U&|"pg_temp)/i;
const SEQUENCE_READ = /currval|lastval|^U&/i;
const SEQUENCE_READ_ANYWHERE = /currval|lastval/i;

/** Keywords after which a name before a parenthesis is a table, not a function. */
const BEFORE_TABLE = new Set(['into', 'as', 'with', 'recursive']);

/** Longer texts, and those with more tokens, are not read: their side effects are unknown. */
const TEXT_MAX_CHARACTERS = 65_536;
const TOKENS_MAX = 8_192;

const UNKNOWN: SideEffects = {
  leavesState: 'unknown',
  readsSequences: true,
  changesDefaults: false,
  createsFromQuery: false,
  isPlain: false,
  customOptions: NO_OPTIONS,
};
const UNKNOWN_WITH_OPTIONS: SideEffects = { ...UNKNOWN, customOptions: new Set([UNNAMED_OPTIONS]) };

/** Those of a text that is not read. */
function unknownEffects(sql: string): SideEffects {
  return MAY_SET.test(sql) ? UNKNOWN_WITH_OPTIONS : UNKNOWN;
}

const MAY_SET = /^\s*(?:set|reset|do|call|alter|create)\b|\bset_config\b/i;

/**
 * Decides by a statement's text whether its session must be reset before another caller gets it. A command or function that is
 * not known to be harmless requires a reset. Functions that triggers, views and operators call are not seen.
 */
export function sideEffectsOf(sql: string): SideEffects {
  if (sql.length > TEXT_MAX_CHARACTERS) return unknownEffects(sql);
  const tokens = tokensOf(sql);
  if (tokens === undefined) return unknownEffects(sql);
  const createsFromQuery = objectChanges(sql)?.createsFromQuery === true;
  const isPlain = PLAIN.has(tokens[0]?.text ?? '') && !createsFromQuery;
  const leavesState = leavesNothing(sql, tokens) ? 'no' : 'unknown';
  return {
    isPlain,
    createsFromQuery,
    leavesState,
    changesDefaults: !isPlain && changesDefaults(sql),
    readsSequences: tokens.some((token) => isSequenceRead(sql, token)) || (leavesState !== 'no' && SEQUENCE_READ_ANYWHERE.test(sql)),
    customOptions: maySetOptions(sql, tokens) ? customOptions(sql) : NO_OPTIONS,
  };
}

const SETTING_COMMANDS = new Set(['set', 'reset', 'do', 'call', 'alter', 'create']);
const SET_CONFIG = /set_config|^U&/i;

function maySetOptions(sql: string, tokens: readonly SqlToken[]): boolean {
  if (SETTING_COMMANDS.has(tokens[0]?.text ?? '')) return true;
  return tokens.some(({ kind, start, end }) => isIdentifier(kind) && SET_CONFIG.test(sql.slice(start, end)));
}

const SETS_FIRST = /^\s*(?:set\s|select\s+(?:pg_catalog\s*\.\s*)?set_config\b)/i;

/**
 * The customized options that statements set before any of them can read one. It makes no difference to such statements whether the
 * options exist in the session already.
 */
export function optionsSetFirst(statements: Iterable<{ readonly sql: string }>): CustomOptions {
  let names = NO_OPTIONS;
  for (const { sql } of statements) {
    if (!SETS_FIRST.test(sql) || sql.length > TEXT_MAX_CHARACTERS) break;
    const tokens = tokensOf(sql);
    if (tokens === undefined || !onlySets(tokens)) break;
    names = withOptions(names, customOptions(sql));
  }
  return names;
}

const SELECT_WORDS = new Set(['select', 'pg_catalog', 'set_config', 'as', 'true', 'false', 'text', 'null']);

/** SET, or a SELECT that only calls `set_config`, with constants and parameters. */
function onlySets(tokens: readonly SqlToken[]): boolean {
  if (tokens[0]?.text === 'set') return true;
  return tokens.every(({ kind, text }, at) => {
    const before = tokens[at - 1]?.text;
    if (text === '(') return before === 'set_config';
    return !isIdentifier(kind) || SELECT_WORDS.has(text) || before === 'as';
  });
}

function leavesNothing(sql: string, tokens: readonly SqlToken[]): boolean {
  const [first, second] = tokens;
  const command = first?.text ?? '';
  const isKnown =
    PLAIN.has(command) || HARMLESS.has(command) || (command === 'set' && second !== undefined && setsLocally(sql, first?.end ?? 0));
  // With `standard_conforming_strings` off, a string may end elsewhere.
  if (!isKnown || updatesSettings(sql) || sql.includes("\\'")) return false;
  return tokens.every((token, at) => !isTemporary(sql, token) && isHarmless(sql, tokens, at));
}

function isSequenceRead(sql: string, { kind, start, end }: SqlToken): boolean {
  return isIdentifier(kind) && SEQUENCE_READ.test(sql.slice(start, end));
}

/** The side effects of the statements of one request. All of them together may have as many characters as a single statement. */
export class SideEffectsCache {
  readonly #known = new Map<string, SideEffects>();
  #charactersLeft = TEXT_MAX_CHARACTERS;

  of(sql: string): SideEffects {
    const known = this.#known.get(sql);
    if (known !== undefined) return known;
    this.#charactersLeft -= sql.length;
    // The text is not stored either: with many long keys of equal length, V8 has to compare each with all others.
    if (this.#charactersLeft < 0) return unknownEffects(sql);
    const sideEffects = sideEffectsOf(sql);
    this.#known.set(sql, sideEffects);
    return sideEffects;
  }
}

interface SqlToken {
  readonly kind: TokenKind;
  readonly start: number;
  readonly end: number;
  /** Keywords and unquoted identifiers in lower case; operators and punctuation as written; empty for all other tokens. */
  readonly text: string;
}

/** @returns undefined if there are more than {@link TOKENS_MAX} */
function tokensOf(sql: string): readonly SqlToken[] | undefined {
  const tokens: SqlToken[] = [];
  const lexer = new Lexer(sql);
  while (lexer.next() !== Token.End) {
    if (tokens.length === TOKENS_MAX) return undefined;
    const { kind, start, end } = lexer;
    tokens.push({ kind, start, end, text: textOf(sql, lexer) });
  }
  return tokens;
}

function textOf(sql: string, { kind, start, end }: Lexer): string {
  if (kind === Token.Word) return lowerCase(sql.slice(start, end));
  return kind === Token.Operator || kind === Token.Punctuation ? sql.slice(start, end) : '';
}

/** Whether the token is TEMPORARY or TEMP, or names the schema of temporary objects (`pg_temp`). */
function isTemporary(sql: string, { kind, text, start, end }: SqlToken): boolean {
  return isQuotedIdentifier(kind) ? QUOTED_TEMPORARY.test(sql.slice(start, end)) : TEMPORARY.test(text);
}

/** Whether the token opens no parenthesis of a call, or that of a call which is known to be harmless. */
function isHarmless(sql: string, tokens: readonly SqlToken[], at: number): boolean {
  const name = tokens[at - 1];
  if (tokens[at]?.text === '.') return !isFunctionalNotation(tokens, at);
  if (tokens[at]?.text !== '(' || name === undefined || !isIdentifier(name.kind)) return true;
  const start = startOfName(tokens, at - 1);
  const before = tokens[start - 1]?.text;
  // A table and its columns: INSERT INTO t (…), … AS t (…), WITH t (…) AS …
  if (before !== undefined && BEFORE_TABLE.has(before)) return true;
  if (name.kind !== Token.Word) return false;
  if (name.text === 'set_config') return endsWithTransaction(sql, name.start);
  const isBuiltIn = start === at - 1 || (start === at - 3 && tokens[start]?.text === 'pg_catalog');
  return isBuiltIn && STATELESS_NAMES.has(name.text);
}

/**
 * Whether the dot may call a function: `(x).f` is `f(x)` where `x` has no column `f`.
 * @see https://www.postgresql.org/docs/current/rowtypes.html#ROWTYPES-USAGE
 */
function isFunctionalNotation(tokens: readonly SqlToken[], dot: number): boolean {
  const [before, after] = [tokens[dot - 1], tokens[dot + 1]];
  return before !== undefined && !isIdentifier(before.kind) && after !== undefined && isIdentifier(after.kind);
}

/** The index at which a name begins, with its qualifiers. */
function startOfName(tokens: readonly SqlToken[], end: number): number {
  let start = end;
  while (tokens[start - 1]?.text === '.') start -= 2;
  return Math.max(0, start);
}
