import pg from 'pg';
import { channelSecret, channelsOf } from '../auth/derived-secrets.ts';
import type { Placement } from '../catalog/organization.ts';
import { compareTables } from './comparison.ts';
import { readContents } from './contents.ts';
import { carrySequences, copyTables, lockTables } from './copy-data.ts';
import { type CopyOptions, FOR_MOVE } from './copy-options.ts';
import { allForClone } from './definitions/clone-names.ts';
import { completeDefinitions } from './definitions/not-in-dump.ts';
import { dumpDefinitions } from './definitions/pg-dump.ts';
import { inSchema, isClone, runDefinitions, statementsOf } from './definitions/restore-definitions.ts';
import { checkForObstacles } from './obstacles.ts';
import { continueMigrations, createPosternTables } from './postern-tables.ts';
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
  await completeDefinitions(source, target);
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
  if (isClone(from, to)) return allForClone(statements, from, to);
  if (to.kind === 'database' || from.kind === 'schema') return statements;
  const { secret, pgNotify } = server.platform.cluster;
  const target = { schema: to.schema, channels: channelsOf(channelSecret(secret), to.role), pgNotify, database: to.database };
  return statements.map((statement) => inSchema(statement, target));
}
