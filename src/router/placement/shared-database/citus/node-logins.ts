import pg from 'pg';
import type { RoleLogin } from '../../server/admin-login.ts';

/** 0 in a row's `nodeid` means every node. */
const EVERY_NODE = 0;

/**
 * Statements that let Citus log in to other nodes with a role. Citus runs the parts of an organization's statement there in
 * sessions of the organization's own role. The password may be read by superusers only.
 * @see https://docs.citusdata.com/en/stable/develop/api_metadata.html#connection-credentials-table
 */
export function letLogin({ user, password }: RoleLogin): string {
  const value = `password='${password.replace(/['\\]/g, '\\$&')}'`;
  return `${forgetLogin(user)}; INSERT INTO pg_catalog.pg_dist_authinfo (nodeid, rolename, authinfo)
    VALUES (${EVERY_NODE}, ${pg.escapeLiteral(user)}, ${pg.escapeLiteral(value)})`;
}

export function forgetLogin(role: string): string {
  return `DELETE FROM pg_catalog.pg_dist_authinfo WHERE nodeid = ${EVERY_NODE} AND rolename = ${pg.escapeLiteral(role)}`;
}

/** The statement that lets the platform role write such rows, without reading the passwords in them. */
export function letWriteLogins(platform: string): string {
  const role = pg.escapeIdentifier(platform);
  return `GRANT INSERT, DELETE, SELECT (nodeid, rolename) ON pg_catalog.pg_dist_authinfo TO ${role}`;
}
