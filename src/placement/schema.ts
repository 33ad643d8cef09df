import pg from 'pg';
import { rolePassword } from '../auth/derived-secrets.ts';
import { BackendConnection } from '../backend/connection.ts';
import { runCommand } from '../backend/own-request.ts';
import type { RestrictedScope } from '../catalog/key-rows.ts';
import type { Placement } from '../catalog/organization.ts';
import { type RoleLogin, withSession } from './admin-connection.ts';
import { hasCitus, runOnWorkers } from './citus.ts';
import { checkWorker, forgetLogin, letLogin } from './citus-setup.ts';
import { type Cluster, type Platform, sessionOptions } from './cluster.ts';
import { grant } from './database.ts';
import { forgetDropped, mayNotWrite } from './disk-quota.ts';
import { findSharedDatabaseRights, isLimited, roleExists, sharedDatabaseRights } from './platform-role.ts';
import type { PlacementProvisioner, ProvisionerOptions } from './provisioner.ts';
import { admit, asRestricted, isRestrictedRole, mayUse, restrictedRole, restrictedScopesOf, rolesOf } from './restricted-roles.ts';
import { describeProcesses, Roles, StillRunningError } from './roles.ts';
import { findHardenedShared, hardenOpenShared } from './shared-database.ts';
import { isUsable, movedAway, TenantLogins } from './tenant-login.ts';

/** The comment on a schema whose organization is served elsewhere. */
const CLOSED = "'The organization has been moved.'";

/**
 * A schema for each organization in one shared database. The platform role owns the schema, so that the organization can
 * neither drop it nor open it to others; its role may use it and create in it, and owns what it creates.
 */
export class SchemaProvisioner implements PlacementProvisioner {
  readonly #options: ProvisionerOptions;
  readonly #platform: Platform;
  readonly #roles: Roles;
  readonly #logins: TenantLogins;

  constructor(options: ProvisionerOptions) {
    const { platform, connectionLimit, limits, observe } = options;
    const { cluster } = platform;
    this.#options = options;
    this.#platform = platform;
    this.#roles = new Roles(cluster, connectionLimit);
    const role = (placement: Placement) => this.#repairRole(placement);
    const limit = ({ role, schema }: Placement) => this.#platform.alone(schema, (session) => this.#roles.raiseLimit(session, role));
    this.#logins = new TenantLogins({
      platform,
      protection: { find: () => findProtected(cluster), restore: ({ database }) => this.#protect(database) },
      limits,
      observe,
      remedies: { '28P01': role, '28000': role, '53300': limit },
    });
  }

  placementFor(organizationId: string): Placement {
    const { name, sharedDatabase } = this.#platform.cluster;
    return { kind: 'schema', cluster: name, database: sharedDatabase, schema: organizationId, role: organizationId };
  }

  async provision(placement: Placement, restricted: readonly RestrictedScope[] = []): Promise<void> {
    await this.#platform.aloneInShared(placement.role, async (shared) => {
      const isDistributed = await hasCitus(shared);
      const role = await this.#roles.statementsFor(shared, placement.role);
      const login = isDistributed ? this.#loginStatements(placement.role) : [];
      const forRestricted: string[] = [];
      for (const scope of restricted) {
        const other = asRestricted(placement, scope);
        forRestricted.push(...(await this.#roles.statementsFor(shared, other.role)), ...schemaStatements(other, isDistributed));
      }
      const rights = schemaStatements(placement, isDistributed, await isLimited(shared, placement.role));
      await run(shared, isDistributed, [...role, ...login, ...rights, ...forRestricted]);
    });
  }

  /** The organization's objects are dropped with its own role, the platform's with the platform role. */
  async deprovision(placement: Placement): Promise<void> {
    const schema = pg.escapeIdentifier(placement.schema);
    const { cluster } = this.#platform;
    await this.#platform.aloneInShared(placement.role, async (shared, control) => {
      const wasLimited = await isLimited(control, placement.role);
      const isDistributed = await hasCitus(shared);
      if (isDistributed) await checkWorker(shared, placement.schema);
      const statements = [`DROP SCHEMA IF EXISTS ${schema} CASCADE`];
      for (const role of rolesOf(placement.role)) {
        if (!(await roleExists(control, role))) continue;
        const { secret, running } = await this.#roles.takeOver(control, role, shared);
        if (running.length > 0) throw new StillRunningError(describeProcesses(running));
        if (isDistributed) await this.#takeOverOnWorkers(shared, role, secret);
        // Its own session has to find its objects there.
        if (await isClosed(shared, placement.schema)) await shared.query(`GRANT USAGE ON SCHEMA ${schema} TO ${pg.escapeIdentifier(role)}`);
        await this.#empty(shared, { ...placement, role }, secret);
        // A session that authenticated with the old password just before the change may have started meanwhile.
        await this.#roles.sessions.endSessions(control, role);
        const name = pg.escapeIdentifier(role);
        statements.push(`DROP OWNED BY ${name} CASCADE`, ...(isDistributed ? [forgetLogin(role)] : []), `DROP ROLE ${name}`);
      }
      await run(shared, isDistributed, statements);
      if (wasLimited && cluster.superuser !== undefined) await forgetDropped({ cluster, placement });
    });
  }

  async removeCopy(copy: Placement, kept: Placement): Promise<void> {
    const { role, database, schema } = copy;
    await this.#platform.aloneInShared(role, async (shared, control) => {
      if (!(await schemaExists(shared, schema))) return;
      // It may be closed. Without CREATE it stays so for others.
      await shared.query(`GRANT USAGE ON SCHEMA ${pg.escapeIdentifier(schema)} TO ${pg.escapeIdentifier(role)}`);
      const tenant = await this.#logins.open(copy, async () => {});
      try {
        await dropOwned(shared, tenant, role);
        await runCommand(tenant, `ALTER ROLE CURRENT_USER IN DATABASE ${pg.escapeIdentifier(database)} RESET ALL`);
      } finally {
        tenant.end();
      }
      await shared.query(`DROP SCHEMA IF EXISTS ${pg.escapeIdentifier(schema)} CASCADE`);
      await this.#forget(shared, control, role, kept);
    });
  }

  close(placement: Placement): Promise<void> {
    const { role, schema } = placement;
    return this.#platform.aloneInShared(role, async (shared) => {
      const name = pg.escapeIdentifier(schema);
      const restricted = (await restrictedScopesOf(shared, role)).map((scope) => restrictedRole(role, scope));
      const roles = [role, ...restricted].map(pg.escapeIdentifier).join(', ');
      await shared.query(`BEGIN; REVOKE ALL ON SCHEMA ${name} FROM ${roles}; COMMENT ON SCHEMA ${name} IS ${CLOSED}; COMMIT`);
    });
  }

  reopen(placement: Placement): Promise<void> {
    const { role, schema } = placement;
    return this.#platform.aloneInShared(role, async (shared) => {
      if (await isClosed(shared, schema))
        await run(shared, false, [
          `COMMENT ON SCHEMA ${pg.escapeIdentifier(schema)} IS NULL`,
          ...schemaStatements(placement, false, await isLimited(shared, role)),
        ]);
    });
  }

  /** Removes what grants and default privileges in the shared database have of the organization's roles; the roles stay. */
  async #forget(shared: pg.PoolClient, control: pg.PoolClient, role: string, kept: Placement): Promise<void> {
    for (const one of rolesOf(role)) {
      if (!(await roleExists(control, one))) continue;
      const name = pg.escapeIdentifier(one);
      // It revokes rights on the database that the organization has too; these are granted again before anybody notices.
      await shared.query(`BEGIN; ${this.#roles.sessions.join(one)}; DROP OWNED BY ${name} CASCADE`);
      if (kept.kind === 'database' && kept.cluster === this.#platform.cluster.name) await grant(shared, { ...kept, role: one });
      await shared.query(`REVOKE ${name} FROM CURRENT_USER; COMMIT`);
    }
  }

  async admit(placement: Placement, scope: RestrictedScope): Promise<void> {
    const restricted = asRestricted(placement, scope);
    await this.#repairRole(restricted);
    await admit(this.#platform, placement, scope, () => this.open(placement));
    if (!(await this.#repairSchema(restricted))) throw movedAway();
    const backend = await this.open(restricted);
    backend.end();
  }

  open(placement: Placement, signal?: AbortSignal): Promise<BackendConnection> {
    return this.#logins.open(placement, (backend) => this.#ensureSchema(backend, placement), signal);
  }

  /** The schema is the platform's, so an organization can neither drop it nor take it from its restricted roles. */
  async #ensureSchema(backend: BackendConnection, placement: Placement): Promise<void> {
    if (await (isRestrictedRole(placement.role) ? mayUse : isUsable)(backend, placement.schema)) return;
    // One that may not write may use the schema, and not create in it.
    const isFound = async (select: string) => (await runCommand(backend, select)) === 'SELECT 1';
    if ((await mayUse(backend, placement.schema)) && (await mayNotWrite(isFound))) return;
    if (!(await this.#logins.apply(placement, () => this.#repairSchema(placement)))) throw movedAway();
  }

  /** The shared database may have been restored. */
  #protect(database: string): Promise<void> {
    const { cluster } = this.#platform;
    const { platform, superuser, serverVersion: version, hasOwnersRole, allowXpath, secret } = cluster;
    return this.#platform.alone(database, async (session) => {
      const { user: owner } = platform;
      if (superuser === undefined) await session.query(sharedDatabaseRights(database, hasOwnersRole));
      else {
        const options = { owner, superuser: true, version, hasOwnersRole, allowXpath, secret };
        await withSession({ ...superuser, database }, (there) => hardenOpenShared(there, options));
      }
    });
  }

  #repairRole({ role, schema }: Placement): Promise<boolean> {
    return this.#platform.aloneInShared(schema, async (shared) => {
      if (!(await this.#roles.repair(shared, role))) return false;
      if (await hasCitus(shared)) await run(shared, true, this.#loginStatements(role));
      return true;
    });
  }

  /** @returns false if the organization is not served here any more */
  #repairSchema(placement: Placement): Promise<boolean> {
    return this.#platform.aloneInShared(placement.schema, async (shared) => {
      if (!(await roleExists(shared, placement.role)) || (await isClosed(shared, placement.schema))) return false;
      const isDistributed = await hasCitus(shared);
      if (isDistributed) await checkWorker(shared, placement.schema);
      await run(shared, isDistributed, schemaStatements(placement, isDistributed, await isLimited(shared, placement.role)));
      return true;
    });
  }

  /** The platform role is no object of Citus, so its memberships are not passed on to other nodes. */
  async #takeOverOnWorkers(shared: pg.PoolClient, role: string, secret: string): Promise<void> {
    await run(shared, true, [letLogin(loginOf(role, secret))]);
    await runOnWorkers(shared, this.#roles.sessions.join(role));
  }

  /** With Citus: the login at other nodes, and triggers, which Citus refuses unless their author answers for them. */
  #loginStatements(role: string): string[] {
    const triggers = `ALTER ROLE ${pg.escapeIdentifier(role)} SET citus.enable_unsafe_triggers = on`;
    return [letLogin(loginOf(role, this.#platform.cluster.secret)), ...(isRestrictedRole(role) ? [] : [triggers])];
  }

  async #empty(shared: pg.PoolClient, placement: Placement, secret: string): Promise<void> {
    const { cluster } = this.#platform;
    const { role, database } = placement;
    const options = sessionOptions(placement, this.#options.limits, cluster.serverVersion);
    const tenant = await BackendConnection.open(cluster.login({ user: role, password: rolePassword(secret, role), database, options }));
    try {
      await dropOwned(shared, tenant, role);
    } finally {
      tenant.end();
    }
  }
}

function findProtected({ superuser, isHardened, hasOwnersRole }: Cluster): string {
  const rights = findSharedDatabaseRights(hasOwnersRole);
  // Where nobody can harden anything, the service has said so when it started.
  if (superuser === undefined && !isHardened) return rights;
  return `${findHardenedShared(undefined)} AND EXISTS (${rights})`;
}

/** @param mayOnlyUse whether it is over its disk quota, and must not get the right to create something back */
function schemaStatements({ schema, role }: Placement, isDistributed: boolean, mayOnlyUse = false): string[] {
  const [name, user] = [pg.escapeIdentifier(schema), pg.escapeIdentifier(role)];
  return [
    ...(isDistributed ? ['SET citus.enable_schema_based_sharding = on'] : []),
    `CREATE SCHEMA IF NOT EXISTS ${name}`,
    `GRANT ${isRestrictedRole(role) || mayOnlyUse ? 'USAGE' : 'USAGE, CREATE'} ON SCHEMA ${name} TO ${user}`,
  ];
}

async function schemaExists(shared: pg.PoolClient, schema: string): Promise<boolean> {
  return (await shared.query('SELECT FROM pg_catalog.pg_namespace WHERE nspname = $1', [schema])).rows.length > 0;
}

/** Only the platform role, which owns the schema, can change its comment. */
async function isClosed(shared: pg.PoolClient, schema: string): Promise<boolean> {
  const { rows } = await shared.query(
    `SELECT FROM pg_catalog.pg_namespace WHERE nspname = $1 AND pg_catalog.obj_description(oid, 'pg_namespace') = ${CLOSED}`,
    [schema],
  );
  return rows.length > 0;
}

function loginOf(role: string, secret: string): RoleLogin {
  return { user: role, password: rolePassword(secret, role) };
}

/** In one transaction; with Citus one statement after another, as tested there. Each statement may be repeated. */
async function run(session: pg.PoolClient, isDistributed: boolean, statements: readonly string[]): Promise<void> {
  const scripts = isDistributed ? statements : [statements.join('; ')];
  for (const script of scripts) await session.query(script);
}

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
async function dropOwned(platform: pg.PoolClient, tenant: BackendConnection, role: string): Promise<void> {
  await runCommand(tenant, "SET search_path = ''; SET client_min_messages = error; SET lock_timeout = '10s'");
  for (let before = String(LAST_OID); ; ) {
    const { rows } = await platform.query<Owned>(OWNED, [role, before, Object.keys(STATEMENTS)]);
    const last = rows.at(-1);
    if (last === undefined) return;
    await runCommand(tenant, rows.map((owned) => STATEMENTS[owned.type]?.(owned)).join('; '));
    before = last.id;
  }
}
