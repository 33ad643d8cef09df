import { createHash } from 'node:crypto';
import { ADVISORY_LOCKS } from './advisory-locks.ts';
import type { Sql } from './control-connection.ts';
import type { ControlPool } from './control-pool.ts';
import { CATALOG_MIGRATIONS, type CatalogMigration } from './migrations.ts';

/** A step may rewrite every entry of a long audit log. Other processes wait for it. */
const MIGRATION_TIMEOUT_MS = 3_600_000;

/** The migrations recorded in the control database do not match those of this version of Postern. */
export class CatalogMigrationError extends Error {
  override readonly name = 'CatalogMigrationError';
}

/**
 * Brings schema `postern` up to date, all steps in one transaction. Several processes may call this at the same time.
 * @throws CatalogMigrationError when an applied step is unknown to this version, or has another checksum
 */
export async function migrate(database: ControlPool, migrations: readonly CatalogMigration[] = CATALOG_MIGRATIONS): Promise<void> {
  await database.transaction(async (sql) => {
    await sql`select set_config('statement_timeout', ${String(MIGRATION_TIMEOUT_MS)}, true)`;
    await sql`select pg_advisory_xact_lock(${ADVISORY_LOCKS.migration}, 0)`;
    await sql`create schema if not exists postern`;
    await sql`
      create table if not exists postern.migrations (
        position integer primary key, name text not null, checksum text not null, applied_at timestamptz not null default now()
      )`;
    const applied = await sql<{ name: string; checksum: string }[]>`select name, checksum from postern.migrations order by position`;
    checkApplied(applied, migrations);
    for (const [index, migration] of migrations.entries()) {
      if (index >= applied.length) await apply(sql, index + 1, migration);
    }
  }, MIGRATION_TIMEOUT_MS);
}

function checkApplied(applied: readonly { name: string; checksum: string }[], migrations: readonly CatalogMigration[]): void {
  for (const [index, { name, checksum }] of applied.entries()) {
    const migration = migrations[index];
    if (migration === undefined) {
      throw new CatalogMigrationError(`the control database was written by a newer version: it has migration "${name}"`);
    }
    if (migration.name !== name || checksumOf(migration) !== checksum) {
      throw new CatalogMigrationError(`migration "${name}" of the control database differs from the one of this version`);
    }
  }
}

async function apply(sql: Sql, position: number, migration: CatalogMigration): Promise<void> {
  await sql.script(migration.sql);
  await sql`insert into postern.migrations (position, name, checksum) values (${position}, ${migration.name}, ${checksumOf(migration)})`;
}

function checksumOf({ sql }: CatalogMigration): string {
  return createHash('sha256').update(sql).digest('hex');
}
