import { ServiceError } from '../../src/errors.ts';

/** The used parts of a connection string. Its host is ignored, because the key determines the organization. */
export interface ConnectionString {
  readonly user: string;
  readonly database: string;
  readonly password?: string;
  readonly applicationName?: string;
}

/**
 * @throws ServiceError `invalid_request`
 * @see https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-CONNSTRING-URIS
 */
export function parseConnectionString(text: string): ConnectionString {
  const url = parseUrl(text);
  if (url === undefined) throw invalid('is not a URL that begins with postgres:// or postgresql://');
  const user = decode(url.username);
  const database = decode(url.pathname.slice(1));
  if (user === '') throw invalid('has no user name');
  if (database === '') throw invalid('has no database name');
  if (url.searchParams.has('options')) {
    throw new ServiceError('unsupported_statement', 'options in the connection string need a session', {
      hint: 'Use a Client or a Pool, which connect over a WebSocket.',
    });
  }
  const applicationName = url.searchParams.get('application_name');
  return {
    user,
    database,
    ...(url.password === '' ? {} : { password: decode(url.password) }),
    ...(applicationName === null ? {} : { applicationName }),
  };
}

function parseUrl(text: string): URL | undefined {
  try {
    const url = new URL(text);
    return url.protocol === 'postgres:' || url.protocol === 'postgresql:' ? url : undefined;
  } catch {
    return undefined;
  }
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    throw invalid('is not percent-encoded as a URL must be');
  }
}

/** The message quotes nothing of the string, because it contains a key. */
function invalid(what: string): ServiceError {
  return new ServiceError('invalid_request', `the connection string ${what}`);
}
