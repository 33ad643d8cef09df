import { leadingWords } from './leading-words.ts';
import { Lexer, type LexerOptions, Token } from './scanner.ts';

/** Something in a statement that destroys data, or fails where there is data. */
export interface Destruction {
  readonly message: string;
  /** Where it stands in the statement, in UTF-16 units. */
  readonly offset: number;
}

interface Part {
  /** In upper case, unless quoted. */
  readonly text: string;
  readonly start: number;
}

const MAY_HAVE_CONDITION = new Set(['DELETE', 'UPDATE']);
/** Of longer statements only the beginning is looked at. */
const TEXT_MAX_CHARACTERS = 65_536;
const SUSPECTS = new Set(['DROP', 'TRUNCATE', 'DELETE', 'UPDATE', 'ALTER']);

/**
 * Tells what a person should look at twice before it is run. It goes by the words of the statement alone: what a DO block or
 * a function does remains unseen.
 */
export function findDestruction(statement: string, options: LexerOptions = {}): readonly Destruction[] {
  const [command = ''] = leadingWords(statement, 1);
  if (!SUSPECTS.has(command)) return [];
  const isLong = statement.length > TEXT_MAX_CHARACTERS;
  // The condition may stand behind what is looked at.
  if (isLong && MAY_HAVE_CONDITION.has(command)) return [];
  const parts = outerParts(isLong ? statement.slice(0, TEXT_MAX_CHARACTERS) : statement, options);
  const first = parts[0];
  switch (first?.text) {
    case 'DROP':
      return drop(parts);
    case 'TRUNCATE':
      return [{ message: 'TRUNCATE deletes all rows', offset: first.start }];
    case 'DELETE':
      return has(parts, 'WHERE') ? [] : [{ message: 'DELETE without WHERE deletes all rows', offset: first.start }];
    case 'UPDATE':
      return has(parts, 'WHERE') ? [] : [{ message: 'UPDATE without WHERE changes all rows', offset: first.start }];
    case 'ALTER':
      return alterActions(parts).flatMap(alteration);
    default:
      return [];
  }
}

/** What stands outside parentheses. */
function outerParts(statement: string, options: LexerOptions): readonly Part[] {
  const parts: Part[] = [];
  let depth = 0;
  const lexer = new Lexer(statement, options);
  while (lexer.next() !== Token.End) {
    const { kind, start, end } = lexer;
    const text = statement.slice(start, end);
    if (text === ')') depth -= 1;
    if (depth === 0) parts.push({ text: kind === Token.Word ? text.toUpperCase() : text, start });
    if (text === '(') depth += 1;
  }
  return parts;
}

function has(parts: readonly Part[], ...words: readonly string[]): boolean {
  return parts.some(({ text }) => words.includes(text));
}

const DROPPED: ReadonlyMap<string, string> = new Map([
  ['TABLE', 'DROP TABLE deletes the table with all its rows'],
  ['SCHEMA', 'DROP SCHEMA deletes the schema'],
  ['DATABASE', 'DROP DATABASE deletes the database'],
  ['SEQUENCE', 'DROP SEQUENCE loses where the sequence stood'],
  ['MATERIALIZED', 'DROP MATERIALIZED VIEW deletes the rows it keeps'],
  ['OWNED', 'DROP OWNED deletes everything that the role owns'],
]);

function drop(parts: readonly Part[]): readonly Destruction[] {
  const offset = parts[0]?.start ?? 0;
  const message = DROPPED.get(parts[1]?.text ?? '');
  const cascade = parts.find(({ text }) => text === 'CASCADE');
  return [
    ...(message === undefined ? [] : [{ message, offset }]),
    ...(cascade === undefined ? [] : [{ message: 'CASCADE also drops whatever depends on it', offset: cascade.start }]),
  ];
}

/** The actions of ALTER TABLE and ALTER TYPE, which commas separate. */
function alterActions(parts: readonly Part[]): readonly (readonly Part[])[] {
  const kind = parts[1]?.text;
  if (kind !== 'TABLE' && kind !== 'TYPE') return [];
  const actions: Part[][] = [[]];
  for (const part of parts.slice(endOfName(parts, 2))) {
    if (part.text === ',') actions.push([]);
    else actions.at(-1)?.push(part);
  }
  return actions;
}

/** Behind `IF EXISTS`, `ONLY`, a name that may be qualified, and `*`. */
function endOfName(parts: readonly Part[], from: number): number {
  let at = from;
  while (['IF', 'EXISTS', 'ONLY'].includes(parts[at]?.text ?? '')) at += 1;
  at += 1;
  while (parts[at]?.text === '.') at += 2;
  return parts[at]?.text === '*' ? at + 1 : at;
}

const NO_COLUMNS = ['CONSTRAINT', 'CHECK', 'PRIMARY', 'UNIQUE', 'FOREIGN', 'EXCLUDE', 'TABLE', 'VALUE', 'ATTRIBUTE'];
const VALUE_SOURCES = ['DEFAULT', 'GENERATED', 'SERIAL', 'BIGSERIAL', 'SMALLSERIAL', 'SERIAL4', 'SERIAL8', 'SERIAL2'];

function alteration(action: readonly Part[]): readonly Destruction[] {
  const [verb, object] = action;
  if (verb === undefined) return [];
  const warn = (message: string) => [{ message, offset: verb.start }];
  if (verb.text === 'DROP' && object?.text === 'ATTRIBUTE') return warn('DROP ATTRIBUTE deletes what is stored in it');
  if (verb.text === 'DROP' && object?.text !== 'CONSTRAINT') return warn('DROP COLUMN deletes the column with all its values');
  if (verb.text === 'ADD' && !NO_COLUMNS.includes(object?.text ?? '') && isNotNull(action) && !has(action, ...VALUE_SOURCES)) {
    return warn('a column that is NOT NULL and has no default cannot be added to a table that has rows');
  }
  if (verb.text !== 'ALTER' || object?.text === 'CONSTRAINT') return [];
  const change = action.slice(object?.text === 'COLUMN' || object?.text === 'ATTRIBUTE' ? 3 : 2);
  if (change[0]?.text === 'TYPE' || change[2]?.text === 'TYPE')
    return warn('a change of type may lose values, and may rewrite the table while nobody can use it');
  if (change[0]?.text === 'SET' && isNotNull(change)) return warn('SET NOT NULL fails where a row has no value');
  return [];
}

function isNotNull(parts: readonly Part[]): boolean {
  return parts.some(({ text }, index) => text === 'NOT' && parts[index + 1]?.text === 'NULL');
}
