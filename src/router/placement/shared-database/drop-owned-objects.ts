import type pg from 'pg';
import type { BackendConnection } from '../../../backend/connection.ts';
import { runCommand } from '../../../backend/own-request.ts';

/** An object that a role owns, as identified by pg_identify_object. */
interface Owned {
  readonly id: string;
  readonly type: string;
  /** Its qualified name, quoted where needed. */
  readonly identity: string;
}

/** Limited, because each object needs an entry in the server's lock table until the transaction ends. */
const BATCH = 200;
const LAST_OID = 2 ** 32 - 1;

/** A role's objects in the session's database, the newest first; without those that depend on another, such as an identity's sequence. */
const OWNED = `
  SELECT d.objid::text AS id, o.type, o.identity
  FROM pg_catalog.pg_shdepend d, pg_catalog.pg_identify_object(d.classid, d.objid, 0) AS o
  WHERE d.refclassid = 'pg_catalog.pg_authid'::pg_catalog.regclass
    AND d.refobjid = (SELECT oid FROM pg_catalog.pg_roles WHERE rolname = $1)
    AND d.dbid = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())
    AND d.deptype = 'o' AND d.objid < $2::oid AND o.type = ANY ($3)
    AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend i WHERE i.classid = d.classid AND i.objid = d.objid AND i.deptype = 'i')
  ORDER BY d.objid DESC LIMIT ${BATCH}`;

/** Statements that drop the kinds of objects of which there can be many. */
const STATEMENTS: Readonly<Record<string, (owned: Owned) => string>> = {
  ...Object.fromEntries(
    [
      ['table', 'TABLE'],
      ['view', 'VIEW'],
      ['materialized view', 'MATERIALIZED VIEW'],
      ['foreign table', 'FOREIGN TABLE'],
      ['sequence', 'SEQUENCE'],
      ['type', 'TYPE'],
      ['composite type', 'TYPE'],
      ['function', 'ROUTINE'],
      ['procedure', 'ROUTINE'],
      ['aggregate', 'ROUTINE'],
      ['operator', 'OPERATOR'],
      ['collation', 'COLLATION'],
      ['conversion', 'CONVERSION'],
      ['statistics object', 'STATISTICS'],
      ['text search configuration', 'TEXT SEARCH CONFIGURATION'],
      ['text search dictionary', 'TEXT SEARCH DICTIONARY'],
    ].map(([type, words]) => [type, ({ identity }: Owned) => `DROP ${words} IF EXISTS ${identity} CASCADE`]),
  ),
  'large object': ({ id }) => `SELECT pg_catalog.lo_unlink(${id})`,
};

/**
 * Drops a role's objects with the role itself, some at a time. In one transaction they may need more locks than the server has,
 * so that DROP OWNED or DROP SCHEMA would always fail ("out of shared memory"). After this, few or none are left for these.
 * @param platform a session that may read pg_shdepend, in the same database
 * @see https://www.postgresql.org/docs/current/runtime-config-locks.html#GUC-MAX-LOCKS-PER-TRANSACTION
 */
export async function dropOwned(platform: pg.PoolClient, tenant: BackendConnection, role: string): Promise<void> {
  await runCommand(tenant, "SET search_path = ''; SET client_min_messages = error; SET lock_timeout = '10s'");
  for (let before = String(LAST_OID); ; ) {
    const { rows } = await platform.query<Owned>(OWNED, [role, before, Object.keys(STATEMENTS)]);
    const last = rows.at(-1);
    if (last === undefined) return;
    await runCommand(tenant, rows.map((owned) => STATEMENTS[owned.type]?.(owned)).join('; '));
    before = last.id;
  }
}
