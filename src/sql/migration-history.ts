import { ServiceError } from '../errors.ts';
import type { Lease } from '../router/lease.ts';
import type { ChangedObjects } from './migration-objects.ts';
import type { ParameterText } from './parameters.ts';
import { createPosternTable, type PosternTable, posternTable } from './postern-tables.ts';
import { type SessionOptions, SqlSession } from './session.ts';

type MigrationStatus = 'applied' | 'failed' | 'rolled_back';

export interface AppliedMigration {
  readonly name: string;
  readonly status: MigrationStatus;
  /** RFC 3339, UTC. */
  readonly appliedAt: string;
  readonly checksum: string;
  readonly durationMs: number;
  readonly statementCount: number;
  readonly statementsApplied: number;
  /** There is SQL that undoes it. */
  readonly isReversible: boolean;
  /** RFC 3339, UTC; null: it has not been undone since. */
  readonly rolledBackAt: string | null;
}

export interface NewAppliedMigration extends Omit<AppliedMigration, 'appliedAt' | 'status' | 'isReversible' | 'rolledBackAt'> {
  readonly status: 'applied' | 'failed';
  readonly sql: string;
  readonly rollbackSql: string | undefined;
  /** Undefined: it is not known what it has changed. */
  readonly objects: ChangedObjects | undefined;
}

/** Of immutable functions only: Citus evaluates no others in RETURNING. The time is in seconds since 1970. */
const COLUMNS =
  "name, status, extract(epoch FROM applied_at AT TIME ZONE 'UTC'), checksum, duration_ms, statement_count, statements_applied, rollback_sql IS NOT NULL";
const ROLLED_BACK = "extract(epoch FROM rolled_back_at AT TIME ZONE 'UTC')";
/** Of tables from before there were these. */
const NEWER_COLUMNS = 'ADD COLUMN IF NOT EXISTS rolled_back_at timestamptz, ADD COLUMN IF NOT EXISTS objects text';

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
  applied_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  rolled_back_at timestamptz,
  objects text`;

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

  /** @returns whether it has all columns; undefined if there is no such table */
  async #isComplete(): Promise<boolean | undefined> {
    const [row] = await this.#session.rows(
      `SELECT r IS NOT NULL, EXISTS (SELECT FROM pg_catalog.pg_attribute WHERE attrelid = r AND attname = 'objects')
       FROM pg_catalog.to_regclass($1) AS r`,
      [this.#table.name],
    );
    return row?.[0] === 't' ? row[1] === 't' : undefined;
  }

  async create(): Promise<void> {
    const isComplete = await this.#isComplete();
    if (isComplete === undefined) await createPosternTable(this.#session, this.#table, MIGRATION_COLUMNS);
    if (isComplete === false) await this.#session.query(`ALTER TABLE ${this.#table.name} ${NEWER_COLUMNS}`);
  }

  /** In the order in which they were applied. */
  async list(): Promise<readonly AppliedMigration[]> {
    const isComplete = await this.#isComplete();
    if (isComplete === undefined) return [];
    const rows = await this.#session.rows(`SELECT ${columns(isComplete)} FROM ${this.#table.name} ORDER BY id`);
    return rows.map(readEntry);
  }

  async find(name: string): Promise<AppliedMigration | undefined> {
    const isComplete = await this.#isComplete();
    if (isComplete === undefined) return undefined;
    const [row] = await this.#session.rows(`SELECT ${columns(isComplete)} FROM ${this.#table.name} WHERE name = $1`, [name]);
    return row && readEntry(row);
  }

  /** What a migration that is applied has changed, and then what those have that were applied after it. Empty if that is not known. */
  async changesSince(name: string): Promise<readonly ChangedObjects[]> {
    if ((await this.#isComplete()) !== true) return [];
    const table = this.#table.name;
    const rows = await this.#session.rows(
      `SELECT objects FROM ${table} WHERE id >= (SELECT id FROM ${table} WHERE name = $1) AND rolled_back_at IS NULL ORDER BY id`,
      [name],
    );
    const changes = rows.map(([objects]) => readObjectsOf(objects));
    return changes.every((one) => one !== undefined) ? changes : [];
  }

  /** The SQL that undoes a migration, and the name of the newest that has not been undone. */
  async rollbackOf(name: string): Promise<{ readonly sql: string | null; readonly newest: string } | undefined> {
    const isUndone = (await this.#isComplete()) === true ? 'rolled_back_at IS NOT NULL' : 'false';
    const [row] = await this.#session.rows(
      `SELECT rollback_sql, (SELECT name FROM ${this.#table.name} WHERE status = 'applied' AND NOT (${isUndone}) ORDER BY id DESC LIMIT 1)
       FROM ${this.#table.name} WHERE name = $1`,
      [name],
    );
    return row && { sql: row[0] ?? null, newest: row[1] ?? '' };
  }

  /** Notes that a migration has been undone. */
  async rolledBack(name: string): Promise<AppliedMigration> {
    const [row] = await this.#session.rows(
      `UPDATE ${this.#table.name} SET rolled_back_at = pg_catalog.now() WHERE name = $1 RETURNING ${columns(true)}`,
      [name],
    );
    return this.#written(row);
  }

  /** Replaces the entry of an earlier attempt of this name that failed, or was undone. */
  async add({
    name,
    status,
    checksum,
    sql,
    rollbackSql,
    statementCount,
    statementsApplied,
    durationMs,
    objects,
  }: NewAppliedMigration): Promise<AppliedMigration> {
    await this.#session.rows(`DELETE FROM ${this.#table.name} WHERE name = $1 AND (status = 'failed' OR rolled_back_at IS NOT NULL)`, [
      name,
    ]);
    const kept = objects === undefined ? null : JSON.stringify(objects);
    const values = [name, status, checksum, sql, rollbackSql ?? null, statementCount, statementsApplied, durationMs, kept];
    const [row] = await this.#session.rows(
      `INSERT INTO ${this.#table.name} (name, status, checksum, sql, rollback_sql, statement_count, statements_applied, duration_ms, objects)
       VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) RETURNING ${columns(true)}`,
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
    objects,
  }: Pick<
    NewAppliedMigration,
    'name' | 'status' | 'statementCount' | 'statementsApplied' | 'durationMs' | 'objects'
  >): Promise<AppliedMigration> {
    const [row] = await this.#session.rows(
      `UPDATE ${this.#table.name} SET status = $2, statement_count = $3, statements_applied = $4, duration_ms = $5, applied_at = pg_catalog.now(), objects = $6 WHERE name = $1 RETURNING ${columns(true)}`,
      [
        name,
        status,
        String(statementCount),
        String(statementsApplied),
        String(durationMs),
        objects === undefined ? null : JSON.stringify(objects),
      ],
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
  isReversible,
  rolledBackAt,
]: readonly ParameterText[]): AppliedMigration {
  return {
    name: name ?? '',
    status: status === 'failed' ? 'failed' : rolledBackAt == null ? 'applied' : 'rolled_back',
    appliedAt: toRfc3339(Number(appliedAt)),
    checksum: checksum ?? '',
    durationMs: Number(durationMs),
    statementCount: Number(statementCount),
    statementsApplied: Number(statementsApplied),
    isReversible: isReversible === 't',
    rolledBackAt: rolledBackAt == null ? null : toRfc3339(Number(rolledBackAt)),
  };
}

function columns(isComplete: boolean): string {
  return `${COLUMNS}, ${isComplete ? ROLLED_BACK : 'NULL'}`;
}

/** The organization may have changed it. */
function readObjectsOf(text: ParameterText | undefined): ChangedObjects | undefined {
  try {
    const read: unknown = JSON.parse(text ?? 'null');
    return typeof read === 'object' && read !== null ? (read as ChangedObjects) : undefined;
  } catch {
    return undefined;
  }
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
