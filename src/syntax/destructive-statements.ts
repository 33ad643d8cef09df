import { Lexer, type LexerOptions, Token } from './scanner.ts';
import { leadingKeywords } from './statements.ts';

/** Something in a statement that destroys data, or fails where there is data. */
export interface Destruction {
  readonly message: string;
  /** The offset in the statement, in UTF-16 units. */
  readonly offset: number;
}

interface SqlToken {
  /** Keywords and unquoted identifiers are in upper case. */
  readonly text: string;
  readonly start: number;
}

const MAY_HAVE_CONDITION = new Set(['DELETE', 'UPDATE', 'MERGE', 'WITH']);
/** Only this much of a longer statement is read. */
const TEXT_MAX_CHARACTERS = 65_536;
const SUSPECTS = new Set(['DROP', 'TRUNCATE', 'DELETE', 'UPDATE', 'ALTER', 'MERGE', 'WITH']);
/** How deeply queries with WITH are looked for in others. */
const WITH_DEPTH_MAX = 5;

/**
 * Finds what a person should check before the statement runs. The statement's own keywords are read, and those of queries in
 * WITH. The body of a DO block or of a function is not.
 */
export function findDestruction(statement: string, options: LexerOptions = {}): readonly Destruction[] {
  return findWithin(statement, options, 0);
}

function findWithin(statement: string, options: LexerOptions, depth: number): readonly Destruction[] {
  const [command = ''] = leadingKeywords(statement, 1);
  if (!SUSPECTS.has(command)) return [];
  const isLong = statement.length > TEXT_MAX_CHARACTERS;
  // The WHERE clause may follow the part that is read.
  if (isLong && MAY_HAVE_CONDITION.has(command)) return [];
  if (command === 'WITH') return depth === WITH_DEPTH_MAX ? [] : destructionsIn(statement, options, depth);
  const tokens = tokensOutsideParentheses(isLong ? statement.slice(0, TEXT_MAX_CHARACTERS) : statement, options);
  const first = tokens[0];
  switch (first?.text) {
    case 'DROP':
      return drop(tokens);
    case 'TRUNCATE':
      return [{ message: 'TRUNCATE deletes all rows', offset: first.start }];
    case 'DELETE':
      return has(tokens, 'WHERE') ? [] : [{ message: 'DELETE without WHERE deletes all rows', offset: first.start }];
    case 'UPDATE':
      return has(tokens, 'WHERE') ? [] : [{ message: 'UPDATE without WHERE changes all rows', offset: first.start }];
    case 'ALTER':
      return alterActions(tokens).flatMap(alteration);
    case 'MERGE':
      return mergeActions(tokens);
    default:
      return [];
  }
}

const QUERY_STARTS = new Set(['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'MERGE', 'VALUES', 'TABLE']);

/** Of the queries in the parentheses of WITH, and of the one behind them. */
function destructionsIn(statement: string, options: LexerOptions, depth: number): readonly Destruction[] {
  const found: Destruction[] = [];
  const add = (start: number, end: number) => {
    for (const { message, offset } of findWithin(statement.slice(start, end), options, depth + 1))
      found.push({ message, offset: start + offset });
  };
  const lexer = new Lexer(statement, options);
  let [level, opened, previous] = [0, -1, ''];
  while (lexer.next() !== Token.End) {
    const { kind, start, end } = lexer;
    const text = kind === Token.Word ? statement.slice(start, end).toUpperCase() : statement.slice(start, end);
    if (level === 0 && kind === Token.Word && previous === ')' && QUERY_STARTS.has(text)) {
      add(start, statement.length);
      break;
    }
    if (text === '(') {
      if (level === 0) opened = previous === 'AS' || previous === 'MATERIALIZED' ? end : -1;
      level += 1;
    } else if (text === ')') {
      level -= 1;
      if (level === 0 && opened >= 0) add(opened, start);
    }
    if (level === 0) previous = text;
  }
  return found;
}

/** Those for rows that the source does not have, if they have no condition. */
function mergeActions(tokens: readonly SqlToken[]): readonly Destruction[] {
  return tokens.flatMap(({ text, start }, at) => {
    const words = tokens.slice(at, at + 7).map((token) => token.text);
    if (text !== 'WHEN' || words.slice(0, 6).join(' ') !== 'WHEN NOT MATCHED BY SOURCE THEN') return [];
    const what = words[6] === 'DELETE' ? 'deletes' : words[6] === 'UPDATE' ? 'changes' : undefined;
    return what === undefined ? [] : [{ message: `MERGE ${what} all rows that the source does not have`, offset: start }];
  });
}

/** The tokens outside parentheses. */
function tokensOutsideParentheses(statement: string, options: LexerOptions): readonly SqlToken[] {
  const tokens: SqlToken[] = [];
  let depth = 0;
  const lexer = new Lexer(statement, options);
  while (lexer.next() !== Token.End) {
    const { kind, start, end } = lexer;
    const text = statement.slice(start, end);
    if (text === ')') depth -= 1;
    if (depth === 0) tokens.push({ text: kind === Token.Word ? text.toUpperCase() : text, start });
    if (text === '(') depth += 1;
  }
  return tokens;
}

function has(tokens: readonly SqlToken[], ...keywords: readonly string[]): boolean {
  return tokens.some(({ text }) => keywords.includes(text));
}

const DROPPED: ReadonlyMap<string, string> = new Map([
  ['TABLE', 'DROP TABLE deletes the table with all its rows'],
  ['SCHEMA', 'DROP SCHEMA deletes the schema'],
  ['DATABASE', 'DROP DATABASE deletes the database'],
  ['SEQUENCE', 'DROP SEQUENCE loses where the sequence stood'],
  ['MATERIALIZED', 'DROP MATERIALIZED VIEW deletes the rows it keeps'],
  ['OWNED', 'DROP OWNED deletes everything that the role owns'],
]);

function drop(tokens: readonly SqlToken[]): readonly Destruction[] {
  const offset = tokens[0]?.start ?? 0;
  const message = DROPPED.get(tokens[1]?.text ?? '');
  const cascade = tokens.find(({ text }) => text === 'CASCADE');
  return [
    ...(message === undefined ? [] : [{ message, offset }]),
    ...(cascade === undefined ? [] : [{ message: 'CASCADE also drops whatever depends on it', offset: cascade.start }]),
  ];
}

/** The comma-separated actions of ALTER TABLE and ALTER TYPE. */
function alterActions(tokens: readonly SqlToken[]): readonly (readonly SqlToken[])[] {
  const kind = tokens[1]?.text;
  if (kind !== 'TABLE' && kind !== 'TYPE') return [];
  const actions: SqlToken[][] = [[]];
  for (const token of tokens.slice(endOfName(tokens, 2))) {
    if (token.text === ',') actions.push([]);
    else actions.at(-1)?.push(token);
  }
  return actions;
}

/** The index after `IF EXISTS`, `ONLY`, the name with its qualifiers, and `*`. */
function endOfName(tokens: readonly SqlToken[], from: number): number {
  let at = from;
  while (['IF', 'EXISTS', 'ONLY'].includes(tokens[at]?.text ?? '')) at += 1;
  at += 1;
  while (tokens[at]?.text === '.') at += 2;
  return tokens[at]?.text === '*' ? at + 1 : at;
}

const NOT_COLUMNS = ['CONSTRAINT', 'CHECK', 'PRIMARY', 'UNIQUE', 'FOREIGN', 'EXCLUDE', 'TABLE', 'VALUE', 'ATTRIBUTE'];
const VALUE_SOURCES = ['DEFAULT', 'GENERATED', 'SERIAL', 'BIGSERIAL', 'SMALLSERIAL', 'SERIAL4', 'SERIAL8', 'SERIAL2'];

function alteration(action: readonly SqlToken[]): readonly Destruction[] {
  const [verb, object] = action;
  if (verb === undefined) return [];
  const warn = (message: string) => [{ message, offset: verb.start }];
  if (verb.text === 'DROP' && object?.text === 'ATTRIBUTE') return warn('DROP ATTRIBUTE deletes what is stored in it');
  if (verb.text === 'DROP' && object?.text !== 'CONSTRAINT') return warn('DROP COLUMN deletes the column with all its values');
  if (verb.text === 'ADD' && !NOT_COLUMNS.includes(object?.text ?? '') && isNotNull(action) && !has(action, ...VALUE_SOURCES)) {
    return warn('a column that is NOT NULL and has no default cannot be added to a table that has rows');
  }
  if (verb.text !== 'ALTER' || object?.text === 'CONSTRAINT') return [];
  const change = action.slice(object?.text === 'COLUMN' || object?.text === 'ATTRIBUTE' ? 3 : 2);
  if (change[0]?.text === 'TYPE' || change[2]?.text === 'TYPE')
    return warn('a change of type may lose values, and may rewrite the table while nobody can use it');
  if (change[0]?.text === 'SET' && change[1]?.text === 'EXPRESSION')
    return warn('SET EXPRESSION changes all values of the column, and rewrites the table while nobody can use it');
  if (change[0]?.text === 'SET' && isNotNull(change)) return warn('SET NOT NULL fails where a row has no value');
  return [];
}

function isNotNull(tokens: readonly SqlToken[]): boolean {
  return tokens.some(({ text }, index) => text === 'NOT' && tokens[index + 1]?.text === 'NULL');
}
