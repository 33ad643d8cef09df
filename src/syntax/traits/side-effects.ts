import { lowerCase } from '../characters.ts';
import { isIdentifier, isQuotedIdentifier, Lexer, Token, type TokenKind } from '../scanner.ts';
import { LEAVES_NOTHING } from './harmless-functions.ts';
import { changesDefaults, endsWithTransaction, type LeavesState, setsLocally, updatesSettings } from './session-state.ts';

/** What a statement may do to its session beyond its transaction. */
export interface SideEffects {
  /** `no`: nothing that the next borrower of the session could notice. */
  readonly leavesState: LeavesState;
  /** It asks what a sequence last gave to this session. */
  readonly readsSequences: boolean;
  /** It changes what new sessions start with. */
  readonly changesDefaults: boolean;
  /** It reads or writes rows, and may be run again if it fails: nothing of it has happened then. */
  readonly isPlain: boolean;
}

const PLAIN = new Set(['select', 'insert', 'update', 'delete', 'merge', 'with', 'values', 'table']);
const HARMLESS = new Set(['explain', 'show', 'lock', 'savepoint', 'release', 'rollback', 'notify']);
const TEMPORARY = /^(?:temp|temporary|pg_temp.*)$/;
/** With escapes (`U&"pg\005ftemp"`) a name may be any. */
const QUOTED_TEMPORARY = /^(?:U&|"pg_temp)/i;
const SEQUENCE_READ = /currval|lastval|^U&/i;
const SEQUENCE_READ_ANYWHERE = /currval|lastval/i;

const BEFORE_TABLE = new Set(['into', 'as', 'with', 'recursive']);

/** In longer texts, and in those with more tokens, nothing is looked for. */
const TEXT_MAX_CHARACTERS = 65_536;
const TOKENS_MAX = 8_192;

const UNKNOWN: SideEffects = { leavesState: 'unknown', readsSequences: true, changesDefaults: false, isPlain: false };

/**
 * Tells by a statement's text whether its session has to be reset before somebody else gets it. When in doubt, yes: a
 * command or function that is not known to be harmless is a doubt. What triggers, views and operators call is not seen.
 */
export function sideEffectsOf(sql: string): SideEffects {
  if (sql.length > TEXT_MAX_CHARACTERS) return UNKNOWN;
  const parts = partsOf(sql);
  if (parts === undefined) return UNKNOWN;
  const isPlain = PLAIN.has(parts[0]?.text ?? '');
  const leavesState = leavesNothing(sql, parts) ? 'no' : 'unknown';
  return {
    isPlain,
    leavesState,
    changesDefaults: !isPlain && changesDefaults(sql),
    readsSequences: parts.some((part) => isSequenceRead(sql, part)) || (leavesState !== 'no' && SEQUENCE_READ_ANYWHERE.test(sql)),
  };
}

function leavesNothing(sql: string, parts: readonly Part[]): boolean {
  const [first, second] = parts;
  const command = first?.text ?? '';
  const isKnown =
    PLAIN.has(command) || HARMLESS.has(command) || (command === 'set' && second !== undefined && setsLocally(sql, first?.end ?? 0));
  // With `standard_conforming_strings` off, a string may end elsewhere.
  if (!isKnown || updatesSettings(sql) || sql.includes("\\'")) return false;
  return parts.every((part, at) => !isTemporary(sql, part) && isHarmless(sql, parts, at));
}

function isSequenceRead(sql: string, { kind, start, end }: Part): boolean {
  return isIdentifier(kind) && SEQUENCE_READ.test(sql.slice(start, end));
}

/** The side effects of statements that belong together; of all of them no more is read than of a single one. */
export class SideEffectsMemory {
  readonly #known = new Map<string, SideEffects>();
  #room = TEXT_MAX_CHARACTERS;

  of(sql: string): SideEffects {
    const known = this.#known.get(sql);
    if (known !== undefined) return known;
    this.#room -= sql.length;
    // Nor is it remembered: V8 tells long texts of one length apart by comparing them, each with all others.
    if (this.#room < 0) return UNKNOWN;
    const sideEffects = sideEffectsOf(sql);
    this.#known.set(sql, sideEffects);
    return sideEffects;
  }
}

interface Part {
  readonly kind: TokenKind;
  readonly start: number;
  readonly end: number;
  /** Of words in lower case, of operators and punctuation as they are; of everything else nothing. */
  readonly text: string;
}

/** @returns undefined for more than are looked at */
function partsOf(sql: string): readonly Part[] | undefined {
  const parts: Part[] = [];
  const lexer = new Lexer(sql);
  while (lexer.next() !== Token.End) {
    if (parts.length === TOKENS_MAX) return undefined;
    const { kind, start, end } = lexer;
    parts.push({ kind, start, end, text: textOf(sql, lexer) });
  }
  return parts;
}

function textOf(sql: string, { kind, start, end }: Lexer): string {
  if (kind === Token.Word) return lowerCase(sql.slice(start, end));
  return kind === Token.Operator || kind === Token.Punctuation ? sql.slice(start, end) : '';
}

/** Whether it says that something is temporary, or names the schema in which it then is. */
function isTemporary(sql: string, { kind, text, start, end }: Part): boolean {
  return isQuotedIdentifier(kind) ? QUOTED_TEMPORARY.test(sql.slice(start, end)) : TEMPORARY.test(text);
}

/** Whether a parenthesis that opens here calls nothing, or what is known to be harmless. */
function isHarmless(sql: string, parts: readonly Part[], at: number): boolean {
  const name = parts[at - 1];
  if (parts[at]?.text !== '(' || name === undefined || !isIdentifier(name.kind)) return true;
  const start = startOfName(parts, at - 1);
  const before = parts[start - 1]?.text;
  // A table with its columns: INSERT INTO t (…), … AS t (…), WITH t (…) AS …
  if (before !== undefined && BEFORE_TABLE.has(before)) return true;
  if (name.kind !== Token.Word) return false;
  if (name.text === 'set_config') return endsWithTransaction(sql, name.start);
  const isOurs = start === at - 1 || (start === at - 3 && parts[start]?.text === 'pg_catalog');
  return isOurs && LEAVES_NOTHING.has(name.text);
}

/** Where a name begins that may be qualified. */
function startOfName(parts: readonly Part[], end: number): number {
  let start = end;
  while (parts[start - 1]?.text === '.') start -= 2;
  return Math.max(0, start);
}
