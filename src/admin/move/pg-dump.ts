import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { rolePassword } from '../../auth/role-password.ts';
import type { Placement } from '../../catalog/organizations/organization.ts';
import { ServiceError } from '../../errors.ts';
import { MOVER_NAME } from '../../router/moves/interrupted-moves.ts';
import type { Cluster } from '../../router/placement/cluster.ts';
import { sessionOptions } from '../../router/placement/session-settings.ts';
import { POSTERN_TABLES } from './contents.ts';

const run = promisify(execFile);
const OUTPUT_MAX_BYTES = 256 * 1024 * 1024;
const NO_LIMITS = { statementTimeoutMs: 0, idleInTransactionTimeoutMs: 0 };

/**
 * Checks that the pg_dump in PATH can read the server.
 * @param serverVersion as `server_version_num`
 * @throws ServiceError `invalid_request`
 */
export async function checkPgDump(serverVersion: number): Promise<void> {
  const needed = Math.floor(serverVersion / 10_000);
  const wanted = `moving needs pg_dump of PostgreSQL ${needed} or later in PATH`;
  const { stdout } = await run('pg_dump', ['--version']).catch((cause: unknown) => {
    throw new ServiceError('invalid_request', `${wanted}, and there is none`, { cause });
  });
  const found = Number(/\(PostgreSQL\) (\d+)/.exec(stdout)?.[1]);
  if (!(found >= needed)) throw new ServiceError('invalid_request', `${wanted}, and that is ${stdout.trim()}`);
}

/**
 * The definitions in a placement's schema, as pg_dump writes them with the organization's own role. The password is in its environment,
 * which only the same user can read.
 * @param isWhole dumps all schemas, with extensions
 * @param section `pre-data`: what has to be there before the rows; `post-data`: indexes, constraints, triggers and the like
 */
export async function dumpDefinitions(
  cluster: Cluster,
  placement: Placement,
  isWhole: boolean,
  section: 'pre-data' | 'post-data',
): Promise<string> {
  const { kind, role, database, schema } = placement;
  const login = cluster.login({ user: role, password: rolePassword(cluster.secret, role), database });
  const env = {
    ...process.env,
    PGHOST: login.host,
    PGPORT: String(login.port),
    PGUSER: login.user,
    PGPASSWORD: login.password,
    PGDATABASE: login.database,
    PGOPTIONS: sessionOptions(placement, NO_LIMITS, cluster.serverVersion),
    PGAPPNAME: MOVER_NAME,
    PGCLIENTENCODING: 'UTF8',
    ...(login.ssl ? { PGSSLMODE: process.env.PGSSLMODE ?? 'require' } : {}),
    LC_ALL: 'C',
  };
  // The name is quoted, so that it is no pattern.
  const words = ['--schema-only', '--no-owner', '--no-password', `--section=${section}`];
  if (!isWhole) words.push(`--schema="${schema}"`);
  if (kind === 'schema') words.push(...POSTERN_TABLES.map((table) => `--exclude-table="${schema}"."postern_${table}"`));
  try {
    const { stdout } = await run('pg_dump', words, { env, maxBuffer: OUTPUT_MAX_BYTES });
    return stdout;
  } catch (cause) {
    const { stderr = '' } = cause as { readonly stderr?: string };
    throw new ServiceError('internal', `pg_dump has failed: ${stderr.trim() || 'it said nothing'}`, { cause });
  }
}
