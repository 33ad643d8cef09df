import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { rolePassword } from '../../auth/derived-secrets.ts';
import type { Placement } from '../../catalog/organization.ts';
import { ServiceError } from '../../errors.ts';
import { type Cluster, sessionOptions } from '../../placement/cluster.ts';
import { type CopyOptions, FOR_MOVE } from '../copy-options.ts';
import { withTlsEnvironment } from '../libpq-tls.ts';
import { POSTERN_TABLES } from '../postern-tables.ts';

const run = promisify(execFile);
const NO_LIMITS = { statementTimeoutMs: 0, idleInTransactionTimeoutMs: 0 };

/**
 * Whether the pg_dump in PATH can read the server.
 * @param serverVersion as `server_version_num`
 * @returns what is needed, and what there is; undefined: it can
 */
export async function pgDumpLacking(serverVersion: number): Promise<{ readonly needed: string; readonly found: string } | undefined> {
  const version = Math.floor(serverVersion / 10_000);
  const needed = `pg_dump of PostgreSQL ${version} or later`;
  const stdout = await run('pg_dump', ['--version']).then(
    (output) => output.stdout,
    () => undefined,
  );
  if (stdout === undefined) return { needed, found: 'there is none' };
  return Number(/\(PostgreSQL\) (\d+)/.exec(stdout)?.[1]) >= version ? undefined : { needed, found: `that is ${stdout.trim()}` };
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
  { name, definitionsMaxBytes: maxBuffer, signal }: Omit<CopyOptions, 'timeoutMs'> = FOR_MOVE,
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
    PGAPPNAME: name,
    PGCLIENTENCODING: 'UTF8',
    LC_ALL: 'C',
  };
  // The name is quoted, so that it is no pattern.
  const words = ['--schema-only', '--no-owner', '--no-password', `--section=${section}`];
  if (!isWhole) words.push(`--schema="${schema}"`);
  if (kind === 'schema') words.push(...POSTERN_TABLES.map((table) => `--exclude-table="${schema}"."postern_${table}"`));
  try {
    const { stdout } = await withTlsEnvironment(cluster, (tls) =>
      run('pg_dump', words, { env: { ...env, ...tls }, maxBuffer, ...(signal ? { signal } : {}) }),
    );
    return stdout;
  } catch (cause) {
    const { stderr = '', code } = cause as { readonly stderr?: string; readonly code?: unknown };
    if (code === 'ERR_CHILD_PROCESS_STDIO_MAXBUFFER') {
      const size = `${maxBuffer / 1024 / 1024} MiB`;
      throw new ServiceError('unsupported_statement', `the definitions are larger than ${size}, which cannot be copied`, { cause });
    }
    throw new ServiceError('internal', `pg_dump has failed: ${stderr.trim() || 'it said nothing'}`, { cause });
  }
}
