import pg from 'pg';
import type { BackendConnection } from '../../../backend/connection.ts';
import { runCommand } from '../../../backend/own-request.ts';
import type { Placement } from '../../../catalog/organization.ts';
import { PostgresError } from '../../../protocol/backend.ts';

/** A setting that an organization has given its role (`ALTER ROLE CURRENT_USER SET …`). */
export interface RoleSetting {
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
