import { Code } from '../characters.ts';
import { Lexer, Token } from '../scanner.ts';
import { isFollowed } from './session-state.ts';

/** What a text may change that the audit log tells of: objects and roles. */
export interface ObjectChanges {
  /** It speaks of objects or roles. */
  readonly isWatched: boolean;
  /** A table or view may be made from a query in it, which is told of as the query. */
  readonly makesFromQuery: boolean;
}

/** Words one of which stands in every text that may. */
const ANY_WORD = /\b(?:create|alter|drop|grant|revoke|reassign|truncate|comment|security|import|do|into)\b/i;
/** Those that are hardly ever anything else. */
const PLAIN_WORD = /\b(?:create|alter|drop|grant|revoke|reassign|truncate)\b/i;
/** Of others the tokens tell. */
const DOUBTFUL_WORD = /\b(?:comment|security|import)\b|\bdo\b(?!\s+(?:nothing|update)\b)/i;
const SELECT = /\bselect\b/i;
const INTO = /\binto\b/i;

/** @returns undefined for a text that changes nothing */
export function objectChanges(text: string): ObjectChanges | undefined {
  if (!ANY_WORD.test(text)) return undefined;
  const isPlain = PLAIN_WORD.test(text);
  if (!isPlain && !DOUBTFUL_WORD.test(text) && !isFollowed(text, SELECT, INTO)) return undefined;
  const { isWatched, makesFromQuery } = changesIn(text);
  return isPlain || isWatched ? { isWatched: true, makesFromQuery } : undefined;
}

/** As {@link objectChanges}, where no more is to be known than whether there are any. */
export function mayChangeObjects(text: string): boolean {
  if (!ANY_WORD.test(text)) return false;
  return PLAIN_WORD.test(text) || ((DOUBTFUL_WORD.test(text) || isFollowed(text, SELECT, INTO)) && changesIn(text).isWatched);
}

const WATCHED_PASSING = /\b(?:create|alter|drop|grant|revoke|reassign|truncate)\b|\bdo\b(?=\s*(?:\$|'|language\b))/i;

/** What a piece of a text may change that is not seen whole: its words are taken for what they may mean. */
export function objectChangesInPiece(piece: string): ObjectChanges {
  const makesFromQuery = ANY_WORD.test(piece);
  return { makesFromQuery, isWatched: makesFromQuery && WATCHED_PASSING.test(piece) };
}

/** So many are a few milliseconds' work. */
const TOKENS_MAX = 10_000;
const UNKNOWN = { isWatched: true, makesFromQuery: true };

/** What the tokens of a text tell of its statements. */
function changesIn(text: string): ObjectChanges {
  // With `standard_conforming_strings` off, a string may end elsewhere.
  if (text.includes("\\'")) return UNKNOWN;
  const statement = new StatementWords();
  const lexer = new Lexer(text);
  for (let count = 0; lexer.next() !== Token.End; count += 1) {
    if (count === TOKENS_MAX) return UNKNOWN;
    const { kind, start, end } = lexer;
    if (kind === Token.Word) statement.word(text.slice(start, end).toLowerCase());
    else statement.other(kind === Token.Punctuation ? text.charCodeAt(start) : 0);
  }
  return statement;
}

/** What the first word of a statement has to be followed by. */
const SECOND_WORDS: Readonly<Record<string, string>> = { comment: 'on', security: 'label', import: 'foreign' };

/** Follows the words of one statement after the other. */
class StatementWords implements ObjectChanges {
  isWatched = false;
  makesFromQuery = false;
  #first = '';
  #count = 0;
  #analyzes = false;
  /** Whether SELECT has come, for each level of parentheses: INTO behind it names a table, before it it is INSERT's or MERGE's. */
  #selects = [false];

  word(word: string): void {
    this.#count += 1;
    if (this.#count === 1) this.#begin(word);
    else if (this.#count === 2 && SECOND_WORDS[this.#first] === word) this.isWatched = true;
    if (word === 'select') this.#selects[this.#selects.length - 1] = true;
    else if (word === 'into' && this.#selects.at(-1) === true) this.#makes();
    else if (this.#first !== 'explain') return;
    else if (word === 'analyze' || word === 'analyse') this.#analyzes = true;
    else if (word === 'create') this.#makes();
  }

  /** @param mark its character; 0 for what is no punctuation */
  other(mark: number): void {
    if (mark === Code.Semicolon) this.#next();
    else if (mark === Code.Open) this.#selects.push(false);
    else if (mark === Code.Close && this.#selects.length > 1) this.#selects.pop();
    else if (mark !== Code.Close) this.#count += 1;
  }

  #begin(word: string): void {
    this.#first = word;
    if (word === 'do') this.isWatched = true;
    if (word === 'create') this.#makes();
  }

  /** EXPLAIN makes nothing unless it runs what it explains. */
  #makes(): void {
    if (this.#first === 'explain' && !this.#analyzes) return;
    this.isWatched = true;
    this.makesFromQuery = true;
  }

  #next(): void {
    this.#first = '';
    this.#count = 0;
    this.#analyzes = false;
    this.#selects = [false];
  }
}
