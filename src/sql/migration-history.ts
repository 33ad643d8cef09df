import { ServiceError } from '../errors.ts';
import type { Lease } from '../router/lease.ts';
import type { ParameterText } from './parameters.ts';
import { createPosternTable, type PosternTable, posternTable } from './postern-tables.ts';
import { type SessionOptions, SqlSession } from './session.ts';

type MigrationStatus = 'applied' | 'failed';

export interface AppliedMigration {
  readonly name: string;
  readonly status: MigrationStatus;
  /** RFC 3339, UTC. */
  readonly appliedAt: string;
  readonly checksum: string;
  readonly durationMs: number;
  readonly statementCount: number;
  readonly statementsApplied: number;
}

export interface NewAppliedMigration extends Omit<AppliedMigration, 'appliedAt'> {
  readonly sql: string;
  readonly rollbackSql: string | undefined;
}

/** Of immutable functions only: Citus evaluates no others in RETURNING. The time is in seconds since 1970. */
const COLUMNS =
  "name, status, extract(epoch FROM applied_at AT TIME ZONE 'UTC'), checksum, duration_ms, statement_count, statements_applied";

export const MIGRATION_COLUMNS = `
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name text NOT NULL UNIQUE,
  status text NOT NULL CHECK (status IN ('applied', 'failed')),
  checksum text NOT NULL,
  sql text NOT NULL,
  rollback_sql text,
  statement_count integer NOT NULL,
  statements_applied integer NOT NULL,
  duration_ms double precision NOT NULL,
  applied_at timestamptz NOT NULL DEFAULT clock_timestamp()`;

/**
 * The organization's own record of its migrations: a table beside its data, written with the organization's role, so that it changes
 * in the same transaction and is part of a dump. `sql` and `rollback_sql` are for people to read.
 */
export class MigrationHistory {
  readonly #session: SqlSession;
  readonly #table: PosternTable;

  constructor(session: SqlSession) {
    this.#session = session;
    this.#table = posternTable(session.lease.tenant.organization.placement, 'migrations');
  }

  async exists(): Promise<boolean> {
    const [row] = await this.#session.rows('SELECT pg_catalog.to_regclass($1) IS NOT NULL', [this.#table.name]);
    return row?.[0] === 't';
  }

  async create(): Promise<void> {
    if (!(await this.exists())) await createPosternTable(this.#session, this.#table, MIGRATION_COLUMNS);
  }

  /** In the order in which they were applied. */
  async list(): Promise<readonly AppliedMigration[]> {
    if (!(await this.exists())) return [];
    const rows = await this.#session.rows(`SELECT ${COLUMNS} FROM ${this.#table.name} ORDER BY id`);
    return rows.map(readEntry);
  }

  async find(name: string): Promise<AppliedMigration | undefined> {
    if (!(await this.exists())) return undefined;
    const [row] = await this.#session.rows(`SELECT ${COLUMNS} FROM ${this.#table.name} WHERE name = $1`, [name]);
    return row && readEntry(row);
  }

  /** Replaces the entry of an earlier attempt of this name that failed. */
  async add({
    name,
    status,
    checksum,
    sql,
    rollbackSql,
    statementCount,
    statementsApplied,
    durationMs,
  }: NewAppliedMigration): Promise<AppliedMigration> {
    await this.#session.rows(`DELETE FROM ${this.#table.name} WHERE name = $1 AND status = 'failed'`, [name]);
    const values = [name, status, checksum, sql, rollbackSql ?? null, statementCount, statementsApplied, durationMs];
    const [row] = await this.#session.rows(
      `INSERT INTO ${this.#table.name} (name, status, checksum, sql, rollback_sql, statement_count, statements_applied, duration_ms)
       VALUES ($1, $2, $3, $4, $5, $6, $7, $8) RETURNING ${COLUMNS}`,
      values.map((value) => (value === null ? null : String(value))),
    );
    return this.#written(row);
  }

  /** Records how many statements of a migration without a transaction have completed. */
  async update({
    name,
    status,
    statementCount,
    statementsApplied,
    durationMs,
  }: Pick<AppliedMigration, 'name' | 'status' | 'statementCount' | 'statementsApplied' | 'durationMs'>): Promise<AppliedMigration> {
    const [row] = await this.#session.rows(
      `UPDATE ${this.#table.name} SET status = $2, statement_count = $3, statements_applied = $4, duration_ms = $5, applied_at = pg_catalog.now() WHERE name = $1 RETURNING ${COLUMNS}`,
      [name, status, String(statementCount), String(statementsApplied), String(durationMs)],
    );
    return this.#written(row);
  }

  /** The organization may have put triggers on its table. A migration that is not recorded must not be reported as applied. */
  #written(row: readonly ParameterText[] | undefined): AppliedMigration {
    if (row !== undefined) return readEntry(row);
    throw new ServiceError('unsupported_statement', `${this.#table.name} has not kept the entry of this migration`, {
      hint: 'A trigger or a rule on that table may be in its way, or a statement of the migration that deletes from it.',
    });
  }
}

function readEntry([
  name,
  status,
  appliedAt,
  checksum,
  durationMs,
  statementCount,
  statementsApplied,
]: readonly ParameterText[]): AppliedMigration {
  return {
    name: name ?? '',
    status: status === 'failed' ? 'failed' : 'applied',
    appliedAt: toRfc3339(Number(appliedAt)),
    checksum: checksum ?? '',
    durationMs: Number(durationMs),
    statementCount: Number(statementCount),
    statementsApplied: Number(statementsApplied),
  };
}

/** With microseconds, as PostgreSQL has them. Empty for a time that JavaScript cannot express, such as 'infinity'. */
function toRfc3339(seconds: number): string {
  const microseconds = Math.round(seconds * 1_000_000);
  const date = new Date(Math.floor(microseconds / 1_000));
  if (Number.isNaN(date.getTime())) return '';
  return date.toISOString().replace('Z', `${String(((microseconds % 1_000) + 1_000) % 1_000).padStart(3, '0')}Z`);
}

/** All migrations in the order in which they were applied. Takes over the lease. */
export async function listMigrations(lease: Lease, options: SessionOptions): Promise<readonly AppliedMigration[]> {
  const session = new SqlSession(lease, options);
  try {
    await session.expect();
    return await new MigrationHistory(session).list();
  } finally {
    await session.end();
  }
}
