import pg from 'pg';
import { rolePassword, roleVerifier } from '../../../auth/derived-secrets.ts';
import type { Observe } from '../../../observation.ts';
import type { RoleLogin } from '../server/admin-login.ts';

const PLATFORM_ROLE = 'postern_platform';
/** From 16 on. */
const RESERVING_ROLE = 'pg_use_reserved_connections';

const OTHER_SECRET = `the secret is another one than that with which the password of ${PLATFORM_ROLE} was set: it has been changed, and processes with the former secret cannot log in any more`;

/** Limits the disk space of a sort, and keeps tenants' statements and data out of the server's log. Tenants cannot change these. */
export const ROLE_SETTINGS: Readonly<Record<string, string>> = { temp_file_limit: '1GB', log_min_messages: 'fatal' };

/**
 * A superuser is used only for the set-up; everything else runs with this role. If the secret is another one than before, its password
 * changes, and a warning says what that means for others.
 */
export async function ensurePlatformRole(session: pg.Client, secret: string, observe: Observe): Promise<RoleLogin> {
  const verifier = await roleVerifier(secret, PLATFORM_ROLE);
  const { rows } = await session.query<{ good: boolean; hasOtherPassword: boolean }>(
    `SELECT rolpassword <> $2 AS "hasOtherPassword", rolpassword IS NOT DISTINCT FROM $2 AND rolcanlogin AND rolcreatedb AND rolcreaterole
       AND NOT (rolsuper OR rolreplication OR rolbypassrls) AS good
     FROM pg_catalog.pg_authid WHERE rolname = $1`,
    [PLATFORM_ROLE, verifier],
  );
  if (!rows[0]?.good) {
    const attributes = `LOGIN CREATEDB CREATEROLE NOSUPERUSER NOREPLICATION NOBYPASSRLS PASSWORD ${pg.escapeLiteral(verifier)}`;
    await session.query(`${rows.length === 0 ? 'CREATE' : 'ALTER'} ROLE ${PLATFORM_ROLE} ${attributes}`);
    if (rows[0]?.hasOtherPassword) observe({ name: 'service.warning', message: OTHER_SECRET });
  }
  if (Object.keys(await allowedSettings(session, PLATFORM_ROLE)).length < Object.keys(ROLE_SETTINGS).length) {
    await session.query(`GRANT SET ON PARAMETER ${Object.keys(ROLE_SETTINGS).join(', ')} TO ${PLATFORM_ROLE}`);
  }
  await reserveSessions(session);
  return platformLogin(secret);
}

/** If the server has reserved_connections, the platform role can log in however many sessions organizations have. */
async function reserveSessions(session: pg.Client): Promise<void> {
  const { rows } = await session.query(
    `SELECT FROM pg_catalog.pg_roles WHERE rolname = '${RESERVING_ROLE}' AND NOT pg_catalog.pg_has_role('${PLATFORM_ROLE}', oid, 'MEMBER')`,
  );
  if (rows.length > 0) await session.query(`GRANT ${RESERVING_ROLE} TO ${PLATFORM_ROLE}`);
}

export function platformLogin(secret: string): RoleLogin {
  return { user: PLATFORM_ROLE, password: rolePassword(secret, PLATFORM_ROLE) };
}

/** Those of {@link ROLE_SETTINGS} that the role may set for organizations. */
export async function allowedSettings(session: pg.Client, role: string): Promise<Record<string, string>> {
  const { rows } = await session.query<{ name: string }>(
    "SELECT name FROM pg_catalog.unnest($2::text[]) AS name WHERE pg_catalog.has_parameter_privilege($1::name, name, 'SET')",
    [role, Object.keys(ROLE_SETTINGS)],
  );
  return Object.fromEntries(rows.map(({ name }) => [name, ROLE_SETTINGS[name] ?? '']));
}
