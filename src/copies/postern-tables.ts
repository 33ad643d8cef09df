import type pg from 'pg';
import type { Placement } from '../catalog/organization.ts';
import { IDEMPOTENCY_COLUMNS } from '../sql/idempotency.ts';
import { MIGRATION_COLUMNS } from '../sql/migration-history.ts';
import { posternTable } from '../sql/postern-tables.ts';

export type PosternTableName = 'migrations' | 'idempotency_keys';
export const POSTERN_TABLES: readonly PosternTableName[] = ['migrations', 'idempotency_keys'];

const COLUMNS: Readonly<Record<PosternTableName, string>> = { migrations: MIGRATION_COLUMNS, idempotency_keys: IDEMPOTENCY_COLUMNS };

/** Creates Postern's own tables, which have other names in the other placement. Default privileges do not apply to them yet. */
export async function createPosternTables(client: pg.Client, placement: Placement, names: readonly PosternTableName[]): Promise<void> {
  for (const table of names) {
    const { schema, name } = posternTable(placement, table);
    if (schema !== undefined) await client.query(`CREATE SCHEMA IF NOT EXISTS ${schema}`);
    await client.query(`CREATE TABLE ${name} (${COLUMNS[table]})`);
    if (table === 'idempotency_keys') await client.query(`CREATE INDEX ON ${name} (created_at)`);
  }
}

/** Has the numbering of migrations go on after the copied ones. */
export async function continueMigrations(client: pg.Client, placement: Placement, names: readonly PosternTableName[]): Promise<void> {
  if (!names.includes('migrations')) return;
  const { name } = posternTable(placement, 'migrations');
  await client.query(`SELECT pg_catalog.setval(pg_catalog.pg_get_serial_sequence($1, 'id'), pg_catalog.max(id)) FROM ${name}`, [name]);
}
