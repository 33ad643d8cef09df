import pg from 'pg';
import { rolePassword, roleVerifier } from '../../auth/role-password.ts';
import { runCommand } from '../../backend/command.ts';
import { BackendConnection } from '../../backend/connection.ts';
import type { Placement } from '../../catalog/organization.ts';
import { ServiceError } from '../../errors.ts';
import type { Observe } from '../../observation.ts';
import { codeOf, isNotUpYet, sessionConfig } from './admin.ts';
import type { Cluster } from './cluster.ts';
import type { Provisioner } from './placement.ts';
import { type SessionLimits, sessionOptions } from './session-settings.ts';
import { TEMPLATE } from './template.ts';

export interface DatabaseProvisionerOptions {
  readonly cluster: Cluster;
  /** CONNECTION LIMIT of each role: a net below the pools' own limits, for all processes together. */
  readonly connectionLimit: number;
  readonly limits: SessionLimits;
  readonly observe: Observe;
}

/** Sessions of the platform role at the same time; each is only needed for as long as a statement takes. */
const PLATFORM_SESSIONS_MAX = 6;
const TERMINATION_TIMEOUT_MS = 5_000;

/**
 * `public` as initdb makes it: anything else would show in a dump. Run by the tenant itself, when it first logs in and
 * whenever it has dropped or renamed its own.
 */
const MAKE_PUBLIC = `CREATE SCHEMA IF NOT EXISTS public; GRANT USAGE ON SCHEMA public TO PUBLIC;
  COMMENT ON SCHEMA public IS 'standard public schema'`;
const FIND_PUBLIC = "SELECT FROM pg_catalog.pg_namespace WHERE nspname = 'public'";

/** A database for each organization, owned by the platform role; the organization's role may connect and create in it. */
export class DatabaseProvisioner implements Provisioner {
  readonly #cluster: Cluster;
  readonly #options: DatabaseProvisionerOptions;
  readonly #platform: pg.Pool;
  /** One at a time for each organization: whatever it does to its role, it takes up one platform session. */
  readonly #healing = new Map<string, Promise<void>>();

  constructor(options: DatabaseProvisionerOptions) {
    const { cluster } = options;
    this.#cluster = cluster;
    this.#options = options;
    const login = { host: cluster.host, port: cluster.port, ssl: cluster.ssl, ...cluster.platform, database: cluster.controlDatabase };
    this.#platform = new pg.Pool({ ...sessionConfig(login), max: PLATFORM_SESSIONS_MAX, idleTimeoutMillis: 30_000 });
    // An idle session that was lost is replaced when the next is needed.
    this.#platform.on('error', () => {});
  }

  place(organizationId: string): Placement {
    return { kind: 'database', cluster: this.#cluster.name, database: organizationId, schema: 'public', role: organizationId };
  }

  async provision(placement: Placement): Promise<void> {
    await this.#alone(placement, async (platform) => {
      await this.#ensureRole(platform, placement);
      await this.#ensureDatabase(platform, placement);
      await this.#grant(platform, placement);
    });
    const backend = await this.open(placement);
    backend.end();
  }

  async deprovision(placement: Placement): Promise<void> {
    const [role, database] = [pg.escapeIdentifier(placement.role), pg.escapeIdentifier(placement.database)];
    await this.#alone(placement, async (platform) => {
      const found = await findDatabase(platform, placement.database);
      if (found?.valid) await platform.query(`ALTER DATABASE ${database} WITH ALLOW_CONNECTIONS false`);
      if (await roleExists(platform, placement.role)) await this.#endSessions(platform, placement);
      if (found !== undefined) await platform.query(`DROP DATABASE IF EXISTS ${database} WITH (FORCE)`);
      await platform.query(`DROP ROLE IF EXISTS ${role}`);
    });
  }

  async open(placement: Placement, signal?: AbortSignal): Promise<BackendConnection> {
    signal?.throwIfAborted();
    const backend = await this.#login(placement);
    try {
      await this.#ensurePublic(backend, placement);
      signal?.throwIfAborted();
      return backend;
    } catch (error) {
      backend.destroy();
      throw error;
    }
  }

  /**
   * Puts right what keeps an organization from logging in, where that is its own doing: it changed its role's password, or
   * its rights on its database are gone.
   * @returns whether another try makes sense
   */
  async heal(placement: Placement, error: unknown): Promise<boolean> {
    const remedy = this.#remedyFor(codeOf(error));
    if (remedy === undefined) return false;
    let healing = this.#healing.get(placement.role);
    if (healing === undefined) {
      healing = this.#alone(placement, (platform) => remedy(platform, placement)).finally(() => this.#healing.delete(placement.role));
      this.#healing.set(placement.role, healing);
    }
    await healing;
    this.#options.observe({ name: 'backend.login_healed', organizationId: placement.role });
    return true;
  }

  async close(): Promise<void> {
    await this.#platform.end();
  }

  #remedyFor(sqlstate: string) {
    switch (sqlstate) {
      case '28P01':
      case '28000':
        return (platform: pg.PoolClient, placement: Placement) => this.#ensureRole(platform, placement);
      case '42501':
        return (platform: pg.PoolClient, placement: Placement) => this.#grant(platform, placement);
      default:
        return undefined;
    }
  }

  async #login(placement: Placement): Promise<BackendConnection> {
    const { secret, serverVersion } = this.#cluster;
    const login = this.#cluster.login({
      user: placement.role,
      password: rolePassword(secret, placement.role),
      database: placement.database,
      options: sessionOptions(placement, this.#options.limits, serverVersion),
    });
    try {
      return await BackendConnection.open(login).catch(async (error: unknown) => {
        if (await this.heal(placement, error)) return BackendConnection.open(login);
        throw error;
      });
    } catch (error) {
      throw asServiceError(error);
    }
  }

  async #ensurePublic(backend: BackendConnection, placement: Placement): Promise<void> {
    if ((await runCommand(backend, FIND_PUBLIC)) === 'SELECT 1') return;
    try {
      await runCommand(backend, MAKE_PUBLIC);
    } catch (error) {
      // 23505: another session of the same organization was faster.
      if (codeOf(error) === '23505') return;
      if (!(await this.heal(placement, error))) throw error;
      await runCommand(backend, MAKE_PUBLIC);
    }
  }

  async #ensureRole(platform: pg.PoolClient, placement: Placement): Promise<void> {
    const role = pg.escapeIdentifier(placement.role);
    const password = pg.escapeLiteral(await roleVerifier(this.#cluster.secret, placement.role));
    const common = `LOGIN CONNECTION LIMIT ${this.#options.connectionLimit} PASSWORD ${password}`;
    const settings = Object.entries(this.#cluster.roleSettings).map(
      ([name, value]) => `ALTER ROLE ${role} SET ${pg.escapeIdentifier(name)} = ${pg.escapeLiteral(value)}`,
    );
    const make = (await roleExists(platform, placement.role))
      ? `ALTER ROLE ${role} ${common}`
      : `CREATE ROLE ${role} ${common} NOSUPERUSER NOCREATEDB NOCREATEROLE NOINHERIT NOREPLICATION NOBYPASSRLS`;
    await platform.query([make, ...settings].join('; '));
  }

  async #ensureDatabase(platform: pg.PoolClient, placement: Placement): Promise<void> {
    const database = pg.escapeIdentifier(placement.database);
    const found = await findDatabase(platform, placement.database);
    if (found?.valid) return;
    if (found !== undefined) await platform.query(`DROP DATABASE ${database}`);
    await platform.query(`CREATE DATABASE ${database} TEMPLATE ${TEMPLATE} STRATEGY wal_log`);
  }

  /** Only a member may end a role's sessions. The membership goes with the role; before 16 rights were inherited without saying so. */
  async #endSessions(platform: pg.PoolClient, placement: Placement): Promise<void> {
    const inherit = this.#cluster.serverVersion >= 160_000 ? ' WITH INHERIT TRUE' : '';
    await platform.query(`GRANT ${pg.escapeIdentifier(placement.role)} TO CURRENT_USER${inherit}`);
    await platform.query('SELECT pg_catalog.pg_terminate_backend(pid, $2) FROM pg_catalog.pg_stat_activity WHERE usename = $1', [
      placement.role,
      TERMINATION_TIMEOUT_MS,
    ]);
  }

  /** The template's own ACL is not copied. */
  async #grant(platform: pg.PoolClient, placement: Placement): Promise<void> {
    const [role, database] = [pg.escapeIdentifier(placement.role), pg.escapeIdentifier(placement.database)];
    await platform.query(
      `REVOKE ALL ON DATABASE ${database} FROM PUBLIC; GRANT CONNECT, CREATE, TEMPORARY ON DATABASE ${database} TO ${role}`,
    );
  }

  /** Runs something as the platform role while no other process works on the same organization. */
  async #alone<Result>(placement: Placement, work: (platform: pg.PoolClient) => Promise<Result>): Promise<Result> {
    const platform = await this.#platform.connect().catch((error: unknown) => {
      throw asServiceError(error);
    });
    try {
      await platform.query('SELECT pg_catalog.pg_advisory_lock(pg_catalog.hashtextextended($1, 0))', [placement.role]);
      const result = await work(platform);
      await platform.query('SELECT pg_catalog.pg_advisory_unlock_all()');
      platform.release();
      return result;
    } catch (error) {
      // The session is given up, and the lock with it.
      platform.release(true);
      throw asServiceError(error);
    }
  }
}

async function roleExists(platform: pg.PoolClient, role: string): Promise<boolean> {
  const { rows } = await platform.query('SELECT FROM pg_catalog.pg_roles WHERE rolname = $1', [role]);
  return rows.length > 0;
}

/** A database whose DROP was interrupted is there but invalid, and can only be dropped again. */
async function findDatabase(platform: pg.PoolClient, database: string): Promise<{ readonly valid: boolean } | undefined> {
  const { rows } = await platform.query<{ valid: boolean }>(
    'SELECT datconnlimit <> -2 AS valid FROM pg_catalog.pg_database WHERE datname = $1',
    [database],
  );
  return rows[0];
}

function asServiceError(error: unknown): unknown {
  if (error instanceof ServiceError) return error;
  if (codeOf(error) === '53300') {
    return new ServiceError('too_many_connections', 'too many connections', { cause: error, retryAfterS: 1 });
  }
  if (isNotUpYet(error)) return new ServiceError('not_ready', 'the database system is not ready', { cause: error, retryAfterS: 1 });
  return error;
}
