import { signal } from '@preact/signals';
import type { Destruction } from '../../../../src/syntax/destructive-statements.ts';
import { isIdentifier, Lexer, Token } from '../../../../src/syntax/scanner.ts';
import { eachStatement, leadingKeywords } from '../../../../src/syntax/statements.ts';
import type { EditorError } from '../../editor/error-range.ts';
import type { ReceivedRows } from '../../grid/source.ts';

/** How a request is made besides its text. */
export interface Settings {
  readonly isReadOnly: boolean;
  /** Milliseconds; undefined: as the server does by default. */
  readonly timeoutMs: number | undefined;
}

/** A statement with its parameters. */
export interface Call {
  readonly statement: Statement;
  readonly params: readonly Parameter[];
}

export type Kind = 'run' | 'explain' | 'analyze';

export interface RunRequest extends Settings {
  readonly kind: Kind;
  /** The editor's text; places are in it. */
  readonly text: string;
  /** Several run in one transaction. */
  readonly calls: readonly Call[];
}

/** A notice or warning of PostgreSQL's, or one about the reply. */
interface Warning {
  readonly severity: string;
  readonly code: string;
  readonly message: string;
  readonly detail?: string;
  readonly hint?: string;
  readonly where?: string;
}

export interface Completion {
  readonly command: string;
  readonly rowCount: number | null;
  readonly durationMs: number;
  readonly warnings: readonly Warning[];
}

/** What a statement has returned so far. */
export interface Result {
  readonly call: Call;
  readonly rows: ReceivedRows | undefined;
  /** Rows that came, also those that were not kept. */
  readonly received: number;
  /** Rows were left out: more than are kept. */
  readonly isCut: boolean;
  /** Undefined: it still runs, or was given up. */
  readonly completion: Completion | undefined;
}

export interface Run {
  readonly request: RunRequest;
  readonly phase: 'running' | 'done' | 'failed' | 'canceled';
  /** By `performance.now()`. */
  readonly startedAt: number;
  readonly endedAt: number | undefined;
  readonly results: readonly Result[];
  /** Of `explain` and `analyze`: what PostgreSQL has answered. */
  readonly plan: unknown;
  readonly error: unknown;
  /** Which of the statements has failed. */
  readonly failedIndex: number | undefined;
  readonly place: EditorError | undefined;
  readonly cancel: () => void;
}

/** More rows are not kept. */
export const KEPT_ROWS_MAX = 100_000;

/** As psql writes it: `INSERT 0 3`, `SELECT 12`, `CREATE TABLE`. */
export function commandTag({ command, rowCount }: Completion): string {
  if (rowCount === null) return command;
  return command === 'INSERT' ? `INSERT 0 ${rowCount}` : `${command} ${rowCount}`;
}

/** A statement, and where it stands in the editor's text. */
export interface Statement {
  /** Without its semicolon, and without comments before its first token. */
  readonly text: string;
  /** The offset of its first token, in UTF-16 units. */
  readonly start: number;
}

export function statementsIn(sql: string): readonly Statement[] {
  const statements: Statement[] = [];
  for (const statement of eachStatement(sql)) if (statement !== undefined) statements.push(statement);
  return statements;
}

/**
 * The statement at the cursor. Behind a semicolon this is the one that it ends, unless the next begins in the same line before the cursor.
 * Comments and empty lines belong to what follows them.
 */
export function statementAt(sql: string, offset: number): Statement | undefined {
  let before: Statement | undefined;
  for (const statement of eachStatement(sql)) {
    if (statement === undefined) continue;
    const { text, start } = statement;
    if (offset < start) return before !== undefined && isSameLine(sql, before.start + before.text.length, offset) ? before : statement;
    if (offset <= start + text.length) return statement;
    before = statement;
  }
  return before;
}

/** The statements of a part of the text, with their places in the whole. */
export function statementsBetween(sql: string, from: number, to: number): readonly Statement[] {
  return statementsIn(sql.slice(from, to)).map(({ text, start }) => ({ text, start: start + from }));
}

function isSameLine(sql: string, from: number, to: number): boolean {
  const lineEnd = sql.indexOf('\n', from);
  return lineEnd < 0 || lineEnd >= to;
}

/** The value of a parameter as text; null is NULL. */
export type Parameter = string | null;

/** How many fields are shown. A text with more parameters was not written by hand. */
const FIELDS_MAX = 100;
/** Longer texts are not looked through at every key. */
const READ_MAX_CHARACTERS = 200_000;

/** How many parameters a statement has: the highest of its `$1`, `$2`, … */
export function parameterCount(statement: string): number {
  if (hasOwnParameters(statement)) return 0;
  let count = 0;
  const lexer = new Lexer(statement);
  for (let kind = lexer.next(); kind !== Token.End; kind = lexer.next()) {
    if (kind === Token.Parameter) count = Math.max(count, Number(statement.slice(lexer.start + 1, lexer.end)));
  }
  return Math.min(count, FIELDS_MAX);
}

/** The most parameters that a statement of the text has. */
export function parameterCountIn(sql: string): number {
  // Most texts have none, and are not split for that.
  if (sql.length > READ_MAX_CHARACTERS || !/\$\d/.test(sql)) return 0;
  return Math.max(0, ...statementsIn(sql).map(({ text }) => parameterCount(text)));
}

/** The parameters to send with a statement. */
export function parametersFor(statement: string, values: readonly Parameter[]): readonly Parameter[] {
  return Array.from({ length: parameterCount(statement) }, (_, index) => values[index] ?? null);
}

/** In these, `$1` is a parameter of the function or of the prepared statement. */
function hasOwnParameters(statement: string): boolean {
  const words = leadingKeywords(statement, 4);
  const object = words[1] === 'OR' && words[2] === 'REPLACE' ? words[3] : words[1];
  return words[0] === 'PREPARE' || (words[0] === 'CREATE' && (object === 'FUNCTION' || object === 'PROCEDURE'));
}

export const EXPLAIN_PREFIX = 'EXPLAIN (FORMAT JSON) ';
export const ANALYZE_PREFIX = 'EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) ';

interface Explained {
  /** What is explained; of any other statement, the statement itself. */
  readonly statement: Statement;
  /** Whether it runs as the text stands. */
  readonly runs: boolean;
}

/** The statement behind `EXPLAIN`, `EXPLAIN ANALYZE VERBOSE`, `EXPLAIN (…)`. */
export function withoutExplain({ text, start }: Statement): Explained {
  const lexer = new Lexer(text);
  const word = () => text.slice(lexer.start, lexer.end).toUpperCase();
  lexer.next();
  if (word() !== 'EXPLAIN') return { statement: { text, start }, runs: true };
  let runs = false;
  let depth = 0;
  while (lexer.next() !== Token.End) {
    const here = word();
    if (here === 'ANALYZE' || here === 'ANALYSE') runs = true;
    else if (here === '(') depth += 1;
    else if (here === ')') depth -= 1;
    else if (depth === 0 && here !== 'VERBOSE') break;
    // `EXPLAIN (…) (SELECT …)`: the second parenthesis begins the statement.
    if (here === ')' && depth === 0) {
      lexer.next();
      break;
    }
  }
  return { statement: { text: text.slice(lexer.start), start: start + lexer.start }, runs };
}

/** Something that waits for somebody to confirm it. */
export interface PendingConfirmation {
  readonly destructions: readonly { readonly statement: Statement; readonly found: readonly Destruction[] }[];
  readonly confirm: () => void;
}

export const pendingConfirmation = signal<PendingConfirmation | undefined>(undefined);

/** The body of `POST /api/query`. */
export function bodyOf({ statement, params }: Call, settings: Settings, prefix = ''): object {
  return { ...statementBody({ statement, params }, prefix), rowMode: 'array', ...settingsBody(settings) };
}

/** The body of `POST /api/transaction`. */
export function transactionBody(calls: readonly Call[], settings: Settings): object {
  return { statements: calls.map((call) => statementBody(call)), rowMode: 'array', ...settingsBody(settings) };
}

export function statementBody({ statement, params }: Call, prefix = ''): object {
  return { sql: prefix + statement.text, ...(params.length === 0 ? {} : { params }) };
}

export function settingsBody({ isReadOnly, timeoutMs }: Settings): object {
  return { ...(isReadOnly ? { readOnly: true } : {}), ...(timeoutMs === undefined ? {} : { timeoutMs }) };
}

const UNKNOWN = 'table_name';

/** The first table of FROM as it is written, for INSERT statements made from the result. */
export function insertTableOf(statement: string): string {
  const lexer = new Lexer(statement);
  let depth = 0;
  for (let kind = lexer.next(); kind !== Token.End; kind = lexer.next()) {
    const text = statement.slice(lexer.start, lexer.end);
    if (text === '(') depth += 1;
    else if (text === ')') depth -= 1;
    else if (depth === 0 && kind === Token.Word && ['FROM', 'TABLE', 'INTO', 'UPDATE'].includes(text.toUpperCase()))
      return nameAfter(lexer) ?? UNKNOWN;
  }
  return UNKNOWN;
}

function nameAfter(lexer: Lexer): string | undefined {
  const { text } = lexer;
  if (!isIdentifier(lexer.next())) return undefined;
  const { start } = lexer;
  let { end } = lexer;
  while (lexer.next() === Token.Punctuation && text[lexer.start] === '.' && isIdentifier(lexer.next())) end = lexer.end;
  // What is called like a function is none.
  return text[lexer.start] === '(' ? undefined : text.slice(start, end);
}
