import { randomBytes } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import { roleVerifier } from '../auth/derived-secrets.ts';
import type { BackendConnection } from '../backend/connection.ts';
import { runCommand } from '../backend/own-request.ts';
import { ADVISORY_LOCKS } from '../catalog/advisory-locks.ts';
import type { Placement } from '../catalog/organization.ts';
import { PostgresError } from '../protocol/backend.ts';
import type { Cluster } from './cluster.ts';
import { isLimited, ownersRights, roleExists } from './platform-role.ts';
import { isRestrictedRole, markAsNew, ownerOf, rolesOf } from './restricted-roles.ts';

/** The platform role's operations on the roles of organizations. Roles are not specific to a database. */
export class Roles {
  readonly sessions: RoleSessions;
  readonly #cluster: Cluster;
  readonly #connectionLimit: number;

  /** @param connectionLimit of each role, for all processes together: a safeguard in addition to the pools' limits */
  constructor(cluster: Cluster, connectionLimit: number) {
    this.sessions = new RoleSessions(cluster);
    this.#cluster = cluster;
    this.#connectionLimit = connectionLimit;
  }

  /** Statements that create a role, or restore its attributes. */
  async statementsFor(session: pg.PoolClient, role: string): Promise<string[]> {
    if (!(await roleExists(session, role))) return this.#create(role);
    return this.#alter(role, await isLimited(session, role));
  }

  /**
   * Repairs a login that the tenant has changed.
   * @returns false when there is no such role
   */
  async repair(session: pg.PoolClient, role: string): Promise<boolean> {
    // Restricted roles are created when they are needed.
    const owner = ownerOf(role);
    if (!(await roleExists(session, owner)) || (await isTakenOver(session, owner)) || (await isTakenOver(session, role))) return false;
    // A role that has been lost has lost its privileges too, and only a new key grants them again.
    const marks = isRestrictedRole(role) && !(await roleExists(session, role)) ? [markAsNew(role)] : [];
    await session.query([...(await this.statementsFor(session, role)), ...marks].join('; '));
    return true;
  }

  /** @see raiseConnectionLimit */
  raiseLimit(session: pg.PoolClient, role: string): Promise<boolean> {
    return raiseConnectionLimit(session, role, this.#connectionLimit);
  }

  /**
   * Closes the role for good: changes its password, so that no other process can log in, and terminates its sessions.
   * @param changer the session that changes the role: with Citus one in its database, so that the change reaches all nodes
   * @returns the secret for Postern's own login, and the processes that have not ended
   */
  async takeOver(
    session: pg.PoolClient,
    role: string,
    changer = session,
  ): Promise<{ readonly secret: string; readonly running: readonly RunningProcess[] }> {
    const secret = randomBytes(32).toString('base64url');
    const verifier = pg.escapeLiteral(await roleVerifier(secret, role));
    await changer.query(`ALTER ROLE ${pg.escapeIdentifier(role)} LOGIN CONNECTION LIMIT -1 PASSWORD ${verifier} VALID UNTIL 'infinity'`);
    return { secret, running: await this.sessions.endSessions(session, role) };
  }

  /** As {@link takeOver}, for all roles of the organization. @returns the processes that have not ended */
  async takeOverAll(session: pg.PoolClient, role: string): Promise<readonly RunningProcess[]> {
    const running: RunningProcess[] = [];
    for (const one of rolesOf(role)) {
      if (await roleExists(session, one)) running.push(...(await this.takeOver(session, one)).running);
    }
    return running;
  }

  async #create(role: string): Promise<string[]> {
    const attributes = 'NOSUPERUSER NOCREATEDB NOCREATEROLE NOINHERIT NOREPLICATION NOBYPASSRLS';
    return [`CREATE ROLE ${pg.escapeIdentifier(role)} ${attributes} ${await this.#login(role)}`, ...this.#rights(role)];
  }

  async #alter(role: string, isLimitedRole: boolean): Promise<string[]> {
    const rights = isLimitedRole ? this.#settings(role) : this.#rights(role);
    return [`ALTER ROLE ${pg.escapeIdentifier(role)} ${await this.#login(role)} VALID UNTIL 'infinity'`, ...rights];
  }

  /** Owners may write large objects; it is taken from PUBLIC, because of restricted roles. */
  #rights(role: string): string[] {
    const isOwner = this.#cluster.hasOwnersRole && !isRestrictedRole(role);
    return [...this.#settings(role), ...(isOwner ? ownersRights(role, this.#cluster.serverVersion) : [])];
  }

  async #login(role: string): Promise<string> {
    const password = pg.escapeLiteral(await roleVerifier(this.#cluster.secret, role));
    return `LOGIN CONNECTION LIMIT ${this.#connectionLimit} PASSWORD ${password}`;
  }

  #settings(role: string): string[] {
    return Object.entries(this.#cluster.roleSettings).map(
      ([name, value]) => `ALTER ROLE ${pg.escapeIdentifier(role)} SET ${pg.escapeIdentifier(name)} = ${pg.escapeLiteral(value)}`,
    );
  }
}

/** Whether a drop of this role was interrupted. It has to be completed; the role must not be used again. */
async function isTakenOver(session: pg.PoolClient, role: string): Promise<boolean> {
  const { rows } = await session.query('SELECT FROM pg_catalog.pg_roles WHERE rolname = $1 AND rolconnlimit = -1', [role]);
  return rows.length > 0;
}

const TERMINATION_TIMEOUT_MS = 5_000;
/** How long sessions may take to end that have been asked to by other means. */
const GRACE_MS = 3_000;
const POLL_MS = 50;

/** A process of an organization that does not end when it is terminated. */
export interface RunningProcess {
  readonly processId: number;
  /** When its running statement began. */
  readonly since: Date;
}

/** Sessions of an organization's roles: all, and those of them that run a statement or have a transaction open. */
export interface SessionCount {
  readonly all: number;
  readonly atWork: number;
}

/** An organization's database or schema cannot be dropped because of processes that have not ended; the message names them. May be tried again. */
export class StillRunningError extends Error {
  override readonly name = 'StillRunningError';
}

export function describeProcesses(processes: readonly RunningProcess[]): string {
  return processes.map(({ processId, since }) => `process ${processId} since ${since.toISOString()}`).join(', ');
}

/** Sessions of organizations' roles, as the platform role sees and ends them. */
class RoleSessions {
  readonly #cluster: Cluster;

  constructor(cluster: Cluster) {
    this.#cluster = cluster;
  }

  /**
   * Terminates the sessions of a role that is being dropped.
   * @returns the processes that have not ended
   */
  async endSessions(session: pg.PoolClient, role: string): Promise<readonly RunningProcess[]> {
    await session.query(this.join(role));
    await session.query(TERMINATE, [role, false]);
    return until(TERMINATION_TIMEOUT_MS, () => processesOf(session, role, false));
  }

  /**
   * Terminates those sessions of a role that are still active after a while.
   * @returns the processes that have not ended
   */
  async endWork(session: pg.PoolClient, role: string): Promise<readonly RunningProcess[]> {
    const look = () => this.#asMember(session, role, () => processesOf(session, role, true));
    const running = await until(GRACE_MS, look);
    if (running.length === 0) return running;
    await this.#asMember(session, role, () => session.query(TERMINATE, [role, true]));
    return until(TERMINATION_TIMEOUT_MS, look);
  }

  /** As {@link endWork}, for all roles of the organization. */
  async endWorkOfAll(session: pg.PoolClient, role: string): Promise<readonly RunningProcess[]> {
    const running: RunningProcess[] = [];
    for (const one of rolesOf(role)) if (await roleExists(session, one)) running.push(...(await this.endWork(session, one)));
    return running;
  }

  /** How many sessions the organization's roles have. */
  async count(session: pg.PoolClient, role: string): Promise<SessionCount> {
    const roles = rolesOf(role);
    // Who has a session is visible to all.
    const { rows } = await session.query<{ all: number }>(
      'SELECT pg_catalog.count(*)::int AS all FROM pg_catalog.pg_stat_activity WHERE usename = ANY ($1)',
      [roles],
    );
    const all = rows[0]?.all ?? 0;
    if (all === 0) return { all, atWork: 0 };
    let atWork = 0;
    for (const one of roles) {
      if (await roleExists(session, one)) atWork += (await this.#asMember(session, one, () => processesOf(session, one, true))).length;
    }
    return { all, atWork };
  }

  /** Terminates all sessions of the organization's roles. @returns the processes that have not ended */
  async terminateAll(session: pg.PoolClient, role: string): Promise<readonly RunningProcess[]> {
    const running: RunningProcess[] = [];
    for (const one of rolesOf(role)) {
      if (!(await roleExists(session, one))) continue;
      await this.#asMember(session, one, () => session.query(TERMINATE, [one, false]));
      running.push(...(await until(TERMINATION_TIMEOUT_MS, () => processesOf(session, one, false))));
    }
    return running;
  }

  /** Terminates the sessions of a role that have this application_name, and waits for their end. */
  async terminateNamed(session: pg.PoolClient, role: string, name: string): Promise<void> {
    if (!(await roleExists(session, role))) return;
    const terminate = `SELECT pg_catalog.pg_terminate_backend(pid, ${TERMINATION_TIMEOUT_MS}) FROM pg_catalog.pg_stat_activity
      WHERE usename = $1 AND application_name = $2`;
    await this.#asMember(session, role, () => session.query(terminate, [role, name]));
  }

  /** Membership ends with the transaction. */
  async #asMember<Result>(session: pg.PoolClient, role: string, work: () => Promise<Result>): Promise<Result> {
    await session.query(`BEGIN; ${this.join(role)}`);
    const result = await work();
    await session.query('ROLLBACK');
    return result;
  }

  /** The statement with which the platform role becomes a member. Only a member of a role may see and terminate its sessions. Before 16 membership always inherited privileges. */
  join(role: string): string {
    return `GRANT ${pg.escapeIdentifier(role)} TO CURRENT_USER${this.#cluster.serverVersion >= 160_000 ? ' WITH INHERIT TRUE' : ''}`;
  }
}

const AT_WORK = "usename = $1 AND (NOT $2 OR state <> 'idle')";
const TERMINATE = `SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity WHERE ${AT_WORK}`;

async function processesOf(session: pg.PoolClient, role: string, atWork: boolean): Promise<readonly RunningProcess[]> {
  const { rows } = await session.query<RunningProcess>(
    `SELECT pid AS "processId", coalesce(query_start, backend_start) AS since FROM pg_catalog.pg_stat_activity
     WHERE ${AT_WORK} ORDER BY since`,
    [role, atWork],
  );
  return rows;
}

/** Polls until there are none, or the time is over. */
async function until(timeoutMs: number, look: () => Promise<readonly RunningProcess[]>): Promise<readonly RunningProcess[]> {
  const deadline = performance.now() + timeoutMs;
  for (;;) {
    const running = await look();
    if (running.length === 0 || performance.now() > deadline) return running;
    await delay(POLL_MS);
  }
}

/** In addition to the pool's sessions: one that terminates others, and one that has not quite ended. */
const SPARE_SESSIONS = 2;

/** The number of processes of the service that share the control database; see `ADVISORY_LOCKS.process`. */
const PROCESSES = `
  SELECT greatest(1, pg_catalog.count(DISTINCT objid))::int AS count FROM pg_catalog.pg_locks
  WHERE locktype = 'advisory' AND classid = ${ADVISORY_LOCKS.process} AND objsubid = 2
    AND database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())`;

/** @param backendsPerTenant how many sessions one process opens for an organization */
export function connectionLimitFor(backendsPerTenant: number): number {
  return backendsPerTenant + SPARE_SESSIONS;
}

/**
 * Sets the connection limit of roles that an earlier version, or one with other settings, has created.
 * @returns the error if one could not be set: the organization may hold a lock on its role
 */
export async function limitConnections(session: pg.PoolClient, roles: readonly string[], limit: number): Promise<unknown> {
  const { rows } = await session.query<{ name: string }>(
    `SELECT rolname AS name FROM pg_catalog.pg_roles, (${PROCESSES}) AS processes
     WHERE rolname = ANY ($1) AND rolconnlimit <> -1 AND rolconnlimit NOT BETWEEN $2 AND $2 * processes.count`,
    [roles, limit],
  );
  let failure: unknown;
  for (const { name } of rows) {
    await session.query(`ALTER ROLE ${pg.escapeIdentifier(name)} CONNECTION LIMIT ${limit}`).catch((error: unknown) => {
      failure = error;
    });
  }
  return failure;
}

/**
 * Raises a role's limit to that of all processes of the service together, when one of them has been refused a session.
 * @param limit of one process
 * @returns whether it was raised
 */
async function raiseConnectionLimit(session: pg.PoolClient, role: string, limit: number): Promise<boolean> {
  const { rows } = await session.query<{ raised: number }>(
    `SELECT $2 * processes.count AS raised FROM pg_catalog.pg_roles, (${PROCESSES}) AS processes
     WHERE rolname = $1 AND rolconnlimit <> -1 AND rolconnlimit < $2 * processes.count`,
    [role, limit],
  );
  const raised = rows[0]?.raised;
  if (raised !== undefined) await session.query(`ALTER ROLE ${pg.escapeIdentifier(role)} CONNECTION LIMIT ${raised}`);
  return raised !== undefined;
}

/** A setting that an organization has given its role (`ALTER ROLE CURRENT_USER SET …`). */
interface RoleSetting {
  readonly name: string;
  readonly value: string;
  /** Whether it applies in the organization's database alone. */
  readonly inDatabase: boolean;
}

/** @param without the names of those that the platform has made */
export async function readSettings(
  session: pg.PoolClient,
  { role, database }: Placement,
  without: readonly string[],
): Promise<RoleSetting[]> {
  const { rows } = await session.query<RoleSetting>(
    `SELECT pg_catalog.split_part(entry, '=', 1) AS name, pg_catalog.substr(entry, pg_catalog.strpos(entry, '=') + 1) AS value,
       s.setdatabase <> 0 AS "inDatabase"
     FROM pg_catalog.pg_db_role_setting s, pg_catalog.unnest(s.setconfig) AS entry
     WHERE s.setrole = pg_catalog.to_regrole($1)
       AND s.setdatabase IN (0, (SELECT oid FROM pg_catalog.pg_database WHERE datname = $2))
       AND pg_catalog.split_part(entry, '=', 1) <> ALL ($3)`,
    [pg.escapeIdentifier(role), database, without],
  );
  return rows;
}

/**
 * Gives the session's role settings of another one. The values are those of a tenant, so this is not left to the platform role. One
 * that the server does not accept is left out.
 */
export async function applySettings(backend: BackendConnection, { database }: Placement, settings: readonly RoleSetting[]): Promise<void> {
  for (const { name, value, inDatabase } of settings) {
    const place = inDatabase ? ` IN DATABASE ${pg.escapeIdentifier(database)}` : '';
    const quoted = name.split('.').map(pg.escapeIdentifier).join('.');
    const set = `SELECT pg_catalog.set_config(${pg.escapeLiteral(name)}, ${pg.escapeLiteral(value)}, false)`;
    try {
      await runCommand(backend, `${set}; ALTER ROLE CURRENT_USER${place} SET ${quoted} FROM CURRENT; RESET ALL`);
    } catch (error) {
      if (!(error instanceof PostgresError)) throw error;
      await runCommand(backend, 'RESET ALL');
    }
  }
}
