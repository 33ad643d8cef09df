import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import type { BackendConnection } from '../backend/connection.ts';
import { runCommand } from '../backend/own-request.ts';
import type { RestrictedScope } from '../catalog/key-rows.ts';
import type { Placement } from '../catalog/organization.ts';
import { ServiceError } from '../errors.ts';
import { codeOf } from '../protocol/backend.ts';
import { withSession } from './admin-connection.ts';
import type { Cluster, Platform } from './cluster.ts';
import { FIND_HARDENED_DATABASE, hardenOpenDatabase, TEMPLATE } from './database-template.ts';
import { mayNotWrite } from './disk-quota.ts';
import { isLimited, roleExists } from './platform-role.ts';
import type { PlacementProvisioner, ProvisionerOptions } from './provisioner.ts';
import {
  admit,
  asRestricted,
  isRestrictedRole,
  ownPlacement,
  RESTRICTED_SUFFIX,
  restrictedRole,
  restrictedRoles,
  restrictedScopesOf,
  rolesOf,
} from './restricted-roles.ts';
import { applySettings, describeProcesses, Roles, type RunningProcess, readSettings, StillRunningError } from './roles.ts';
import { isUsable, TenantLogins } from './tenant-login.ts';

/**
 * `public` as initdb creates it; any difference would show in a dump. The tenant's role runs this at its first login, and
 * whenever it has dropped or renamed the schema, or has revoked its own privileges on it.
 */
export const MAKE_PUBLIC = `CREATE SCHEMA IF NOT EXISTS public; GRANT ALL ON SCHEMA public TO CURRENT_USER; GRANT USAGE ON SCHEMA public TO PUBLIC;
  COMMENT ON SCHEMA public IS 'standard public schema'`;

const DROP_TIMEOUT_MS = 10_000;
const DROP_AGAIN_MS = 100;
const START_TIMEOUT_MS = 5_000;
const START_AGAIN_MS = 10;
const QUERY_CANCELED = '57014';
const INSUFFICIENT_PRIVILEGE = '42501';

/** A database for each organization, owned by the platform role; the organization's role may connect and create in it. */
export class DatabaseProvisioner implements PlacementProvisioner {
  readonly #platform: Platform;
  readonly #roles: Roles;
  readonly #logins: TenantLogins;

  constructor({ platform, connectionLimit, limits, observe }: ProvisionerOptions) {
    const { cluster } = platform;
    this.#platform = platform;
    this.#roles = new Roles(cluster, connectionLimit);
    const role = (placement: Placement) => this.#repairRole(placement);
    const rights = (placement: Placement) => this.#repairRights(placement);
    const limit = ({ role, database }: Placement) => this.#platform.alone(database, (session) => this.#roles.raiseLimit(session, role));
    this.#logins = new TenantLogins({
      platform,
      protection: { find: (placement) => findProtected(placement, cluster), restore: (placement) => this.#protect(placement) },
      limits,
      observe,
      remedies: { '28P01': role, '28000': role, '42501': rights, '53300': limit },
    });
  }

  placementFor(organizationId: string): Placement {
    const { name } = this.#platform.cluster;
    return { kind: 'database', cluster: name, database: organizationId, schema: 'public', role: organizationId };
  }

  async provision(placement: Placement, restricted: readonly RestrictedScope[] = []): Promise<void> {
    await this.#platform.alone(placement.role, async (session) => {
      await session.query((await this.#roles.statementsFor(session, placement.role)).join('; '));
      await ensureDatabase(session, placement);
      await grant(session, placement);
      for (const scope of restricted) {
        const other = asRestricted(placement, scope);
        await session.query((await this.#roles.statementsFor(session, other.role)).join('; '));
        await grant(session, other);
      }
    });
    const backend = await this.open(placement);
    backend.end();
  }

  async deprovision({ role, database }: Placement): Promise<void> {
    const name = pg.escapeIdentifier(database);
    await this.#platform.alone(role, async (session) => {
      const found = await findDatabase(session, database);
      if (found?.valid) await session.query(`ALTER DATABASE ${name} WITH ALLOW_CONNECTIONS false`);
      const roles = rolesOf(role);
      const running: RunningProcess[] = [];
      for (const one of roles) if (await roleExists(session, one)) running.push(...(await this.#roles.sessions.endSessions(session, one)));
      if (running.length > 0) throw new StillRunningError(describeProcesses(running));
      if (found !== undefined) await dropDatabase(session, name);
      await session.query(`DROP ROLE IF EXISTS ${roles.map(pg.escapeIdentifier).join(', ')}`);
    });
  }

  removeCopy({ role, database }: Placement): Promise<void> {
    const name = pg.escapeIdentifier(database);
    return this.#platform.alone(role, async (session) => {
      const found = await findDatabase(session, database);
      if (found?.valid) await session.query(`ALTER DATABASE ${name} WITH ALLOW_CONNECTIONS false`);
      if (found !== undefined) await dropDatabase(session, name);
    });
  }

  close({ role, database }: Placement): Promise<void> {
    return this.#platform.alone(role, async (session) => {
      await session.query(`ALTER DATABASE ${pg.escapeIdentifier(database)} WITH ALLOW_CONNECTIONS false`);
      await untilNoneStarts(session, database);
    });
  }

  reopen({ role, database }: Placement): Promise<void> {
    return this.#platform.alone(role, async (session) => {
      await session.query(`ALTER DATABASE ${pg.escapeIdentifier(database)} WITH ALLOW_CONNECTIONS true`);
    });
  }

  async copy(source: Placement, copy: Placement, timeoutMs: number): Promise<void> {
    await this.#platform.alone(copy.role, async (session) => {
      const scopes = await restrictedScopesOf(session, source.role);
      const roles = [copy.role, ...scopes.map((scope) => restrictedRole(copy.role, scope))];
      for (const role of roles) await session.query((await this.#roles.statementsFor(session, role)).join('; '));
      await copyDatabase(session, source.database, copy.database, timeoutMs);
      for (const role of roles) await grant(session, { ...copy, role });
    });
  }

  async adopt(source: Placement, copy: Placement): Promise<void> {
    const { cluster } = this.#platform;
    const { host, port, hosts, ssl, platform, serverVersion } = cluster;
    const settings = await this.#platform.alone(copy.role, async (control) => {
      const restricted = await restrictedScopesOf(control, copy.role);
      await withSession({ host, port, hosts, ssl, ...platform, database: copy.database }, (session) =>
        reassignDatabase(session, { from: source.role, to: copy.role, restricted, serverVersion }),
      );
      return readSettings(control, source, Object.keys(cluster.roleSettings));
    });
    const backend = await this.open(copy);
    try {
      await applySettings(backend, copy, settings);
    } finally {
      backend.end();
    }
  }

  async admit(placement: Placement, scope: RestrictedScope): Promise<void> {
    const restricted = asRestricted(placement, scope);
    await this.#repairRole(restricted);
    await this.#repairRights(restricted);
    await admit(this.#platform, placement, scope, () => this.open(placement));
    const backend = await this.open(restricted);
    backend.end();
  }

  open(placement: Placement, signal?: AbortSignal): Promise<BackendConnection> {
    // Nothing is restored for restricted roles: what they may do is what their organization has left them.
    const furnish = async (backend: BackendConnection) => {
      if (!isRestrictedRole(placement.role)) await this.#ensurePublic(backend, placement);
    };
    return this.#logins.open(placement, furnish, signal);
  }

  async #ensurePublic(backend: BackendConnection, placement: Placement): Promise<void> {
    if (await isUsable(backend, placement.schema)) return;
    if (await mayNotWrite(async (select) => (await runCommand(backend, select)) === 'SELECT 1')) return;
    try {
      await runCommand(backend, MAKE_PUBLIC);
    } catch (error) {
      // Another session of the same organization has created it meanwhile.
      if (await isUsable(backend, placement.schema)) return;
      if (!(await this.#logins.heal(placement, error))) throw error;
      await runCommand(backend, MAKE_PUBLIC);
    }
  }

  #repairRole({ role, database }: Placement): Promise<boolean> {
    return this.#platform.alone(database, (session) => this.#roles.repair(session, role));
  }

  /** A restored database may have other privileges, and its catalogs are as PostgreSQL makes them. */
  #protect(placement: Placement): Promise<void> {
    const { cluster } = this.#platform;
    const { database } = placement;
    const own = ownPlacement(placement);
    return this.#platform.alone(database, async (session) => {
      for (const role of rolesOf(own.role)) if (await roleExists(session, role)) await grant(session, { ...own, role });
      if (cluster.superuser !== undefined)
        await withSession({ ...cluster.superuser, database }, (there) => hardenOpenDatabase(there, cluster.allowXpath));
    });
  }

  /** Restores privileges on the database, except for an organization that is being dropped. */
  #repairRights(placement: Placement): Promise<boolean> {
    return this.#platform.alone(placement.database, async (session) => {
      if (!(await roleExists(session, placement.role))) return false;
      await grant(session, placement);
      return true;
    });
  }
}

/** A SELECT that returns a row if nobody may do more in the session's database than {@link grant} lets him, and it is hardened. */
function findProtected(placement: Placement, { superuser, isHardened }: Cluster): string {
  const restricted = restrictedRoles(ownPlacement(placement).role).map((role) => `pg_catalog.to_regrole(${pg.escapeLiteral(role)})`);
  const rights = `NOT EXISTS (SELECT FROM pg_catalog.pg_database d,
      pg_catalog.aclexplode(coalesce(d.datacl, pg_catalog.acldefault('d', d.datdba))) AS a
    WHERE d.datname = pg_catalog.current_database()
      AND (a.grantee = 0 OR a.grantee IN (${restricted.join()}) AND a.privilege_type = 'TEMPORARY'))`;
  // Where nobody can harden anything, the service has said so when it started.
  if (superuser === undefined && !isHardened) return `SELECT WHERE ${rights}`;
  return `${FIND_HARDENED_DATABASE} AND ${rights}`;
}

async function ensureDatabase(session: pg.PoolClient, placement: Placement): Promise<void> {
  const database = pg.escapeIdentifier(placement.database);
  const found = await findDatabase(session, placement.database);
  if (found?.valid) return;
  if (found !== undefined) await session.query(`DROP DATABASE ${database}`);
  await session.query(`CREATE DATABASE ${database} TEMPLATE ${TEMPLATE} STRATEGY wal_log`);
}

/** DROP DATABASE waits until all processes of the server have closed their files; one that ignores signals does not. */
async function dropDatabase(session: pg.PoolClient, name: string): Promise<void> {
  const deadline = performance.now() + DROP_TIMEOUT_MS;
  await session.query(`SET statement_timeout = ${DROP_TIMEOUT_MS}`);
  for (;;) {
    try {
      await session.query(`DROP DATABASE IF EXISTS ${name} WITH (FORCE)`);
      break;
    } catch (error) {
      if (codeOf(error) === QUERY_CANCELED) throw new StillRunningError('a process, of any organization, that ignores signals');
      if (codeOf(error) !== INSUFFICIENT_PRIVILEGE) throw error;
      // Autovacuum, and a start of the service that hardens the catalogs, run there as a superuser, whose sessions the platform role cannot end.
      if (performance.now() > deadline) throw new StillRunningError('a session of a superuser');
      await delay(DROP_AGAIN_MS);
    }
  }
  await session.query('RESET statement_timeout');
}

/** A session that starts has a lock on the database from before it sees whether it may connect until it is in pg_stat_activity. */
async function untilNoneStarts(session: pg.PoolClient, database: string): Promise<void> {
  const deadline = performance.now() + START_TIMEOUT_MS;
  const starting = `SELECT FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_database d ON d.oid = l.objid
    WHERE l.locktype = 'object' AND l.classid = 'pg_catalog.pg_database'::pg_catalog.regclass AND d.datname = $1`;
  while ((await session.query(starting, [database])).rows.length > 0) {
    if (performance.now() > deadline) throw new StillRunningError('a session that starts');
    await delay(START_AGAIN_MS);
  }
}

/**
 * The template's own ACL is not copied. Restricted roles may create nothing temporary: pg_temp is searched first, also in the organization's
 * SECURITY DEFINER functions, which would run what they have put there.
 */
export async function grant(session: pg.ClientBase, placement: Placement): Promise<void> {
  const [role, database] = [pg.escapeIdentifier(placement.role), pg.escapeIdentifier(placement.database)];
  const rights = isRestrictedRole(placement.role)
    ? `REVOKE TEMPORARY ON DATABASE ${database} FROM ${role}; GRANT CONNECT ON DATABASE ${database} TO ${role}`
    : `GRANT CONNECT, CREATE${(await isLimited(session, placement.role)) ? '' : ', TEMPORARY'} ON DATABASE ${database} TO ${role}`;
  await session.query(`REVOKE ALL ON DATABASE ${database} FROM PUBLIC; ${rights}`);
}

/** Takes from restricted roles what an earlier version has granted them. @param admin a session in any database */
export async function takeTemporaryFromRestricted(admin: pg.Client, owner: string): Promise<void> {
  const { rows } = await admin.query<{ database: string; role: string }>(
    `SELECT d.datname AS database, r.rolname AS role
     FROM pg_catalog.pg_database d, pg_catalog.aclexplode(d.datacl) AS a JOIN pg_catalog.pg_roles r ON r.oid = a.grantee
     WHERE a.privilege_type = 'TEMPORARY' AND r.rolname ~ ('^' || d.datname || $2)
       AND d.datconnlimit <> -2 AND pg_catalog.pg_get_userbyid(d.datdba) = $1`,
    [owner, `${RESTRICTED_SUFFIX}$`],
  );
  for (const { database, role } of rows)
    await admin.query(`REVOKE TEMPORARY ON DATABASE ${pg.escapeIdentifier(database)} FROM ${pg.escapeIdentifier(role)}`);
}

/** A database whose DROP was interrupted exists but is invalid, and can only be dropped again. */
async function findDatabase(session: pg.PoolClient, database: string): Promise<{ readonly valid: boolean } | undefined> {
  const { rows } = await session.query<{ valid: boolean }>(
    'SELECT datconnlimit <> -2 AS valid FROM pg_catalog.pg_database WHERE datname = $1',
    [database],
  );
  return rows[0];
}

const OBJECT_IN_USE = '55006';

/**
 * Copies a database with all that is in it. Nobody may have a session there; while it is copied, nobody can log in.
 * @throws ServiceError `organization_busy`, `statement_timeout`
 */
async function copyDatabase(session: pg.PoolClient, source: string, copy: string, timeoutMs: number): Promise<void> {
  await session.query(`SET statement_timeout = ${timeoutMs}`);
  try {
    const names = `${pg.escapeIdentifier(copy)} TEMPLATE ${pg.escapeIdentifier(source)}`;
    await session.query(`CREATE DATABASE ${names} STRATEGY wal_log`);
  } catch (cause) {
    if (codeOf(cause) === OBJECT_IN_USE) {
      throw new ServiceError('organization_busy', 'a session in the database has not ended', { cause, retryAfterS: 5 });
    }
    if (codeOf(cause) !== QUERY_CANCELED) throw cause;
    throw new ServiceError('statement_timeout', `the database could not be copied within ${timeoutMs} ms`, { cause });
  }
  await session.query('RESET statement_timeout');
}

/** The roles that own or use a database, before and after it is given to another organization. */
interface DatabaseReassignment {
  readonly from: string;
  readonly to: string;
  /** For which both have roles. */
  readonly restricted: readonly RestrictedScope[];
  readonly serverVersion: number;
}

/** A database still has objects of the organization that it was copied from; it must not be used. */
class ForeignObjectError extends Error {
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

/** Policies that name one of some roles, with the roles that they are for; null: PUBLIC. */
const POLICIES = `
  SELECT pg_catalog.format('%I ON %I.%I', p.polname, n.nspname, c.relname) AS policy,
    ARRAY(SELECT CASE WHEN r <> 0 THEN pg_catalog.pg_get_userbyid(r)::pg_catalog.text END FROM pg_catalog.unnest(p.polroles) AS r) AS roles
  FROM pg_catalog.pg_policy p JOIN pg_catalog.pg_class c ON c.oid = p.polrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  WHERE p.polroles && ARRAY(SELECT pg_catalog.to_regrole(role)::pg_catalog.oid FROM pg_catalog.unnest($1::pg_catalog.text[]) AS role)`;

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
 * Gives everything in a database to another organization: ownership, the privileges of its restricted roles, default privileges and policies. It
 * changes catalogs only, so no function, trigger or index expression of the organization is executed.
 * @param session of the platform role, in the database, with an empty search path
 * @throws ForeignObjectError if anything still belongs to the former owner
 */
async function reassignDatabase(session: pg.Client, { from, to, restricted, serverVersion }: DatabaseReassignment): Promise<void> {
  const member = serverVersion >= 160_000 ? ' WITH INHERIT TRUE, SET TRUE' : '';
  const [old, own] = [pg.escapeIdentifier(from), pg.escapeIdentifier(to)];
  const renamed = new Map([[from, to], ...restricted.map((scope) => [restrictedRole(from, scope), restrictedRole(to, scope)] as const)]);
  const newName = (role: string | null) => roleName(role === null ? null : (renamed.get(role) ?? role));
  await session.query(`BEGIN; GRANT ${old}, ${own} TO CURRENT_USER${member}`);
  // The new owner of an object has to be able to create it in its schema.
  const { rows: schemas } = await session.query<{ name: string }>(
    'SELECT nspname AS name FROM pg_catalog.pg_namespace WHERE nspowner = pg_catalog.to_regrole($1)',
    [from],
  );
  for (const { name } of schemas) await session.query(`ALTER SCHEMA ${pg.escapeIdentifier(name)} OWNER TO ${own}`);
  await session.query(`REASSIGN OWNED BY ${old} TO ${own}`);
  for (const [one, other] of renamed) {
    if (one === from) continue;
    await changeGrantee(session, one, other, to);
    await removeDefaults(session, one, member);
  }
  const { rows: defaults } = await session.query<DefaultPrivilege>(DEFAULT_PRIVILEGES, [from]);
  for (const privilege of defaults) await session.query(defaultPrivilege(to, privilege, newName(privilege.grantee)));
  for (const privilege of defaults) await session.query(defaultPrivilege(from, undone(privilege), roleName(privilege.grantee)));
  const { rows: policies } = await session.query<{ policy: string; roles: readonly (string | null)[] }>(POLICIES, [[...renamed.keys()]]);
  for (const { policy, roles } of policies) await session.query(`ALTER POLICY ${policy} TO ${roles.map(newName).join(', ')}`);
  await session.query(`REVOKE ${old}, ${own} FROM CURRENT_USER`);
  const { rows: left } = await session.query<{ catalog: string }>(OWNED, [from]);
  if (left.length > 0)
    throw new ForeignObjectError(`the copy has objects of ${from} in ${[...new Set(left.map(({ catalog }) => catalog))].join(', ')}`);
  await session.query('COMMIT');
}

/** What a restricted role has set for what it would create. It can create nothing, but the role could not be dropped for it. */
async function removeDefaults(session: pg.Client, role: string, member: string): Promise<void> {
  const { rows } = await session.query<DefaultPrivilege>(DEFAULT_PRIVILEGES, [role]);
  if (rows.length === 0) return;
  const name = pg.escapeIdentifier(role);
  await session.query(`GRANT ${name} TO CURRENT_USER${member}`);
  for (const privilege of rows) await session.query(defaultPrivilege(role, undone(privilege), roleName(privilege.grantee)));
  await session.query(`REVOKE ${name} FROM CURRENT_USER`);
}

async function changeGrantee(session: pg.Client, from: string, to: string, owner: string): Promise<void> {
  const { rows } = await session.query<{ what: string; grantable: boolean }>(GRANTED, [from, owner]);
  for (const { what, grantable } of rows) {
    await session.query(`GRANT ${what} TO ${pg.escapeIdentifier(to)}${grantable ? ' WITH GRANT OPTION' : ''}`);
    await session.query(`REVOKE ${what} FROM ${pg.escapeIdentifier(from)} CASCADE`);
  }
}

const OBJECTS = {
  r: 'TABLES',
  S: 'SEQUENCES',
  f: 'FUNCTIONS',
  T: 'TYPES',
  n: 'SCHEMAS',
  L: 'LARGE OBJECTS',
} as const;

interface DefaultPrivilege {
  readonly kind: keyof typeof OBJECTS;
  readonly schema: string | null;
  /** Whether it is granted beyond the server's defaults, or one of these is taken away. */
  readonly isGranted: boolean;
  /** null: PUBLIC. */
  readonly grantee: string | null;
  readonly privilege: string;
  readonly grantable: boolean;
}

/** How the default privileges of a role differ from the server's defaults. */
const DEFAULT_PRIVILEGES = `
  SELECT d.defaclobjtype AS kind, n.nspname AS schema, difference.is_granted AS "isGranted",
    CASE WHEN difference.grantee <> 0 THEN pg_catalog.pg_get_userbyid(difference.grantee) END AS grantee,
    difference.privilege_type AS privilege, difference.is_grantable AS grantable
  FROM pg_catalog.pg_default_acl d LEFT JOIN pg_catalog.pg_namespace n ON n.oid = d.defaclnamespace,
    LATERAL (SELECT CASE WHEN d.defaclnamespace = 0 THEN pg_catalog.acldefault(
      CASE d.defaclobjtype WHEN 'S' THEN 's' ELSE d.defaclobjtype END, d.defaclrole) END AS acl) AS usual,
    LATERAL (
      (SELECT true AS is_granted, a.grantee, a.privilege_type, a.is_grantable FROM pg_catalog.aclexplode(d.defaclacl) a
       EXCEPT SELECT true, u.grantee, u.privilege_type, u.is_grantable FROM pg_catalog.aclexplode(usual.acl) u)
      UNION ALL
      (SELECT false, u.grantee, u.privilege_type, u.is_grantable FROM pg_catalog.aclexplode(usual.acl) u
       EXCEPT SELECT false, a.grantee, a.privilege_type, a.is_grantable FROM pg_catalog.aclexplode(d.defaclacl) a)
    ) AS difference
  WHERE d.defaclrole = pg_catalog.to_regrole($1)
  ORDER BY difference.is_granted`;

/**
 * Statements that give a role in another database the default privileges that it has in this one, except those of single schemas.
 * @param session in the database, with an empty search path
 */
export async function defaultPrivilegesOf(session: pg.Client, role: string): Promise<string[]> {
  const { rows } = await session.query<DefaultPrivilege>(DEFAULT_PRIVILEGES, [role]);
  const general = rows.filter(({ schema }) => schema === null);
  return general.map((privilege) => defaultPrivilege(role, privilege, roleName(privilege.grantee)));
}

/** @param role null: PUBLIC */
function roleName(role: string | null): string {
  return role === null ? 'PUBLIC' : pg.escapeIdentifier(role);
}

function undone(privilege: DefaultPrivilege): DefaultPrivilege {
  return { ...privilege, isGranted: !privilege.isGranted };
}

function defaultPrivilege(role: string, { kind, schema, isGranted, privilege, grantable }: DefaultPrivilege, grantee: string): string {
  const place = schema === null ? '' : ` IN SCHEMA ${pg.escapeIdentifier(schema)}`;
  const change = isGranted
    ? `GRANT ${privilege} ON ${OBJECTS[kind]} TO ${grantee}${grantable ? ' WITH GRANT OPTION' : ''}`
    : `REVOKE ${privilege} ON ${OBJECTS[kind]} FROM ${grantee}`;
  return `ALTER DEFAULT PRIVILEGES FOR ROLE ${pg.escapeIdentifier(role)}${place} ${change}`;
}
