import type pg from 'pg';
import { ServiceError } from '../errors.ts';
import type { CopiedTable } from './contents.ts';

/** A table's rows and their checksum, which does not depend on their order. The output function is called, and no cast of the tenant's. */
const summary = (table: string) =>
  `SELECT pg_catalog.count(*)::text AS count,
     coalesce(pg_catalog.sum(pg_catalog.hashtextextended(pg_catalog.textin(pg_catalog.record_out(moved)), 0)), 0)::text AS checksum
   FROM ONLY ${table} AS moved`;

interface Summary {
  readonly count: string;
  readonly checksum: string;
}

/** How many rows a table has, and how it differs from its copy. */
export interface Comparison {
  readonly rows: number;
  readonly difference: ServiceError | undefined;
}

/**
 * Compares every table with its copy.
 * @returns how many rows there are in all
 * @throws ServiceError `internal` for one that differs
 */
export async function compareTables(source: pg.Client, target: pg.Client, tables: readonly CopiedTable[]): Promise<number> {
  let all = 0;
  for (const table of tables) {
    const { rows, difference } = await compareTable(source, target, table);
    if (difference !== undefined) throw difference;
    all += rows;
  }
  return all;
}

export async function compareTable(source: pg.Client, target: pg.Client, { from, to }: CopiedTable): Promise<Comparison> {
  const [own, copied] = await Promise.all([summarize(source, from), summarize(target, to)]);
  const isSame = own.count === copied.count && own.checksum === copied.checksum;
  return { rows: Number(own.count), difference: isSame ? undefined : differs(from, own.count, copied.count) };
}

/**
 * Compares how many rows the tables and their copies have.
 * @returns how many there are in all
 * @throws ServiceError `internal` for one that differs
 */
export async function compareCounts(source: pg.Client, target: pg.Client, tables: readonly CopiedTable[]): Promise<number> {
  let rows = 0;
  for (const { from, to } of tables) {
    const [own, copied] = await Promise.all([countRows(source, from), countRows(target, to)]);
    if (own !== copied) throw differs(from, own, copied);
    rows += own;
  }
  return rows;
}

function differs(table: string, rows: number | string, copied: number | string): ServiceError {
  return new ServiceError('internal', `the copy of the table ${table} differs: ${rows} rows, and ${copied} in the copy`);
}

async function countRows(client: pg.Client, table: string): Promise<number> {
  const { rows } = await client.query<{ count: string }>(`SELECT pg_catalog.count(*)::text AS count FROM ONLY ${table}`);
  return Number(rows[0]?.count);
}

async function summarize(client: pg.Client, table: string): Promise<Summary> {
  const { rows } = await client.query<Summary>(summary(table));
  return rows[0] ?? { count: 'none', checksum: '' };
}
