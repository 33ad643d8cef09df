import type { Placement } from '../catalog/organization.ts';
import { restrictedRoles } from '../placement/restricted-roles.ts';
import type { SqlSession } from './session.ts';

/** A table that Postern keeps beside an organization's data, owned by the organization's role. */
export interface PosternTable {
  /** Created with the first table; undefined in the `schema` placement. */
  readonly schema: string | undefined;
  /** The qualified and quoted name. */
  readonly name: string;
}

const SCHEMA = 'postern';
const NAMES = ['migrations', 'idempotency_keys'] as const;

/** The tables are in a schema `postern`, which no ORM manages. In the `schema` placement they are in the organization's only schema. */
export function posternTable({ kind, schema }: Placement, name: (typeof NAMES)[number]): PosternTable {
  if (kind === 'database') return { schema: SCHEMA, name: `${SCHEMA}.${name}` };
  return { schema: undefined, name: `"${schema}".${SCHEMA}_${name}` };
}

/** What listings leave out: a schema of Postern's own, and its tables in the organization's schema. */
export function posternObjects({ kind }: Pick<Placement, 'kind'>): {
  readonly schemas: readonly string[];
  readonly tables: readonly string[];
} {
  return kind === 'database' ? { schemas: [SCHEMA], tables: [] } : { schemas: [], tables: NAMES.map((name) => `${SCHEMA}_${name}`) };
}

/** Serializes creation, because two concurrent CREATE … IF NOT EXISTS of the same name may fail. */
const LOCK = `SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('postern.tables ' || current_user, 0))`;

/** Default privileges let restricted roles use new tables. These hold the SQL of migrations, and replies to others. */
async function hideFromRestricted(session: SqlSession, name: string): Promise<void> {
  const { role: own } = session.lease.tenant.organization.placement;
  for (const role of restrictedRoles(own)) {
    const found = await session.rows('SELECT 1 FROM pg_catalog.pg_roles WHERE rolname = $1', [role]);
    if (found.length > 0) await session.query(`REVOKE ALL ON ${name} FROM "${role}"`);
  }
}

/** Reads a catalog table, so that the session notices what others have committed while it waited. */
const FIND = 'SELECT 1 FROM pg_catalog.pg_class WHERE oid = pg_catalog.to_regclass($1)';

/**
 * Creates a table if it does not exist. Must be called in a transaction.
 * @param columns the column list of CREATE TABLE, without its parentheses
 * @returns whether it was created
 */
export async function createPosternTable(session: SqlSession, { schema, name }: PosternTable, columns: string): Promise<boolean> {
  await session.query(LOCK);
  if ((await session.rows(FIND, [name])).length > 0) return false;
  if (schema !== undefined) await session.query(`CREATE SCHEMA IF NOT EXISTS ${schema}`);
  await session.query(`CREATE TABLE ${name} (${columns})`);
  await hideFromRestricted(session, name);
  return true;
}
