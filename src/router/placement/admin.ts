import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import { PostgresError } from '../../protocol/backend.ts';

/** Where and as whom to log in for setting things up. */
export interface AdminConnection {
  readonly host: string;
  readonly port: number;
  readonly user: string;
  readonly password: string;
  /** `postgres` unless said otherwise. */
  readonly database?: string;
  readonly ssl?: pg.ClientConfig['ssl'];
}

/**
 * For every session of ours: no schema is searched, so no name that a tenant made can be meant by mistake; and what a tenant
 * holds locked (its own role, by altering it in an open transaction) holds us up no longer than this.
 */
const SETTINGS = [
  'search_path=',
  'lock_timeout=10s',
  'statement_timeout=0',
  'default_transaction_read_only=off',
  'client_min_messages=warning',
];

/** What passes by itself: the server is starting or going down, or stands behind a name or network that is. */
const NOT_UP_YET = [
  '57P01',
  '57P02',
  '57P03',
  'EPIPE',
  '53300',
  'ECONNREFUSED',
  'ECONNRESET',
  'ENOENT',
  'ENOTFOUND',
  'EAI_AGAIN',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'ETIMEDOUT',
];
/** How the driver says it, without a code: at the statement that was running, and at those that come later. */
const LOST = /timeout|terminated unexpectedly|not queryable/i;
const BACKOFF_MS = { first: 100, longest: 2_000 };
const CONNECT_TIMEOUT_MS = 10_000;

/** @throws Error when the URL makes no sense */
export function parseUrl(url: string): AdminConnection {
  const { host, port, user = '', password = '', database = user, ssl } = new pg.Client(url);
  return { host, port, user, password, database, ssl };
}

/** What `pg` needs for a session of our own. */
export function sessionConfig(login: AdminConnection): pg.ClientConfig {
  return {
    database: 'postgres',
    ...login,
    ssl: login.ssl ?? false,
    options: SETTINGS.map((setting) => `-c ${setting}`).join(' '),
    connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
    application_name: 'postern',
  };
}

/** Runs something on a session of our own. */
export async function withSession<Result>(login: AdminConnection, use: (session: pg.Client) => Promise<Result>): Promise<Result> {
  const session = new pg.Client(sessionConfig(login));
  // A connection lost between two statements fails the next one.
  session.on('error', () => {});
  try {
    await session.connect();
    return await use(session);
  } finally {
    await session.end().catch(() => {});
  }
}

/**
 * Waits until the server takes logins.
 * @param waiting told once, with the reason, when it does not at first
 * @throws the last reason when it does not in time, or refuses us
 */
export async function waitForServer(login: AdminConnection, waitMs: number, waiting: (error: unknown) => void = () => {}): Promise<void> {
  const deadline = Date.now() + waitMs;
  for (let pause = BACKOFF_MS.first; ; pause = Math.min(2 * pause, BACKOFF_MS.longest)) {
    try {
      return await withSession(login, async () => {});
    } catch (error) {
      const left = deadline - Date.now();
      if (!isNotUpYet(error) || left <= 0) throw error;
      if (pause === BACKOFF_MS.first) waiting(error);
      await delay(Math.min(pause, left));
    }
  }
}

/** Whether a login failed because the server is not up, and not because of who logged in. */
export function isNotUpYet(error: unknown): boolean {
  return NOT_UP_YET.includes(codeOf(error)) || LOST.test(textOf(error));
}

/** SQLSTATE or errno name; empty when there is none. */
export function codeOf(error: unknown): string {
  if (error instanceof PostgresError) return error.fields.code;
  if (error instanceof AggregateError && !('code' in error)) return codeOf(error.errors[0]);
  return error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : '';
}

/** One line; an AggregateError (a name with several addresses) has no message of its own. */
export function textOf(error: unknown): string {
  if (error instanceof AggregateError && error.message === '') return textOf(error.errors[0]);
  const message = error instanceof Error ? error.message : String(error);
  return message.split('\n')[0] || codeOf(error);
}

export function addressOf({ host, port }: Pick<AdminConnection, 'host' | 'port'>): string {
  return host.startsWith('/') ? `${host}/.s.PGSQL.${port}` : `${host}:${port}`;
}
