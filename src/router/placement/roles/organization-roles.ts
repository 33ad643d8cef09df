import { randomBytes } from 'node:crypto';
import pg from 'pg';
import { roleVerifier } from '../../../auth/derived-secrets.ts';
import type { Cluster } from '../cluster.ts';
import { raiseConnectionLimit } from './connection-limits.ts';
import { ownersRights } from './owners-group-role.ts';
import { isReaderRole, markAsNew, ownerOf, readerOf } from './reader-role.ts';
import { roleExists } from './role-exists.ts';
import { RoleSessions, type RunningProcess } from './role-sessions.ts';

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
    return (await roleExists(session, role)) ? this.#alter(role) : this.#create(role);
  }

  /**
   * Repairs a login that the tenant has changed.
   * @returns false when there is no such role
   */
  async repair(session: pg.PoolClient, role: string): Promise<boolean> {
    // Readers' roles are created when they are needed.
    const owner = isReaderRole(role) ? ownerOf(role) : role;
    if (!(await roleExists(session, owner)) || (await isTakenOver(session, owner)) || (await isTakenOver(session, role))) return false;
    // A role that has been lost has lost its privileges too, and only a new read key grants them again.
    const marks = isReaderRole(role) && !(await roleExists(session, role)) ? [markAsNew(role)] : [];
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

  /** As {@link takeOver}, for the organization's own role and its readers'. @returns the processes that have not ended */
  async takeOverAll(session: pg.PoolClient, role: string): Promise<readonly RunningProcess[]> {
    const running: RunningProcess[] = [];
    for (const one of [readerOf(role), role]) {
      if (await roleExists(session, one)) running.push(...(await this.takeOver(session, one)).running);
    }
    return running;
  }

  async #create(role: string): Promise<string[]> {
    const attributes = 'NOSUPERUSER NOCREATEDB NOCREATEROLE NOINHERIT NOREPLICATION NOBYPASSRLS';
    return [`CREATE ROLE ${pg.escapeIdentifier(role)} ${attributes} ${await this.#login(role)}`, ...this.#rights(role)];
  }

  async #alter(role: string): Promise<string[]> {
    return [`ALTER ROLE ${pg.escapeIdentifier(role)} ${await this.#login(role)} VALID UNTIL 'infinity'`, ...this.#rights(role)];
  }

  /** Owners may create large objects; it is taken from PUBLIC, because of readers. */
  #rights(role: string): string[] {
    const isOwner = this.#cluster.hasOwnersRole && !isReaderRole(role);
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
