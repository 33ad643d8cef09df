import { Code } from '../tokens/characters.ts';
import { Lexer, Token } from '../tokens/scanner.ts';
import { isFollowed } from './session-state.ts';

/** The changes of a text that the audit log records: those of objects and roles. */
export interface ObjectChanges {
  /** The text may change objects or roles. */
  readonly isWatched: boolean;
  /** The text may create a table or view from a query. The command tag is then that of the query. */
  readonly createsFromQuery: boolean;
}

/** Matches every text for which {@link objectChanges} finds anything, and few others. */
export const ANY_OBJECT_CHANGE = /\b(?:create|alter|drop|grant|revoke|reassign|truncate|comment|security|import|do|into)\b/i;
/** Keywords that hardly ever have another meaning. */
const CERTAIN_KEYWORD = /\b(?:create|alter|drop|grant|revoke|reassign|truncate)\b/i;
/** Keywords that often have another meaning: the tokens decide. */
const AMBIGUOUS_KEYWORD = /\b(?:comment|security|import)\b|\bdo\b(?!\s+(?:nothing|update)\b)/i;
const SELECT = /\bselect\b/i;
const INTO = /\binto\b/i;

/** @returns undefined for a text that changes nothing */
export function objectChanges(text: string): ObjectChanges | undefined {
  if (!ANY_OBJECT_CHANGE.test(text)) return undefined;
  const isCertain = CERTAIN_KEYWORD.test(text);
  if (!isCertain && !AMBIGUOUS_KEYWORD.test(text) && !isFollowed(text, SELECT, INTO)) return undefined;
  const { isWatched, createsFromQuery } = changesIn(text);
  return isCertain || isWatched ? { isWatched: true, createsFromQuery } : undefined;
}

/** Whether {@link objectChanges} finds anything. */
export function mayChangeObjects(text: string): boolean {
  if (!ANY_OBJECT_CHANGE.test(text)) return false;
  return CERTAIN_KEYWORD.test(text) || ((AMBIGUOUS_KEYWORD.test(text) || isFollowed(text, SELECT, INTO)) && changesIn(text).isWatched);
}

const PIECE_KEYWORD = /\b(?:create|alter|drop|grant|revoke|reassign|truncate)\b|\bdo\b(?=\s*(?:\$|'|language\b))/i;

/** Looks at one piece of a text that is not seen whole. Any keyword that may mean a change counts as one. */
export function objectChangesInPiece(piece: string): ObjectChanges {
  const createsFromQuery = ANY_OBJECT_CHANGE.test(piece);
  return { createsFromQuery, isWatched: createsFromQuery && PIECE_KEYWORD.test(piece) };
}

/** Reading this many takes a few milliseconds. */
const TOKENS_MAX = 10_000;
const UNKNOWN = { isWatched: true, createsFromQuery: true };

/** Reads the tokens of all statements in the text. */
function changesIn(text: string): ObjectChanges {
  // With `standard_conforming_strings` off, a string may end elsewhere.
  if (text.includes("\\'")) return UNKNOWN;
  const statement = new StatementReader();
  const lexer = new Lexer(text);
  for (let count = 0; lexer.next() !== Token.End; count += 1) {
    if (count === TOKENS_MAX) return UNKNOWN;
    const { kind, start, end } = lexer;
    if (kind === Token.Word) statement.word(text.slice(start, end).toLowerCase());
    else statement.other(kind === Token.Punctuation ? text.charCodeAt(start) : 0);
  }
  return statement;
}

/** The second keyword of statements for which the first one is not enough. */
const SECOND_KEYWORDS: Readonly<Record<string, string>> = { comment: 'on', security: 'label', import: 'foreign' };

/** Reads the keywords of one statement after the other. */
class StatementReader implements ObjectChanges {
  isWatched = false;
  createsFromQuery = false;
  #first = '';
  #count = 0;
  #analyzes = false;
  /** Whether SELECT was read, for each level of parentheses. INTO after SELECT creates a table; otherwise it belongs to INSERT or MERGE. */
  #selects = [false];

  word(word: string): void {
    this.#count += 1;
    if (this.#count === 1) this.#begin(word);
    else if (this.#count === 2 && SECOND_KEYWORDS[this.#first] === word) this.isWatched = true;
    if (word === 'select') this.#selects[this.#selects.length - 1] = true;
    else if (word === 'into' && this.#selects.at(-1) === true) this.#creates();
    else if (this.#first !== 'explain') return;
    else if (word === 'analyze' || word === 'analyse') this.#analyzes = true;
    else if (word === 'create') this.#creates();
  }

  /** Reads a token that is not a keyword or identifier. @param mark the character of a punctuation token, else 0 */
  other(mark: number): void {
    if (mark === Code.Semicolon) this.#next();
    else if (mark === Code.Open) this.#selects.push(false);
    else if (mark === Code.Close && this.#selects.length > 1) this.#selects.pop();
    else if (mark !== Code.Close) this.#count += 1;
  }

  #begin(word: string): void {
    this.#first = word;
    if (word === 'do') this.isWatched = true;
    if (word === 'create') this.#creates();
  }

  /** EXPLAIN creates nothing, except with ANALYZE, which runs the statement. */
  #creates(): void {
    if (this.#first === 'explain' && !this.#analyzes) return;
    this.isWatched = true;
    this.createsFromQuery = true;
  }

  #next(): void {
    this.#first = '';
    this.#count = 0;
    this.#analyzes = false;
    this.#selects = [false];
  }
}
