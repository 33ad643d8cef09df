import { createHash } from 'node:crypto';
import { ADVISORY_LOCKS } from './advisory-locks.ts';
import type { Sql } from './control-connection.ts';
import type { ControlPool } from './control-pool.ts';
import { CATALOG_MIGRATIONS, type CatalogMigration } from './migrations.ts';

/** Of a long audit log every entry may have to be written anew; and another process that does so is waited for. */
const MIGRATION_TIMEOUT_MS = 3_600_000;

/** What the control database's ledger says cannot come from this version of Postern. */
export class CatalogMigrationError extends Error {
  override readonly name = 'CatalogMigrationError';
}

/**
 * Brings schema `postern` up to date, in one transaction: all steps or none. Any number of processes may do so at once.
 * @throws CatalogMigrationError when a step that was applied is unknown here, or is not what it was
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
    checkLedger(applied, migrations);
    for (const [index, migration] of migrations.entries()) {
      if (index >= applied.length) await apply(sql, index + 1, migration);
    }
  }, MIGRATION_TIMEOUT_MS);
}

function checkLedger(applied: readonly { name: string; checksum: string }[], migrations: readonly CatalogMigration[]): void {
  for (const [index, { name, checksum }] of applied.entries()) {
    const migration = migrations[index];
    if (migration === undefined) {
      throw new CatalogMigrationError(`the control database was written by a newer version: it has migration "${name}"`);
    }
    if (migration.name !== name || checksumOf(migration) !== checksum) {
      throw new CatalogMigrationError(`migration "${name}" of the control database is not the one that this version has`);
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
