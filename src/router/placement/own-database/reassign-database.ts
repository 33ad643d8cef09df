import pg from 'pg';
import { readerOf } from '../roles/reader-role.ts';
import { DEFAULT_PRIVILEGES, type DefaultPrivilege, defaultPrivilege, roleName, undone } from './default-privilege-statements.ts';

/** The roles that own or read a database, before and after it is given to another organization. */
export interface DatabaseReassignment {
  readonly from: string;
  readonly to: string;
  /** Whether there are readers' roles of both. */
  readonly hasReaders: boolean;
  readonly serverVersion: number;
}

/** A database still has objects of the organization that it was copied from; it must not be used. */
export class ForeignObjectError extends Error {
  override readonly name = 'ForeignObjectError';
}

/** What a role has been granted by the owner, as the rest of a GRANT: privilege and object. */
const GRANTED = `
  SELECT pg_catalog.format('%s ON %s', granted.privilege, granted.object) AS what, granted.is_grantable AS grantable
  FROM (
    SELECT CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END || pg_catalog.format(' %I.%I', n.nspname, c.relname) AS object,
      a.privilege_type AS privilege, a.is_grantable, a.grantee, c.relowner AS owner, a.grantor
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace, pg_catalog.aclexplode(c.relacl) a
    UNION ALL
    SELECT pg_catalog.format('TABLE %I.%I', n.nspname, c.relname), pg_catalog.format('%s (%I)', a.privilege_type, t.attname),
      a.is_grantable, a.grantee, c.relowner, a.grantor
    FROM pg_catalog.pg_attribute t JOIN pg_catalog.pg_class c ON c.oid = t.attrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace,
      pg_catalog.aclexplode(t.attacl) a
    WHERE NOT t.attisdropped
    UNION ALL
    SELECT pg_catalog.format('SCHEMA %I', n.nspname), a.privilege_type, a.is_grantable, a.grantee, n.nspowner, a.grantor
    FROM pg_catalog.pg_namespace n, pg_catalog.aclexplode(n.nspacl) a
    UNION ALL
    SELECT 'ROUTINE ' || p.oid::pg_catalog.regprocedure, a.privilege_type, a.is_grantable, a.grantee, p.proowner, a.grantor
    FROM pg_catalog.pg_proc p, pg_catalog.aclexplode(p.proacl) a
    UNION ALL
    SELECT pg_catalog.format('TYPE %I.%I', n.nspname, t.typname), a.privilege_type, a.is_grantable, a.grantee, t.typowner, a.grantor
    FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace, pg_catalog.aclexplode(t.typacl) a
    UNION ALL
    SELECT pg_catalog.format('LARGE OBJECT %s', l.oid), a.privilege_type, a.is_grantable, a.grantee, l.lomowner, a.grantor
    FROM pg_catalog.pg_largeobject_metadata l, pg_catalog.aclexplode(l.lomacl) a
  ) AS granted
  WHERE granted.grantee = pg_catalog.to_regrole($1) AND granted.owner = pg_catalog.to_regrole($2) AND granted.grantor = granted.owner`;

/** Policies that name one of two roles, with the roles that they are for; null: PUBLIC. */
const POLICIES = `
  SELECT pg_catalog.format('%I ON %I.%I', p.polname, n.nspname, c.relname) AS policy,
    ARRAY(SELECT CASE WHEN r <> 0 THEN pg_catalog.pg_get_userbyid(r)::pg_catalog.text END FROM pg_catalog.unnest(p.polroles) AS r) AS roles
  FROM pg_catalog.pg_policy p JOIN pg_catalog.pg_class c ON c.oid = p.polrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  WHERE p.polroles && ARRAY[pg_catalog.to_regrole($1)::pg_catalog.oid, pg_catalog.to_regrole($2)::pg_catalog.oid]`;

const OWNER_COLUMNS = {
  pg_class: 'relowner',
  pg_proc: 'proowner',
  pg_type: 'typowner',
  pg_namespace: 'nspowner',
  pg_operator: 'oprowner',
  pg_opclass: 'opcowner',
  pg_opfamily: 'opfowner',
  pg_collation: 'collowner',
  pg_conversion: 'conowner',
  pg_extension: 'extowner',
  pg_event_trigger: 'evtowner',
  pg_foreign_data_wrapper: 'fdwowner',
  pg_foreign_server: 'srvowner',
  pg_language: 'lanowner',
  pg_largeobject_metadata: 'lomowner',
  pg_publication: 'pubowner',
  pg_statistic_ext: 'stxowner',
  pg_ts_config: 'cfgowner',
  pg_ts_dict: 'dictowner',
  pg_default_acl: 'defaclrole',
};

const OWNED = Object.entries(OWNER_COLUMNS)
  .map(([catalog, column]) => `SELECT '${catalog}' AS catalog FROM pg_catalog.${catalog} WHERE ${column} = pg_catalog.to_regrole($1)`)
  .join(' UNION ALL ');

/**
 * Gives everything in a database to another organization: ownership, its readers' privileges, default privileges and policies. It
 * changes catalogs only, so no function, trigger or index expression of the organization is executed.
 * @param session of the platform role, in the database, with an empty search path
 * @throws ForeignObjectError if anything still belongs to the former owner
 */
export async function reassignDatabase(session: pg.Client, { from, to, hasReaders, serverVersion }: DatabaseReassignment): Promise<void> {
  const member = serverVersion >= 160_000 ? ' WITH INHERIT TRUE, SET TRUE' : '';
  const [old, own] = [pg.escapeIdentifier(from), pg.escapeIdentifier(to)];
  const renamed = new Map([[from, to], ...(hasReaders ? [[readerOf(from), readerOf(to)] as const] : [])]);
  const newName = (role: string | null) => roleName(role === null ? null : (renamed.get(role) ?? role));
  await session.query(`BEGIN; GRANT ${old}, ${own} TO CURRENT_USER${member}`);
  // The new owner of an object has to be able to create it in its schema.
  const { rows: schemas } = await session.query<{ name: string }>(
    'SELECT nspname AS name FROM pg_catalog.pg_namespace WHERE nspowner = pg_catalog.to_regrole($1)',
    [from],
  );
  for (const { name } of schemas) await session.query(`ALTER SCHEMA ${pg.escapeIdentifier(name)} OWNER TO ${own}`);
  await session.query(`REASSIGN OWNED BY ${old} TO ${own}`);
  if (hasReaders) await changeReader(session, readerOf(from), readerOf(to), to);
  const { rows: defaults } = await session.query<DefaultPrivilege>(DEFAULT_PRIVILEGES, [from]);
  for (const privilege of defaults) await session.query(defaultPrivilege(to, privilege, newName(privilege.grantee)));
  for (const privilege of defaults) await session.query(defaultPrivilege(from, undone(privilege), roleName(privilege.grantee)));
  const { rows: policies } = await session.query<{ policy: string; roles: readonly (string | null)[] }>(POLICIES, [from, readerOf(from)]);
  for (const { policy, roles } of policies) await session.query(`ALTER POLICY ${policy} TO ${roles.map(newName).join(', ')}`);
  await session.query(`REVOKE ${old}, ${own} FROM CURRENT_USER`);
  const { rows: left } = await session.query<{ catalog: string }>(OWNED, [from]);
  if (left.length > 0)
    throw new ForeignObjectError(`the copy has objects of ${from} in ${[...new Set(left.map(({ catalog }) => catalog))].join(', ')}`);
  await session.query('COMMIT');
}

async function changeReader(session: pg.Client, from: string, to: string, owner: string): Promise<void> {
  const { rows } = await session.query<{ what: string; grantable: boolean }>(GRANTED, [from, owner]);
  for (const { what, grantable } of rows) {
    await session.query(`GRANT ${what} TO ${pg.escapeIdentifier(to)}${grantable ? ' WITH GRANT OPTION' : ''}`);
    await session.query(`REVOKE ${what} FROM ${pg.escapeIdentifier(from)} CASCADE`);
  }
}
