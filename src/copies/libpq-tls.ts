import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { rootCertificates } from 'node:tls';
import type pg from 'pg';
import type { Cluster } from '../placement/cluster.ts';

/** `require`: with TLS, whoever answers. */
export type SslMode = 'require' | 'verify-ca' | 'verify-full';

/**
 * How libpq checks a server as Postern itself does by the server's URL. Undefined: there is no TLS.
 * @see https://www.postgresql.org/docs/current/libpq-ssl.html#LIBPQ-SSL-SSLMODE-STATEMENTS
 */
export function sslModeOf(ssl: pg.ClientConfig['ssl']): SslMode | undefined {
  if (ssl === undefined || ssl === false) return undefined;
  if (ssl === true) return 'verify-full';
  if (ssl.rejectUnauthorized === false) return 'require';
  // The driver sets one for a URL that asks for the certificate without its name.
  return ssl.checkServerIdentity === undefined ? 'verify-full' : 'verify-ca';
}

/** Runs `use` with the environment in which a client program checks the server as Postern itself does. */
export async function withTlsEnvironment<Result>(
  { ssl, tlsFiles }: Pick<Cluster, 'ssl' | 'tlsFiles'>,
  use: (env: NodeJS.ProcessEnv) => Promise<Result>,
): Promise<Result> {
  const mode = sslModeOf(ssl);
  if (mode === undefined) return use({});
  const { sslcert, sslkey, sslrootcert } = tlsFiles;
  const env = {
    // Encryption by Kerberos would be preferred, and then no certificate is looked at.
    PGGSSENCMODE: 'disable',
    ...(sslcert === undefined ? {} : { PGSSLCERT: sslcert }),
    ...(sslkey === undefined ? {} : { PGSSLKEY: sslkey }),
  };
  // The environment may ask for more than the URL does, and not for less.
  if (mode === 'require') return use({ ...env, PGSSLMODE: process.env.PGSSLMODE ?? mode });
  if (sslrootcert !== undefined) return use({ ...env, PGSSLMODE: mode, PGSSLROOTCERT: sslrootcert });
  const folder = await mkdtemp(join(tmpdir(), 'postern-'));
  try {
    const file = join(folder, 'root.crt');
    await writeFile(file, await defaultRootCertificates());
    return await use({ ...env, PGSSLMODE: mode, PGSSLROOTCERT: file });
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** Those that Node trusts, which libpq before version 16 cannot be told to take from the system. */
async function defaultRootCertificates(): Promise<string> {
  const { NODE_EXTRA_CA_CERTS: extra } = process.env;
  const more = extra === undefined ? [] : [await readFile(extra, 'utf8').catch(() => '')];
  return [...rootCertificates, ...more].join('\n');
}
