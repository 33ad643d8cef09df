import pg from 'pg';

/** The address and credentials for setting up a server. */
export interface AdminLogin {
  readonly host: string;
  readonly port: number;
  readonly user: string;
  readonly password: string;
  /** Default: `postgres`. */
  readonly database?: string;
  readonly ssl?: pg.ClientConfig['ssl'];
  readonly tlsFiles?: TlsFiles;
}

/** The files that a URL names for TLS. `ssl` has what they contain; programs read them themselves. */
export type TlsFiles = { readonly [Name in (typeof TLS_FILES)[number]]?: string };

const TLS_FILES = ['sslrootcert', 'sslcert', 'sslkey'] as const;

export interface RoleLogin {
  readonly user: string;
  readonly password: string;
}

/** @throws Error when the URL is invalid */
export function parseUrl(url: string): AdminLogin {
  const [base = '', query = ''] = splitAtFirst(url, '?');
  const parameters = new URLSearchParams(query);
  // As in libpq: what the system trusts, and nothing less than a whole check. The driver would take it for a file.
  const isSystem = parameters.get('sslrootcert') === 'system';
  if (isSystem) parameters.delete('sslrootcert');
  if (isSystem) parameters.set('sslmode', 'verify-full');
  const { host, port, user = '', password = '', database = user, ssl } = new pg.Client(isSystem ? `${base}?${parameters}` : url);
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

export function addressOf({ host, port }: Pick<AdminLogin, 'host' | 'port'>): string {
  return host.startsWith('/') ? `${host}/.s.PGSQL.${port}` : `${host}:${port}`;
}
