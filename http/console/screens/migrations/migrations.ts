import { effect, type Signal, signal } from '@preact/signals';
import { findDestruction } from '../../../../src/syntax/destructive-statements.ts';
import { eachStatement } from '../../../../src/syntax/statements.ts';
import { ApiError, call, isAbort, type Problem } from '../../api/client.ts';
import { type EditorError, rangeAtPlace } from '../../editor/error-range.ts';
import { keepText, keptText } from '../../session/session.ts';

/** `GET /api/migrations` */
export interface Migration {
  readonly name: string;
  readonly status: 'applied' | 'failed' | 'rolled_back' | 'dry_run';
  readonly appliedAt: string;
  readonly checksum: string;
  readonly durationMs: number;
  readonly statementCount: number;
  readonly statementsApplied: number;
  readonly isReversible: boolean;
  readonly rolledBackAt: string | null;
}

export interface MigrationWarning {
  readonly severity: string;
  readonly code: string;
  readonly message: string;
  readonly line?: number;
}

/** `POST /api/migrations` */
interface MigrationReply {
  readonly migration: Migration;
  readonly alreadyApplied: boolean;
  readonly warnings: readonly MigrationWarning[];
}

export interface MigrationRequest {
  readonly name: string;
  readonly sql: string;
  readonly rollbackSql?: string;
  readonly dryRun: boolean;
  readonly transaction: boolean;
  readonly timeoutMs?: number;
}

/** The newest first. */
export async function listMigrations(signal: AbortSignal): Promise<readonly Migration[]> {
  const { migrations } = await call<{ readonly migrations: readonly Migration[] }>('GET', 'api/migrations', { signal });
  return migrations.toReversed();
}

function runMigration(body: MigrationRequest, signal: AbortSignal): Promise<MigrationReply> {
  return call('POST', 'api/migrations', { body, signal });
}

/** `POST /api/migrations/{name}/rollback` */
interface RollbackReply {
  readonly migration: Migration;
  readonly warnings: readonly MigrationWarning[];
}

/** @throws ApiError `migration_not_newest` unless `force` */
export function rollBack(name: string, options: { readonly dryRun: boolean; readonly force: boolean }): Promise<RollbackReply> {
  return call('POST', `api/migrations/${encodeURIComponent(name)}/rollback`, { body: options });
}

/** The SQL of a migration as the history has it. */
export interface MigrationSql {
  readonly sql: string;
  readonly rollbackSql: string | null;
  /** Of the longest of both texts, in characters; more than is here when they are cut. */
  readonly characters: number;
}

/** Longer texts are not shown whole. */
export const SHOWN_MAX_CHARACTERS = 200_000;

export async function sqlOf(name: string, signal: AbortSignal): Promise<MigrationSql | undefined> {
  const sql = `SELECT left(sql, $2) AS sql, left(rollback_sql, $2) AS "rollbackSql", greatest(length(sql), length(rollback_sql)) AS characters
FROM ${await historyTable(signal)} WHERE name = $1`;
  const [row] = await rowsOf<MigrationSql>({ sql, params: [name, SHOWN_MAX_CHARACTERS] }, signal);
  return row;
}

let table: string | undefined;

/** The history is a table of the organization's: in a schema of its own, or where there is only one, in that. */
async function historyTable(signal: AbortSignal): Promise<string> {
  if (table !== undefined) return table;
  const [row] = await rowsOf<{ readonly isOwn: boolean }>(
    { sql: `SELECT to_regclass('postern.migrations') IS NOT NULL AS "isOwn"` },
    signal,
  );
  table = row?.isOwn === true ? 'postern.migrations' : 'postern_migrations';
  return table;
}

async function rowsOf<T>(
  query: { readonly sql: string; readonly params?: readonly unknown[] },
  signal: AbortSignal,
): Promise<readonly T[]> {
  const { rows } = await call<{ readonly rows: readonly T[] }>('POST', 'api/query', { body: { ...query, readOnly: true }, signal });
  return rows;
}

/** The migration that is being written. */
export interface Draft {
  readonly name: string;
  readonly sql: string;
  readonly hasRollback: boolean;
  readonly rollbackSql: string;
  readonly isTransaction: boolean;
  /** Milliseconds; empty: what the server does by default. */
  readonly timeLimit: string;
}

const EMPTY: Draft = { name: '', sql: '', hasRollback: false, rollbackSql: '', isTransaction: true, timeLimit: '' };
const TEXT = 'migration';

export const draft = signal<Draft>({ ...EMPTY, ...kept() });

effect(() => keepText(TEXT, JSON.stringify(draft.value)));

/** The texts alone, for their editors. */
export const sqlText = textOf('sql');
export const rollbackText = textOf('rollbackSql');

function textOf(name: 'sql' | 'rollbackSql'): Signal<string> {
  const text = signal(draft.peek()[name]);
  effect(() => {
    text.value = draft.value[name];
  });
  effect(() => {
    const { value } = text;
    if (draft.peek()[name] !== value) change({ [name]: value });
  });
  return text;
}

export function change(changed: Partial<Draft>): void {
  draft.value = { ...draft.peek(), ...changed };
}

export function begin(next: Partial<Draft> = {}): void {
  draft.value = { ...EMPTY, ...next };
}

export function requestOf({ name, sql, hasRollback, rollbackSql, isTransaction, timeLimit }: Draft, dryRun: boolean): MigrationRequest {
  return {
    name: name.trim(),
    sql,
    dryRun,
    transaction: isTransaction,
    ...(hasRollback && rollbackSql.trim() !== '' ? { rollbackSql } : {}),
    ...(timeLimit === '' ? {} : { timeoutMs: Number(timeLimit) }),
  };
}

function kept(): Partial<Draft> {
  try {
    return JSON.parse(keptText(TEXT) ?? '{}');
  } catch {
    return {};
  }
}

export type Outcome =
  | { readonly state: 'running'; readonly request: MigrationRequest; readonly cancel: () => void }
  | { readonly state: 'done'; readonly request: MigrationRequest; readonly reply: MigrationReply }
  | { readonly state: 'failed'; readonly request: MigrationRequest; readonly error: unknown };

export const outcome = signal<Outcome | undefined>(undefined);

export async function run(request: MigrationRequest): Promise<void> {
  const canceled = new AbortController();
  outcome.value = { state: 'running', request, cancel: () => canceled.abort() };
  try {
    outcome.value = { state: 'done', request, reply: await runMigration(request, canceled.signal) };
  } catch (error) {
    outcome.value = isAbort(error) ? undefined : { state: 'failed', request, error };
  }
}

/** Whether it is what comes of this draft. */
export function isOf({ request }: Outcome, now: Draft): boolean {
  return JSON.stringify(request) === JSON.stringify(requestOf(now, request.dryRun));
}

/** What destroys data, or fails where there is some. */
export interface FoundDestruction {
  readonly line: number;
  readonly message: string;
}

export interface Script {
  readonly statements: number;
  readonly destructions: readonly FoundDestruction[];
}

/** Longer texts are left to the dry run: this is done at every key. */
const READ_MAX_CHARACTERS = 200_000;
const DESTRUCTIONS_MAX = 100;

/** @returns undefined for a text that is too long to be read here */
export function readScript(sql: string): Script | undefined {
  if (sql.length > READ_MAX_CHARACTERS) return undefined;
  const destructions: FoundDestruction[] = [];
  const lines = new LineCounter(sql);
  let statements = 0;
  for (const statement of eachStatement(sql)) {
    if (statement === undefined) continue;
    statements += 1;
    for (const { message, offset } of findDestruction(statement.text)) {
      if (destructions.length < DESTRUCTIONS_MAX) destructions.push({ message, line: lines.at(statement.start + offset) });
    }
  }
  return { statements, destructions };
}

/** The lines of ascending offsets; the text is read once for all of them. */
class LineCounter {
  readonly #sql: string;
  #read = 0;
  #line = 1;

  constructor(sql: string) {
    this.#sql = sql;
  }

  at(offset: number): number {
    for (let next = this.#sql.indexOf('\n', this.#read); next >= 0 && next < offset; next = this.#sql.indexOf('\n', this.#read)) {
      this.#line += 1;
      this.#read = next + 1;
    }
    return this.#line;
  }
}

/** What is wrong with one of the texts, unless it has been changed since. */
export function errorIn(name: 'sql' | 'rollbackSql', known: Outcome | undefined, now: Draft): EditorError | undefined {
  if (known?.state !== 'failed' || !(known.error instanceof ApiError) || known.request[name] !== now[name]) return undefined;
  const { problem, message } = known.error;
  const place = placeOf(problem);
  if (place === undefined || (problem.phase === 'rollback') !== (name === 'rollbackSql')) return undefined;
  return { ...rangeAtPlace(now[name], place.line, place.column), message };
}

/** Where it failed. Errors of PostgreSQL have the place beside their position. */
export function placeOf({ line, column, postgres }: Problem): Place | undefined {
  const at = line ?? postgres?.line;
  return at === undefined ? undefined : { line: at, column: column ?? postgres?.column ?? 1 };
}

/** A place in a text, both from 1; the column in characters. */
interface Place {
  readonly line: number;
  readonly column: number;
}

const LINES_BEFORE = 2;
const LINES_AFTER = 1;
/** Of a longer line the part around the place is shown. */
const WIDTH_CHARACTERS = 120;

/** The lines around the place with their numbers, and a mark below it. */
export function excerptOf(sql: string, { line, column }: Place): string {
  const lines = sql.split('\n');
  const first = Math.max(0, line - 1 - LINES_BEFORE);
  const shown = lines.slice(first, line + LINES_AFTER);
  const digits = String(line + LINES_AFTER).length;
  const start = Math.max(0, column - WIDTH_CHARACTERS / 2);
  return shown
    .flatMap((text, index) => {
      const number = first + index + 1;
      const part = [...text].slice(start, start + WIDTH_CHARACTERS).join('');
      const numbered = `${number === line ? '>' : ' '} ${String(number).padStart(digits)} │ ${part}`;
      return number === line ? [numbered, `  ${' '.repeat(digits)} │ ${indentOf(part, column - 1 - start)}^`] : [numbered];
    })
    .join('\n');
}

/** As wide as the characters before the place. */
function indentOf(text: string, characters: number): string {
  return [...text]
    .slice(0, characters)
    .map((character) => (character === '\t' ? '\t' : ' '))
    .join('')
    .padEnd(characters);
}
