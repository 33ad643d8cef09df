import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import type { BackendConnection } from '../../../backend/connection.ts';
import { runCommand } from '../../../backend/own-request.ts';
import type { Placement } from '../../../catalog/organization.ts';
import { codeOf } from '../../../protocol/backend.ts';
import type { Cluster } from '../cluster.ts';
import type { PlacementProvisioner, ProvisionerOptions } from '../provisioner.ts';
import { isUsable, TenantLogins } from '../roles/log-in-with-repair.ts';
import { Roles } from '../roles/organization-roles.ts';
import { admit, asReader, isReaderRole, ownPlacement, readerOf } from '../roles/reader-role.ts';
import { roleExists } from '../roles/role-exists.ts';
import { describeProcesses, type RunningProcess, StillRunningError } from '../roles/role-sessions.ts';
import { applySettings, readSettings } from '../roles/role-settings.ts';
import { withSession } from '../server/admin-session.ts';
import type { Platform } from '../server/platform-sessions.ts';
import { copyDatabase } from './copy-database.ts';
import { reassignDatabase } from './reassign-database.ts';
import { FIND_HARDENED_DATABASE, hardenOpenDatabase, TEMPLATE } from './template.ts';

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

  async provision(placement: Placement, withReaders = false): Promise<void> {
    await this.#platform.alone(placement.role, async (session) => {
      await session.query((await this.#roles.statementsFor(session, placement.role)).join('; '));
      await ensureDatabase(session, placement);
      await grant(session, placement);
      if (!withReaders) return;
      const reader = asReader(placement);
      await session.query((await this.#roles.statementsFor(session, reader.role)).join('; '));
      await grant(session, reader);
    });
    const backend = await this.open(placement);
    backend.end();
  }

  async deprovision({ role, database }: Placement): Promise<void> {
    const name = pg.escapeIdentifier(database);
    await this.#platform.alone(role, async (session) => {
      const found = await findDatabase(session, database);
      if (found?.valid) await session.query(`ALTER DATABASE ${name} WITH ALLOW_CONNECTIONS false`);
      const roles = [readerOf(role), role];
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
      const roles = [copy.role, ...((await roleExists(session, readerOf(source.role))) ? [readerOf(copy.role)] : [])];
      for (const role of roles) await session.query((await this.#roles.statementsFor(session, role)).join('; '));
      await copyDatabase(session, source.database, copy.database, timeoutMs);
      for (const role of roles) await grant(session, { ...copy, role });
    });
  }

  async adopt(source: Placement, copy: Placement): Promise<void> {
    const { cluster } = this.#platform;
    const { host, port, ssl, platform, serverVersion } = cluster;
    const settings = await this.#platform.alone(copy.role, async (control) => {
      const hasReaders = await roleExists(control, readerOf(copy.role));
      await withSession({ host, port, ssl, ...platform, database: copy.database }, (session) =>
        reassignDatabase(session, { from: source.role, to: copy.role, hasReaders, serverVersion }),
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

  async admitReaders(placement: Placement): Promise<void> {
    const reader = asReader(placement);
    await this.#repairRole(reader);
    await this.#repairRights(reader);
    await admit(this.#platform, reader.role, () => this.open(placement));
    const backend = await this.open(reader);
    backend.end();
  }

  open(placement: Placement, signal?: AbortSignal): Promise<BackendConnection> {
    // Nothing is restored for readers: what they may read is what their organization has left them.
    const furnish = async (backend: BackendConnection) => {
      if (!isReaderRole(placement.role)) await this.#ensurePublic(backend, placement);
    };
    return this.#logins.open(placement, furnish, signal);
  }

  async #ensurePublic(backend: BackendConnection, placement: Placement): Promise<void> {
    if (await isUsable(backend, placement.schema)) return;
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
    const own = ownPlacement(placement) ?? placement;
    return this.#platform.alone(database, async (session) => {
      for (const one of [own, asReader(own)]) if (await roleExists(session, one.role)) await grant(session, one);
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
  const reader = asReader(ownPlacement(placement) ?? placement).role;
  const rights = `NOT EXISTS (SELECT FROM pg_catalog.pg_database d,
      pg_catalog.aclexplode(coalesce(d.datacl, pg_catalog.acldefault('d', d.datdba))) AS a
    WHERE d.datname = pg_catalog.current_database()
      AND (a.grantee = 0 OR a.grantee = pg_catalog.to_regrole(${pg.escapeLiteral(reader)}) AND a.privilege_type = 'TEMPORARY'))`;
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
 * The template's own ACL is not copied. Readers may create nothing temporary: pg_temp is searched first, also in the organization's
 * SECURITY DEFINER functions, which would run what a reader has put there.
 */
export async function grant(session: pg.ClientBase, placement: Placement): Promise<void> {
  const [role, database] = [pg.escapeIdentifier(placement.role), pg.escapeIdentifier(placement.database)];
  const rights = isReaderRole(placement.role)
    ? `REVOKE TEMPORARY ON DATABASE ${database} FROM ${role}; GRANT CONNECT ON DATABASE ${database} TO ${role}`
    : `GRANT CONNECT, CREATE, TEMPORARY ON DATABASE ${database} TO ${role}`;
  await session.query(`REVOKE ALL ON DATABASE ${database} FROM PUBLIC; ${rights}`);
}

/** Takes from readers' roles what an earlier version has granted them. @param admin a session in any database */
export async function takeTemporaryFromReaders(admin: pg.Client, owner: string): Promise<void> {
  const { rows } = await admin.query<{ database: string; reader: string }>(
    `SELECT d.datname AS database, r.rolname AS reader
     FROM pg_catalog.pg_database d, pg_catalog.aclexplode(d.datacl) AS a JOIN pg_catalog.pg_roles r ON r.oid = a.grantee
     WHERE a.privilege_type = 'TEMPORARY' AND r.rolname = d.datname || $2
       AND d.datconnlimit <> -2 AND pg_catalog.pg_get_userbyid(d.datdba) = $1`,
    [owner, readerOf('')],
  );
  for (const { database, reader } of rows)
    await admin.query(`REVOKE TEMPORARY ON DATABASE ${pg.escapeIdentifier(database)} FROM ${pg.escapeIdentifier(reader)}`);
}

/** A database whose DROP was interrupted exists but is invalid, and can only be dropped again. */
async function findDatabase(session: pg.PoolClient, database: string): Promise<{ readonly valid: boolean } | undefined> {
  const { rows } = await session.query<{ valid: boolean }>(
    'SELECT datconnlimit <> -2 AS valid FROM pg_catalog.pg_database WHERE datname = $1',
    [database],
  );
  return rows[0];
}
