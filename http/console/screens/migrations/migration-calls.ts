import { call } from '../../api/client.ts';

/** `GET /api/migrations` */
export interface Migration {
  readonly name: string;
  readonly status: 'applied' | 'failed' | 'dry_run';
  readonly appliedAt: string;
  readonly checksum: string;
  readonly durationMs: number;
  readonly statementCount: number;
  readonly statementsApplied: number;
}

export interface MigrationWarning {
  readonly severity: string;
  readonly code: string;
  readonly message: string;
  readonly line?: number;
}

/** `POST /api/migrations` */
export interface MigrationReply {
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

export function runMigration(body: MigrationRequest, signal: AbortSignal): Promise<MigrationReply> {
  return call('POST', 'api/migrations', { body, signal });
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
