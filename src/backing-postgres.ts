import type { Config } from './config.ts';
import { findRunningServer } from './embedded/running-server.ts';
import { startEmbedded } from './embedded.ts';
import type { Observe } from './observation.ts';
import type { AdminLogin } from './placement/admin-connection.ts';

/** A PostgreSQL server, and the secret from which the passwords of its roles are derived. */
export interface BackingPostgres {
  readonly admin: string | AdminLogin;
  readonly secret: string;
  /** The folder of the embedded server's files; undefined: it is another server, whose disk is its operator's. */
  readonly folder?: string;
}

/** The texts of utility statements may hold passwords and secret names of channels; those of others have no constants. */
const WITH_MODULE = { shared_preload_libraries: 'pg_stat_statements', 'pg_stat_statements.track_utility': 'off' };

const NOT_EMBEDDED =
  'POSTERN_QUERY_STATISTICS is on, but is about the embedded server only, and the one in DATABASE_URL should not preload ' +
  'pg_stat_statements: a statement of any key can end the server process in it';

/** The PostgreSQL behind the doors: the one in DATABASE_URL, or the embedded one. */
export async function openPostgres(config: Config, observe: Observe, opened: (() => Promise<void>)[]): Promise<BackingPostgres> {
  const { DATABASE_URL: admin, POSTERN_SECRET: secret } = config;
  if (admin !== undefined && secret !== undefined) {
    if (config.POSTERN_QUERY_STATISTICS === 'on') observe({ name: 'service.warning', message: NOT_EMBEDDED });
    return { admin, secret };
  }
  const embedded = await startEmbedded({
    dataDir: config.POSTERN_DATA_DIR,
    observe,
    ...(secret === undefined ? {} : { secret }),
    ...(config.POSTERN_QUERY_STATISTICS === 'on' ? { settings: WITH_MODULE } : {}),
  });
  opened.push(() => embedded.stop());
  const { host, port, superuser, folder } = embedded;
  return { admin: { host, port, ...superuser }, secret: embedded.secret, folder };
}

/**
 * The same server, for an operator beside the running service, which has started the embedded one.
 * @throws EmbeddedError when none runs
 */
export async function findPostgres(config: Config): Promise<BackingPostgres> {
  const { DATABASE_URL: admin, POSTERN_SECRET: secret } = config;
  if (admin !== undefined && secret !== undefined) return { admin, secret };
  const { host, port, superuser, secret: known, folder } = await findRunningServer(config.POSTERN_DATA_DIR, secret);
  return { admin: { host, port, ...superuser }, secret: known, folder };
}
