import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import { HOST_TIMEOUT_MS, type HostAddress, type HostSession, inUse, SESSION_TARGETS, ServerHosts } from '../backend/server-hosts.ts';
import { codeOf, textOf } from '../protocol/backend.ts';

/** The address and credentials for setting up a server. */
export interface AdminLogin extends HostAddress {
  readonly user: string;
  readonly password: string;
  /** Default: `postgres`. */
  readonly database?: string;
  readonly ssl?: pg.ClientConfig['ssl'];
  /** If the URL names several hosts: the one in use counts, and not the address here, which is one of theirs. */
  readonly hosts?: ServerHosts | undefined;
  readonly tlsFiles?: TlsFiles;
}

/** The files that a URL names for TLS. `ssl` has what they contain; programs read them themselves. */
export type TlsFiles = { readonly [Name in (typeof TLS_FILES)[number]]?: string };

const TLS_FILES = ['sslrootcert', 'sslcert', 'sslkey'] as const;

export interface RoleLogin {
  readonly user: string;
  readonly password: string;
}

/**
 * @param url as libpq takes it, also with several hosts and `target_session_attrs`, of which any, primary and read-write are known
 * @see https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-MULTIPLE-HOSTS
 * @throws Error when the URL is invalid
 */
export function parseUrl(url: string): AdminLogin {
  const [base = '', query = ''] = splitAtFirst(url, '?');
  const parameters = new URLSearchParams(query);
  const wanted = parameters.get('target_session_attrs') ?? 'any';
  const target = SESSION_TARGETS.find((one) => one === wanted);
  if (target === undefined) throw new Error(`target_session_attrs=${wanted} is not supported: ${SESSION_TARGETS.join(', ')}`);
  const [, scheme = '', credentials = '', hosts = '', rest = ''] = /^([a-z]+:\/\/)([^/]*@)?([^/]*)(.*)$/s.exec(base) ?? [];
  const names = hosts.split(',');
  if (names.length > 1 && names.includes('')) throw new Error('Invalid URL: a host is missing');
  const [login, ...others] = names.map((name) => parseOne(`${scheme}${credentials}${name}${rest}`, parameters));
  if (login === undefined || others.length === 0) return parseOne(base, parameters);
  const at = ({ host, port }: AdminLogin): HostAddress => ({ host, port });
  const open = (address: HostAddress) => openHost({ ...login, ...address });
  return { ...login, hosts: new ServerHosts([at(login), ...others.map(at)], target, open) };
}

function parseOne(base: string, given: URLSearchParams): AdminLogin {
  const parameters = new URLSearchParams(given);
  parameters.delete('target_session_attrs');
  // As in libpq: what the system trusts, and nothing less than a whole check. The driver would take it for a file.
  const isSystem = parameters.get('sslrootcert') === 'system';
  if (isSystem) parameters.delete('sslrootcert');
  if (isSystem) parameters.set('sslmode', 'verify-full');
  const { host, port, user = '', password = '', database = user, ssl } = new pg.Client(`${base}?${parameters}`);
  const named = TLS_FILES.flatMap((name) => {
    const path = parameters.get(name);
    return path === null || path === '' ? [] : [[name, path] as const];
  });
  return { host, port, user, password, database, ssl, tlsFiles: Object.fromEntries(named) };
}

function splitAtFirst(text: string, separator: string): readonly string[] {
  const at = text.indexOf(separator);
  return at === -1 ? [text] : [text.slice(0, at), text.slice(at + separator.length)];
}

export function addressOf({ host, port, hosts }: Pick<AdminLogin, 'host' | 'port' | 'hosts'>): string {
  if (hosts !== undefined) return hosts.all.map((one) => addressOf(one)).join(', ');
  return host.startsWith('/') ? `${host}/.s.PGSQL.${port}` : `${host}:${port}`;
}

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
  const { hosts, ...address } = inUse(login);
  return {
    database: 'postgres',
    ...address,
    ...(hosts?.includes(address) ? { stream: () => hosts.socket() } : {}),
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
  await login.hosts?.find();
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

/** Of one host, whichever is in use. */
async function openHost({ hosts: _, ...login }: AdminLogin): Promise<HostSession> {
  const session = new pg.Client({ ...sessionConfig(login), connectionTimeoutMillis: HOST_TIMEOUT_MS, query_timeout: HOST_TIMEOUT_MS });
  // A lost connection fails the next question.
  session.on('error', () => {});
  const close = () => {
    void session.end().catch(() => {});
    // A server that hangs does not close the connection.
    session.connection.stream.destroy();
  };
  try {
    await session.connect();
  } catch (error) {
    close();
    throw error;
  }
  return {
    close,
    async isStandby() {
      const { rows } = await session.query<{ standby: boolean }>('SELECT pg_catalog.pg_is_in_recovery() AS standby');
      return rows[0]?.standby ?? true;
    },
  };
}

/** Temporary errors: the server is starting or shutting down, or its name or network is not available yet. */
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
/** The driver's messages for a lost connection, which have no code: for the running statement, and for later ones. */
const LOST = /timeout|terminated unexpectedly|not queryable/i;
const BACKOFF_MS = { first: 100, longest: 2_000 };

/**
 * Waits until the server accepts logins.
 * @param waiting called once, with the reason, if it does not at first
 * @throws the last error if it does not in time, or refuses the login
 */
export async function waitForServer(login: AdminLogin, waitMs: number, waiting: (error: unknown) => void = () => {}): Promise<void> {
  const deadline = Date.now() + waitMs;
  for (let pause = BACKOFF_MS.first; ; pause = Math.min(2 * pause, BACKOFF_MS.longest)) {
    try {
      await login.hosts?.seek();
      return await withSession(login, async () => {});
    } catch (error) {
      const left = deadline - Date.now();
      if (!isNotUpYet(error) || left <= 0) throw error;
      if (pause === BACKOFF_MS.first) waiting(error);
      await delay(Math.min(pause, left));
    }
  }
}

/** Whether a login failed because the server is not available, and not because of the credentials. */
export function isNotUpYet(error: unknown): boolean {
  return NOT_UP_YET.includes(codeOf(error)) || LOST.test(textOf(error));
}
