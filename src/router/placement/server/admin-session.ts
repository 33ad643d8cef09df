import pg from 'pg';
import type { AdminLogin } from './admin-login.ts';

/**
 * Settings of Postern's own sessions. With an empty search path no object of a tenant can be used by mistake. The lock timeout limits
 * how long a tenant can delay Postern with a lock (for example on its own role, by altering it in an open transaction).
 */
const SETTINGS = [
  'search_path=',
  'lock_timeout=10s',
  'statement_timeout=0',
  'default_transaction_read_only=off',
  'client_min_messages=warning',
];

const CONNECT_TIMEOUT_MS = 10_000;

/** The options of `pg` for one of Postern's own sessions. */
export function sessionConfig(login: AdminLogin): pg.ClientConfig {
  return {
    database: 'postgres',
    ...login,
    ssl: login.ssl ?? false,
    options: SETTINGS.map((setting) => `-c ${setting}`).join(' '),
    connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
    application_name: 'postern',
  };
}

/** Runs `work` on one of Postern's own sessions. */
export async function withSession<Result>(
  login: AdminLogin,
  use: (session: pg.Client) => Promise<Result>,
  connectTimeoutMs = CONNECT_TIMEOUT_MS,
): Promise<Result> {
  const session = new pg.Client({ ...sessionConfig(login), connectionTimeoutMillis: connectTimeoutMs });
  // A connection lost between two statements fails the next one.
  session.on('error', () => {});
  try {
    await session.connect();
    return await use(session);
  } finally {
    await session.end().catch(() => {});
  }
}
