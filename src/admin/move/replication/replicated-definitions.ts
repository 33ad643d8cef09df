import type pg from 'pg';
import type { CopiedTable } from '../../../copies/contents.ts';
import { dumpDefinitions } from '../../../copies/definitions/pg-dump.ts';
import { statementsOf } from '../../../copies/definitions/restore-definitions.ts';
import { replicationName } from '../../../placement/replication-objects.ts';
import type { ServedPlacement } from '../../../router/served-cluster.ts';

/** An organization's definitions at one time. */
export interface Definitions {
  readonly beforeRows: readonly string[];
  readonly afterRows: readonly string[];
  /** Differs after a table was made again or a column was altered, though the definitions may be the same as before. */
  readonly versions: string;
}

const VERSIONS = `
  SELECT pg_catalog.md5(coalesce(pg_catalog.string_agg(
    pg_catalog.concat_ws(' ', c.oid::text, a.attnum::text, a.xmin::text), ',' ORDER BY c.oid, a.attnum), '')) AS versions
  FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
  WHERE c.relkind IN ('r', 'p') AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'`;

/** Without the publication of the replication. */
export async function readDefinitions(client: pg.Client, { server, placement }: ServedPlacement): Promise<Definitions> {
  const { rows } = await client.query<{ versions: string }>(VERSIONS);
  const own = new RegExp(`^(?:CREATE|ALTER) PUBLICATION ${replicationName(placement)}\\b`);
  const dump = async (section: 'pre-data' | 'post-data') => {
    const definitions = await dumpDefinitions(server.platform.cluster, placement, true, section);
    return (await statementsOf(definitions, placement.schema)).filter((statement) => !own.test(statement));
  };
  const [beforeRows, afterRows] = await Promise.all([dump('pre-data'), dump('post-data')]);
  return { beforeRows, afterRows, versions: rows[0]?.versions ?? '' };
}

export function areSame(some: Definitions, others: Definitions): boolean {
  return JSON.stringify(some) === JSON.stringify(others);
}

/** Triggers and rules: also those that fire when changes are applied, which the source's have done already. */
const FIRES =
  /^(?:CREATE (?:CONSTRAINT )?TRIGGER |CREATE RULE |COMMENT ON (?:TRIGGER|RULE) |ALTER TABLE [^;]* (?:ENABLE|DISABLE) [A-Z ]*(?:TRIGGER|RULE) )/;
const FOREIGN_KEY = /^ALTER TABLE (?:ONLY )?((?:"[^"]*"|[^\s"])+)\s+ADD CONSTRAINT (?:"[^"]*"|[^\s"])+ FOREIGN KEY /;

/**
 * Divides the definitions that follow rows into those that an empty table can have before its rows are replicated, and those that have to
 * wait: for all that fires, and for foreign keys of tables that are copied in the pause.
 * @param client at the target, where the tables are
 */
export async function divide(
  client: pg.Client,
  afterRows: readonly string[],
  copiedInPause: readonly CopiedTable[],
): Promise<{ readonly early: string[]; readonly late: string[] }> {
  const [early, late]: [string[], string[]] = [[], []];
  for (const statement of afterRows) {
    const table = FOREIGN_KEY.exec(statement)?.[1];
    const waits = FIRES.test(statement) || (table !== undefined && (await isOne(client, table, copiedInPause)));
    (waits ? late : early).push(statement);
  }
  return { early, late };
}

async function isOne(client: pg.Client, table: string, tables: readonly CopiedTable[]): Promise<boolean> {
  const { rows } = await client.query(
    'SELECT FROM pg_catalog.unnest($2::text[]) AS name WHERE pg_catalog.to_regclass(name) = pg_catalog.to_regclass($1)',
    [table, tables.map(({ to }) => to)],
  );
  return rows.length > 0;
}
