import pg from 'pg';
import { channelSecret, channelsOf } from '../auth/notify-channel-prefix.ts';
import type { Placement } from '../catalog/organizations/organization.ts';
import { MAKE_PUBLIC } from '../router/placement/own-database/database-provisioner.ts';
import { defaultPrivilegesOf } from '../router/placement/own-database/default-privileges.ts';
import { readerOf } from '../router/placement/roles/reader-role.ts';
import { roleExists } from '../router/placement/roles/role-exists.ts';
import { applySettings, readSettings } from '../router/placement/roles/role-settings.ts';
import { compareTables } from './comparison.ts';
import { type Contents, type CopiedTable, readContents } from './contents.ts';
import { type CopyOptions, FOR_MOVE } from './copy-options.ts';
import { copyRows } from './copy-rows.ts';
import { checkForObstacles } from './obstacles.ts';
import { dumpDefinitions } from './pg-dump.ts';
import { continueMigrations, createPosternTables } from './postern-tables.ts';
import { forClone, inSchema, isClone, renameInRoutines, runDefinitions, statementsOf } from './restore-definitions.ts';
import type { OpenPlacement } from './tenant-session.ts';

/**
 * Copies all that an organization has to another placement, or to that of its clone, and compares the tables. Nobody can write to the source's tables before its session ends.
 * @returns how much has been copied
 * @throws ServiceError `unsupported_statement` if the target cannot have all of it
 */
export async function copyOrganization(
  source: OpenPlacement,
  target: OpenPlacement,
  options: CopyOptions = FOR_MOVE,
): Promise<{ readonly tables: number; readonly rows: number }> {
  const { placement: from } = source;
  const { placement: to } = target;
  const { client: reading } = source.session;
  const { client: writing } = target.session;
  await checkForObstacles(reading, from, to);
  const schema = schemaMeanwhile(from, to);
  const contents = await readContents(reading, from, to, schema);
  await lockTables(reading, contents);
  const { cluster } = source.server.platform;
  const dump = (section: 'pre-data' | 'post-data') => dumpDefinitions(cluster, from, schema === undefined, section, options);
  const [before, after] = await Promise.all([dump('pre-data'), dump('post-data')]);
  if (from.kind === 'schema' && to.kind === 'database')
    await writing.query(`DROP SCHEMA public; CREATE SCHEMA ${pg.escapeIdentifier(from.schema)}`);
  await runDefinitions(writing, await adapted(before, source, target), to.schema);
  await createPosternTables(writing, to, contents.posternTables);
  await copyTables(source, target, contents.tables);
  await runDefinitions(writing, await adapted(after, source, target), to.schema);
  for (const view of contents.views) await writing.query(`REFRESH MATERIALIZED VIEW ${view}`);
  await carrySequences(reading, writing, contents);
  await continueMigrations(writing, to, contents.posternTables);
  const rows = await compareTables(reading, writing, contents.tables);
  await complete(source, target);
  return { tables: contents.tables.length, rows };
}

/**
 * What the schema is called at the target while it is copied. In a database of its own it gets the name `public` at the end, so that all
 * that refers to it follows. Undefined: all schemas of the database keep their names.
 */
function schemaMeanwhile(from: Placement, to: Placement): string | undefined {
  if (to.kind === 'schema') return to.schema;
  return from.kind === 'schema' ? from.schema : undefined;
}

async function adapted(dump: string, { placement: from }: OpenPlacement, { server, placement: to }: OpenPlacement): Promise<string[]> {
  const statements = await statementsOf(dump, from.schema);
  if (isClone(from, to)) return statements.map((statement) => forClone(statement, from, to));
  if (to.kind === 'database' || from.kind === 'schema') return statements;
  const { secret, pgNotify } = server.platform.cluster;
  const target = { schema: to.schema, channels: channelsOf(channelSecret(secret), to.role), pgNotify, database: to.database };
  return statements.map((statement) => inSchema(statement, target));
}

export async function copyTables(
  { session: own }: OpenPlacement,
  { session: copy }: OpenPlacement,
  tables: readonly CopiedTable[],
): Promise<void> {
  for (const { from, to, columns, copiedColumns } of tables)
    await copyRows(own.backend, `COPY ${from}${listOf(columns)} TO STDOUT`, copy.backend, `COPY ${to}${listOf(copiedColumns)} FROM STDIN`);
}

function listOf(columns: readonly string[]): string {
  return columns.length === 0 ? '' : ` (${columns.join(', ')})`;
}

/** Nobody writes to the tables before the session ends. */
export async function lockTables(client: pg.Client, { tables }: Contents): Promise<void> {
  await client.query('BEGIN');
  for (const { from } of tables) await client.query(`LOCK TABLE ONLY ${from} IN SHARE MODE`);
}

export async function carrySequences(source: pg.Client, target: pg.Client, { sequences }: Contents): Promise<void> {
  for (const { from, to } of sequences) {
    const { rows } = await source.query<{ value: string; called: boolean }>(
      `SELECT last_value::text AS value, is_called AS called FROM ${from}`,
    );
    const [last] = rows;
    if (last !== undefined) await target.query('SELECT pg_catalog.setval($1, $2, $3)', [to, last.value, last.called]);
  }
}

/** What is not in a dump of one schema: its name, default privileges, and settings of the role. */
export async function complete(source: OpenPlacement, target: OpenPlacement): Promise<void> {
  const { placement: from, session: own } = source;
  const { placement: to, session: copy } = target;
  const { platform } = target.server;
  if (to.kind === 'database') {
    if (from.kind === 'schema') {
      await copy.client.query(`ALTER SCHEMA ${pg.escapeIdentifier(from.schema)} RENAME TO public; ${MAKE_PUBLIC}`);
      await renameInRoutines(copy.client, from);
    }
    const reader = readerOf(to.role);
    const hasReaders = await platform.run((session) => roleExists(session, reader));
    if (hasReaders) await copy.client.query(`GRANT USAGE ON SCHEMA public TO ${pg.escapeIdentifier(reader)}`);
  }
  const named = (text: string) => (isClone(from, to) ? forClone(text, from, to) : text);
  for (const statement of await defaultPrivilegesOf(own.client, from.role)) await copy.client.query(named(statement));
  const ofPlatform = Object.keys(platform.cluster.roleSettings);
  const settings = await source.server.platform.run((session) => readSettings(session, from, ofPlatform));
  const isNewRole = isClone(from, to) || from.cluster !== to.cluster;
  const carried = settings.filter(({ inDatabase }) => inDatabase || isNewRole);
  await applySettings(
    copy.backend,
    to,
    carried.map((setting) => ({ ...setting, value: named(setting.value) })),
  );
}
