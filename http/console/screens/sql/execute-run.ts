import type { Signal } from '@preact/signals';
import { Lexer, Token } from '../../../../src/syntax/scanner.ts';
import { STATELESS_NAMES } from '../../../../src/syntax/side-effects.ts';
import { ApiError, call, callForResponse, callText, isAbort, linesOf, type Problem, unreachable } from '../../api/client.ts';
import { elementsOf, membersOf } from '../../api/raw-json.ts';
import { type EditorError, rangeAtPosition } from '../../editor/error-range.ts';
import { type GridColumn, ReceivedRows } from '../../grid/source.ts';
import {
  ANALYZE_PREFIX,
  bodyOf,
  type Call,
  type Completion,
  EXPLAIN_PREFIX,
  KEPT_ROWS_MAX,
  type Result,
  type Run,
  type RunRequest,
  type Settings,
  type Statement,
  settingsBody,
  statementBody,
  transactionBody,
} from './run-request.ts';

const PREFIXES = { run: '', explain: EXPLAIN_PREFIX, analyze: ANALYZE_PREFIX } as const;

interface RunOptions {
  /** Where the run is shown; another one there is given up. */
  readonly shown: Signal<Run | undefined>;
  /** The key may only read. */
  readonly isReader: boolean;
  readonly onEnd: (run: Run) => void;
}

/** Runs what is requested, and shows what comes of it. Errors are part of the run. */
export async function executeRun(request: RunRequest, { shown, isReader, onEnd }: RunOptions): Promise<void> {
  shown.peek()?.cancel();
  const canceled = new AbortController();
  let run: Run = {
    request,
    phase: 'running',
    startedAt: performance.now(),
    endedAt: undefined,
    results: [],
    plan: undefined,
    error: undefined,
    failedIndex: undefined,
    place: undefined,
    cancel: () => canceled.abort(),
  };
  const show = (change: Partial<Run>) => {
    run = { ...run, ...change };
    // What was started later has taken the place.
    if (shown.peek()?.cancel === run.cancel) shown.value = run;
  };
  shown.value = run;
  let end: Partial<Run>;
  try {
    end = { ...(await outcomeOf(request, canceled.signal, isReader, (result) => show({ results: [result] }))), phase: 'done' };
  } catch (error) {
    end = isAbort(error) ? { phase: 'canceled' } : { phase: 'failed', ...failureOf(error, request) };
  }
  show({ ...end, endedAt: performance.now() });
  onEnd(run);
}

async function outcomeOf(
  { kind, calls, ...settings }: RunRequest,
  signal: AbortSignal,
  isReader: boolean,
  onResult: (result: Result) => void,
): Promise<Partial<Run>> {
  const [first] = calls;
  if (first === undefined) return {};
  if (kind === 'explain') return { plan: await explain(first, settings, signal) };
  if (kind === 'analyze') return { plan: await analyze(first, settings, signal) };
  if (calls.length > 1) return { results: await runTransaction(calls, settings, signal) };
  await stream(first, settings, { signal, mayStop: isReader, onResult });
  return {};
}

function failureOf(error: unknown, { kind, text, calls }: RunRequest): Partial<Run> {
  const failedIndex = (error instanceof ApiError ? error.problem.statementIndex : undefined) ?? (calls.length === 1 ? 0 : undefined);
  const failed = failedIndex === undefined ? undefined : calls[failedIndex];
  return { error, failedIndex, place: failed && placeOf(error, text, failed.statement, PREFIXES[kind]) };
}

const BEFORE_ROW = '{"row":';
/** After the first rows, the page is drawn anew so often. */
const SHOW_EVERY_MS = 80;

interface Streaming {
  readonly signal: AbortSignal;
  /** Whether the statement may be stopped when there are more rows than are kept. */
  readonly mayStop: boolean;
  readonly onResult: (result: Result) => void;
}

/**
 * Runs one statement, and gives its rows as they come. What may write is not stopped: its changes would be lost.
 * @throws ApiError
 */
async function stream(call: Call, settings: Settings, { signal, mayStop, onResult }: Streaming): Promise<void> {
  const response = await callForResponse('POST', 'api/query', {
    body: bodyOf(call, settings),
    accept: 'application/x-ndjson',
    signal,
    isSafe: isSafe(call, settings),
  });
  const sheet = new Sheet();
  let completion: Completion | undefined;
  let stops: boolean | undefined;
  const show = () => {
    const { rows, received } = sheet;
    onResult({ call, rows, received, isCut: received > KEPT_ROWS_MAX, completion });
  };
  try {
    for await (const lines of linesOf(response)) {
      for (const line of lines) {
        if (line.startsWith(BEFORE_ROW)) {
          sheet.add(line.slice(BEFORE_ROW.length, -1));
        } else if (line !== '') {
          const { fields, complete, error } = documentIn(line);
          if (error !== undefined) throw new ApiError(error);
          if (complete !== undefined) completion = { warnings: [], ...complete };
          else sheet.open(fields ?? []);
        }
      }
      if (sheet.received > KEPT_ROWS_MAX) stops ??= mayStop || isSafe(call, settings);
      const isLast = completion !== undefined || stops === true;
      if (!sheet.flush(isLast)) continue;
      show();
      if (isLast) return;
    }
    throw brokenOff();
  } catch (error) {
    // The rows that came before it are shown.
    if (sheet.received > 0 && sheet.flush(true)) show();
    throw error;
  }
}

/** Nothing is changed twice when it runs again. */
function isSafe({ statement }: Call, { isReadOnly }: Settings): boolean {
  return isReadOnly || onlyReads(statement.text);
}

/** A line that is not one of a row. */
interface LineDocument {
  readonly fields?: readonly Field[];
  readonly complete?: Omit<Completion, 'warnings'>;
  readonly error?: Problem;
}

function documentIn(line: string): LineDocument {
  try {
    return JSON.parse(line);
  } catch {
    throw brokenOff();
  }
}

function brokenOff(): ApiError {
  return unreachable('the reply broke off before its end', false);
}

/** Rows that have come, shown from time to time. */
class Sheet {
  rows: ReceivedRows | undefined;
  received = 0;
  #next: string[] = [];
  #shownAt = Number.NEGATIVE_INFINITY;

  open(fields: readonly Field[]): void {
    if (fields.length > 0) this.rows = new ReceivedRows(columnsOf(fields));
  }

  add(row: string): void {
    this.received += 1;
    if (this.received <= KEPT_ROWS_MAX) this.#next.push(row);
  }

  /** @returns whether something is to be shown */
  flush(isLast: boolean): boolean {
    const now = performance.now();
    if (!isLast && now - this.#shownAt < SHOW_EVERY_MS) return false;
    // The columns appear before the first row.
    const isFirstRow = this.#next.length > 0 && this.rows?.rowCount === 0;
    this.#shownAt = isFirstRow || this.received > 0 ? now : Number.NEGATIVE_INFINITY;
    if (this.#next.length > 0) this.rows?.append(this.#next);
    this.#next = [];
    return true;
  }
}

/** Runs all statements in one transaction. @returns a result for each @throws ApiError with the index of the one that failed */
async function runTransaction(calls: readonly Call[], settings: Settings, signal: AbortSignal): Promise<readonly Result[]> {
  const text = await callText('POST', 'api/transaction', { body: transactionBody(calls, settings), signal, isSafe: settings.isReadOnly });
  const [start = 0, end = 0] = membersOf(text).get('results') ?? [];
  const results = elementsOf(text.slice(start, end));
  return calls.map((call, index) => resultOf(call, results[index] ?? '{}'));
}

function resultOf(call: Call, json: string): Result {
  const members = membersOf(json);
  const read = <T>(name: string, missing: T): T => {
    const place = members.get(name);
    return place === undefined ? missing : JSON.parse(json.slice(...place));
  };
  const fields = read<readonly Field[]>('fields', []);
  const [start = 0] = members.get('rows') ?? [];
  const texts = fields.length === 0 ? [] : elementsOf(json, start);
  const rows = fields.length === 0 ? undefined : new ReceivedRows(columnsOf(fields));
  rows?.append(texts);
  const completion: Completion = {
    command: read('command', ''),
    rowCount: read('rowCount', null),
    durationMs: read('durationMs', 0),
    warnings: read('warnings', []),
  };
  return { call, rows, received: texts.length, isCut: false, completion };
}

interface Rows {
  readonly rows: readonly (readonly unknown[])[];
}

/** The plan of a statement, which does not run. @throws ApiError */
async function explain(wanted: Call, settings: Settings, signal: AbortSignal): Promise<unknown> {
  const { rows } = await call<Rows>('POST', 'api/query', { body: bodyOf(wanted, settings, EXPLAIN_PREFIX), signal, isSafe: true });
  return rows[0]?.[0];
}

/** Runs the statement in a transaction that is rolled back. @throws ApiError */
async function analyze(wanted: Call, settings: Settings, signal: AbortSignal): Promise<unknown> {
  const body = { statements: [statementBody(wanted, ANALYZE_PREFIX)], rowMode: 'array', rollback: true, ...settingsBody(settings) };
  const { results } = await call<{ readonly results: readonly Rows[] }>('POST', 'api/transaction', { body, signal, isSafe: true });
  return results[0]?.rows[0]?.[0];
}

const READS = new Set(['SELECT', 'VALUES', 'TABLE', 'WITH', 'SHOW', '(']);
const WRITES = new Set(['INSERT', 'UPDATE', 'DELETE', 'MERGE', 'INTO']);
/** It leaves nothing in the session, but a notification that is lost when the statement is canceled. */
const NOTIFIES = 'pg_notify';

/**
 * Whether a statement only reads as far as its tokens show, so that nothing is lost when it is canceled before its end. A function that
 * is not known may write.
 */
export function onlyReads(statement: string): boolean {
  const lexer = new Lexer(statement);
  let previous = '';
  let isFirst = true;
  for (let kind = lexer.next(); kind !== Token.End; kind = lexer.next()) {
    const token = kind === Token.QuotedIdentifier || kind === Token.UnicodeIdentifier ? '"' : statement.slice(lexer.start, lexer.end);
    const upper = token.toUpperCase();
    if (isFirst && !READS.has(upper)) return false;
    if (kind === Token.Word && WRITES.has(upper)) return false;
    if (token === '(' && !mayPrecedeParenthesis(previous)) return false;
    previous = token;
    isFirst = false;
  }
  return !isFirst;
}

function mayPrecedeParenthesis(token: string): boolean {
  const name = token.toLowerCase();
  if (name === '"' || name === NOTIFIES) return false;
  return !/^[\w\u0080-\uffff]/.test(name) || STATELESS_NAMES.has(name);
}

/** A column as the API describes it. */
interface Field {
  readonly name: string;
  readonly dataType: string;
}

function columnsOf(fields: readonly Field[]): readonly GridColumn[] {
  return fields.map(({ name, dataType }) => ({ name, type: dataType }));
}

/**
 * Where in the editor's text an error is: the token at its position; where PostgreSQL gives none, nowhere.
 * @param text the editor's text when it was sent
 * @param prefix what was sent before the statement: `EXPLAIN …`
 */
export function placeOf(error: unknown, text: string, { start, text: statement }: Statement, prefix = ''): EditorError | undefined {
  const position = error instanceof ApiError ? error.problem.postgres?.position : undefined;
  if (!(error instanceof ApiError) || position === undefined) return undefined;
  const inStatement = Math.max(1, position - prefix.length);
  const { from, to } = rangeAtPosition(text, inStatement, start);
  const end = start + statement.length;
  // An error at the end of the statement is shown at its last character.
  const isInside = from < end;
  return { from: isInside ? from : end - 1, to: isInside ? Math.min(to, end) : end, message: error.message };
}
