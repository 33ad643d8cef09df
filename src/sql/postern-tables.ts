import type { Placement } from '../catalog/organizations/organization.ts';
import type { Session } from './session/session.ts';

/** A table that Postern keeps beside an organization's data, as the organization's own. */
export interface PosternTable {
  /** Made with the first table in it; none where the organization is confined to one schema. */
  readonly schema: string | undefined;
  /** Ready to stand in SQL. */
  readonly name: string;
}

const SCHEMA = 'postern';

/** No ORM manages the schema `postern`. An organization that is confined to one schema keeps its tables in there. */
export function posternTable({ kind, schema }: Placement, name: string): PosternTable {
  if (kind === 'database') return { schema: SCHEMA, name: `${SCHEMA}.${name}` };
  return { schema: undefined, name: `"${schema}".${SCHEMA}_${name}` };
}

/** Two that make the same at once would stumble over each other, IF NOT EXISTS or not. */
const LOCK = `SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('postern.tables ' || current_user, 0))`;

/** Reads a table of the catalog, which makes the session take note of what others have committed while it waited. */
const FIND = 'SELECT 1 FROM pg_catalog.pg_class WHERE oid = pg_catalog.to_regclass($1)';

/**
 * Makes a table where there is none. To be called in a transaction.
 * @param columns the column list of CREATE TABLE, without its parentheses
 * @returns whether there was none
 */
export async function createPosternTable(session: Session, { schema, name }: PosternTable, columns: string): Promise<boolean> {
  await session.query(LOCK);
  if ((await session.rows(FIND, [name])).length > 0) return false;
  if (schema !== undefined) await session.query(`CREATE SCHEMA IF NOT EXISTS ${schema}`);
  await session.query(`CREATE TABLE ${name} (${columns})`);
  return true;
}
