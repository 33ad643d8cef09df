import pg from 'pg';
import { type AdminConnection, withSession } from './admin.ts';
import { harden, WHOLE_SERVER } from './hardening.ts';

/** What organizations' databases are copied from. */
export const TEMPLATE = 'postern_template';
/** It bears this name until it is complete. */
export const UNFINISHED = `${TEMPLATE}_unfinished`;

/** Raised whenever what the template holds changes, so that the next start builds it anew. */
const EDITION = 2;
const HARDENED = ', hardened';

interface Found {
  readonly comment: string | null;
  readonly ready: boolean;
}

/**
 * Makes the template database, unless a good one is there. It is built under another name: what bears the right name is complete.
 * @param admin a session outside the template, holding the set-up lock
 * @param superuser whether it may harden the catalogs
 * @returns whether the catalogs are hardened
 */
export async function ensureTemplate(admin: pg.Client, login: AdminConnection, owner: string, superuser: boolean): Promise<boolean> {
  const comment = `Postern, edition ${EDITION}${superuser ? HARDENED : ''}`;
  const found = await findTemplate(admin);
  // A hardened one does for a role that could not have hardened it.
  if (found?.ready && found.comment?.startsWith(comment)) return found.comment.endsWith(HARDENED);

  await drop(admin, UNFINISHED);
  await createDatabase(admin, UNFINISHED, owner);
  await withSession({ ...login, database: UNFINISHED }, (session) => furnish(session, superuser));
  await admin.query(`REVOKE ALL ON DATABASE ${UNFINISHED} FROM PUBLIC`);
  await admin.query(`COMMENT ON DATABASE ${UNFINISHED} IS ${pg.escapeLiteral(comment)}`);
  await admin.query(`ALTER DATABASE ${UNFINISHED} WITH IS_TEMPLATE true ALLOW_CONNECTIONS false`);
  await drop(admin, TEMPLATE);
  await admin.query(`ALTER DATABASE ${UNFINISHED} RENAME TO ${TEMPLATE}`);
  return superuser;
}

/** An empty database in UTF-8. The cluster's own locale stays where it allows that. */
export async function createDatabase(admin: pg.Client, name: string, owner: string): Promise<void> {
  const { rows } = await admin.query<{ utf8: boolean }>(
    "SELECT encoding = pg_catalog.pg_char_to_encoding('UTF8') AS utf8 FROM pg_catalog.pg_database WHERE datname = 'template0'",
  );
  const locale = rows[0]?.utf8 ? '' : "LOCALE 'C'";
  await admin.query(
    `CREATE DATABASE ${pg.escapeIdentifier(name)} TEMPLATE template0 OWNER ${pg.escapeIdentifier(owner)} ENCODING 'UTF8' ${locale}`,
  );
}

async function findTemplate(admin: pg.Client): Promise<Found | undefined> {
  const { rows } = await admin.query<Found>(
    `SELECT pg_catalog.shobj_description(oid, 'pg_database') AS comment, datistemplate AND NOT datallowconn AS ready
     FROM pg_catalog.pg_database WHERE datname = $1`,
    [TEMPLATE],
  );
  return rows[0];
}

/** `public` goes: each organization makes its own, as itself, so that we never act inside a tenant's database. */
async function furnish(session: pg.Client, superuser: boolean): Promise<void> {
  await session.query('DROP SCHEMA public');
  if (superuser) await harden(session, [WHOLE_SERVER]);
}

async function drop(admin: pg.Client, name: string): Promise<void> {
  const { rows } = await admin.query<{ template: boolean }>(
    'SELECT datistemplate AS template FROM pg_catalog.pg_database WHERE datname = $1',
    [name],
  );
  if (rows[0]?.template) await admin.query(`ALTER DATABASE ${name} WITH IS_TEMPLATE false`);
  if (rows.length > 0) await admin.query(`DROP DATABASE ${name} WITH (FORCE)`);
}
