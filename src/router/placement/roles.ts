import { randomBytes } from 'node:crypto';
import pg from 'pg';
import { roleVerifier } from '../../auth/role-password.ts';
import type { Cluster } from './cluster.ts';

const TERMINATION_TIMEOUT_MS = 5_000;

/** What the platform role does to the roles of organizations, in whichever database its session is. */
export class Roles {
  readonly #cluster: Cluster;
  readonly #connectionLimit: number;

  /** @param connectionLimit of each role: a net below the pools' own limits, for all processes together */
  constructor(cluster: Cluster, connectionLimit: number) {
    this.#cluster = cluster;
    this.#connectionLimit = connectionLimit;
  }

  /** Statements that make a role, or make it what it should be. */
  async statementsFor(session: pg.PoolClient, role: string): Promise<string[]> {
    return (await roleExists(session, role)) ? this.#alter(role) : this.#create(role);
  }

  /**
   * Undoes what a tenant has done to its own login.
   * @returns false when there is no such role (any more)
   */
  async repair(session: pg.PoolClient, role: string): Promise<boolean> {
    if (!(await roleExists(session, role))) return false;
    await session.query((await this.#alter(role)).join('; '));
    return true;
  }

  /**
   * Keeps everybody out for good: no other process logs in with the password that it knows, and those who are in are sent away.
   * @returns the secret for a login of our own
   */
  async takeOver(session: pg.PoolClient, role: string): Promise<string> {
    const secret = randomBytes(32).toString('base64url');
    const verifier = pg.escapeLiteral(await roleVerifier(secret, role));
    await session.query(`ALTER ROLE ${pg.escapeIdentifier(role)} LOGIN CONNECTION LIMIT -1 PASSWORD ${verifier} VALID UNTIL 'infinity'`);
    await this.endSessions(session, role);
    return secret;
  }

  /** Only a member may end a role's sessions. The membership goes with the role; before 16 rights were inherited without saying so. */
  async endSessions(session: pg.PoolClient, role: string): Promise<void> {
    const inherit = this.#cluster.serverVersion >= 160_000 ? ' WITH INHERIT TRUE' : '';
    await session.query(`GRANT ${pg.escapeIdentifier(role)} TO CURRENT_USER${inherit}`);
    await session.query('SELECT pg_catalog.pg_terminate_backend(pid, $2) FROM pg_catalog.pg_stat_activity WHERE usename = $1', [
      role,
      TERMINATION_TIMEOUT_MS,
    ]);
  }

  async #create(role: string): Promise<string[]> {
    const attributes = 'NOSUPERUSER NOCREATEDB NOCREATEROLE NOINHERIT NOREPLICATION NOBYPASSRLS';
    return [`CREATE ROLE ${pg.escapeIdentifier(role)} ${attributes} ${await this.#login(role)}`, ...this.#settings(role)];
  }

  async #alter(role: string): Promise<string[]> {
    return [`ALTER ROLE ${pg.escapeIdentifier(role)} ${await this.#login(role)} VALID UNTIL 'infinity'`, ...this.#settings(role)];
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

export async function roleExists(session: pg.PoolClient, role: string): Promise<boolean> {
  const { rows } = await session.query('SELECT FROM pg_catalog.pg_roles WHERE rolname = $1', [role]);
  return rows.length > 0;
}
