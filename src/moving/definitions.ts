import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { performance } from 'node:perf_hooks';
import { setTimeout as delay } from 'node:timers/promises';
import { rootCertificates } from 'node:tls';
import { promisify } from 'node:util';
import pg from 'pg';
import { rolePassword } from '../auth/derived-secrets.ts';
import type { BackendConnection } from '../backend/connection.ts';
import { runCommand } from '../backend/own-request.ts';
import type { Placement } from '../catalog/organization.ts';
import { ServiceError } from '../errors.ts';
import { type Cluster, sessionOptions } from '../placement/cluster.ts';
import { defaultPrivilegesOf, MAKE_PUBLIC } from '../placement/database.ts';
import { restrictedRole, restrictedScopesOf } from '../placement/restricted-roles.ts';
import { applySettings, readSettings } from '../placement/roles.ts';
import { clientSearchPath, type SchemaTarget } from '../rewriting/names.ts';
import { clientText, SchemaRewriter } from '../rewriting/rewriter.ts';
import { MOVER_NAME } from '../router/moves.ts';
import type { ServedCluster, ServedPlacement } from '../router/served-cluster.ts';
import { TimeSlices } from '../runtime/event-loop.ts';
import { IDEMPOTENCY_COLUMNS } from '../sql/idempotency.ts';
import { MIGRATION_COLUMNS } from '../sql/migration-history.ts';
import { posternTable } from '../sql/postern-tables.ts';
import { eachStatement } from '../syntax/statements.ts';
import { forClone } from './clone-names.ts';

/** The schema itself is made by Postern, with rights that differ between the placements. */
const ABOUT_SCHEMA = /^(?:(?:CREATE|ALTER|COMMENT ON) SCHEMA |(?:GRANT|REVOKE) [A-Z, ]+ ON SCHEMA )(\w+)/;

/** Commands of psql, at the beginning and at the end of what a pg_dump since August 2025 writes. */
const RESTRICT = /^((?:--.*\n|\n)*)\\restrict .*\n/;
const UNRESTRICT = /\n\\unrestrict .*\s*$/;

/** What stands on the tables of an organization that was over its disk quota: the function is on its own server only. */
const DISK_QUOTA = / EXECUTE FUNCTION pg_catalog\.postern_refuse_(?:write|ddl)\(\)$/;

/** The statements of a dump, without those about a schema, and without what a disk quota has added. */
export async function statementsOf(dump: string, schema: string): Promise<string[]> {
  const script = dump.replace(RESTRICT, '$1').replace(UNRESTRICT, '\n');
  const statements: string[] = [];
  const slices = new TimeSlices();
  for (const statement of eachStatement(script)) {
    await slices.pause();
    if (statement === undefined || ABOUT_SCHEMA.exec(statement.text)?.[1] === schema || DISK_QUOTA.test(statement.text)) continue;
    statements.push(statement.text);
  }
  return statements;
}

/** The same statement for an organization in a schema, as the wire door would run it. */
export function inSchema(statement: string, target: SchemaTarget): string {
  return new SchemaRewriter(target).rewrite(statement).sql;
}

export function isClone(from: Placement, to: Placement): boolean {
  return from.role !== to.role;
}

/**
 * @param client of the organization's own role
 * @param schema that clients know as `public`
 * @throws ServiceError `invalid_request` with the statement that failed
 */
export async function runDefinitions(
  client: { query(sql: string): Promise<unknown> },
  statements: readonly string[],
  schema: string,
): Promise<void> {
  for (const statement of statements) {
    await client.query(statement).catch((cause: unknown) => {
      const reason = cause instanceof Error ? cause.message : String(cause);
      const [first = ''] = statement.split('\n', 1);
      const message = `a definition cannot be carried: ${reason} (${first.slice(0, 200)})`;
      throw new ServiceError('invalid_request', clientText(message, schema), { cause });
    });
  }
}

interface Routine {
  readonly definition: string;
}

/** Functions whose text names the schema; what is parsed when it is created needs no change. */
const NAMING = `
  SELECT pg_catalog.pg_get_functiondef(p.oid) AS definition
  FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
  WHERE n.nspname = 'public' AND p.prokind <> 'a'
    AND (pg_catalog.strpos(p.prosrc, $1) > 0 OR pg_catalog.strpos(pg_catalog.array_to_string(p.proconfig, ','), $1) > 0)`;

const SETS_SEARCH_PATH = /^ SET search_path TO .*$/m;

/** Has functions name `public` after the organization's schema has got that name. */
async function renameInRoutines(client: pg.Client, { schema }: Placement): Promise<void> {
  const { rows } = await client.query<Routine>(NAMING, [schema]);
  const renamed = rows.map(({ definition }) =>
    clientText(definition, schema).replace(SETS_SEARCH_PATH, (line) =>
      line.replace(/'([^']*)'/g, (_, value: string) => `'${clientSearchPath(value, schema)}'`),
    ),
  );
  await runDefinitions(client, renamed, schema);
}

const run = promisify(execFile);
const NO_LIMITS = { statementTimeoutMs: 0, idleInTransactionTimeoutMs: 0 };

interface PgDump {
  /** What it is run as; undefined: there is none that can read the server. */
  readonly program: string | undefined;
  readonly needed: string;
  /** What there is instead. */
  readonly found: string;
}

/** Looks for a pg_dump that can read the server: the one in the cluster's folder of programs, then the one in PATH. */
export async function findPgDump({ serverVersion, programs }: Pick<Cluster, 'serverVersion' | 'programs'>): Promise<PgDump> {
  const major = Math.floor(serverVersion / 10_000);
  const needed = `pg_dump of PostgreSQL ${major} or later in ${programs === undefined ? '' : 'POSTERN_POSTGRES_BIN or '}PATH`;
  let found = 'there is none';
  for (const program of programs === undefined ? ['pg_dump'] : [join(programs, 'pg_dump'), 'pg_dump']) {
    const stdout = await run(program, ['--version']).then(
      (output) => output.stdout,
      () => undefined,
    );
    if (stdout === undefined) continue;
    if (Number(/\(PostgreSQL\) (\d+)/.exec(stdout)?.[1]) >= major) return { program, needed, found };
    found = `that is ${stdout.trim()}`;
  }
  return { program: undefined, needed, found };
}

/**
 * The environment in which a program of PostgreSQL logs in as an organization, without TLS: see {@link withTlsEnvironment}.
 * @param name the application_name
 */
export function clientEnvironment(cluster: Cluster, placement: Placement, name: string): NodeJS.ProcessEnv {
  const { role, database } = placement;
  const login = cluster.login({ user: role, password: rolePassword(cluster.secret, role), database });
  return {
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
  const { kind, schema } = placement;
  const { program, needed, found } = await findPgDump(cluster);
  if (program === undefined) throw new ServiceError('internal', `a dump needs ${needed}, and ${found}`);
  const env = clientEnvironment(cluster, placement, name);
  // The name is quoted, so that it is no pattern.
  const words = ['--schema-only', '--no-owner', '--no-password', `--section=${section}`];
  if (!isWhole) words.push(`--schema="${schema}"`);
  if (kind === 'schema') words.push(...POSTERN_TABLES.map((table) => `--exclude-table="${schema}"."postern_${table}"`));
  try {
    const { stdout } = await withTlsEnvironment(cluster, (tls) =>
      run(program, words, { env: { ...env, ...tls }, maxBuffer, ...(signal ? { signal } : {}) }),
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

/** How an organization is copied. */
export interface CopyOptions {
  /** The application_name of the sessions, by which they are found. */
  readonly name: string;
  /** After how long the server ends a statement and an idle transaction of them; 0: never. */
  readonly timeoutMs: number;
  /** How large the definitions before the rows may be, and those after them. */
  readonly definitionsMaxBytes: number;
  /** Ends `pg_dump`. */
  readonly signal?: AbortSignal;
}

export const FOR_MOVE: CopyOptions = { name: MOVER_NAME, timeoutMs: 0, definitionsMaxBytes: 256 * 1024 * 1024 };

export type PosternTableName = 'migrations' | 'idempotency_keys';
export const POSTERN_TABLES: readonly PosternTableName[] = ['migrations', 'idempotency_keys'];

const COLUMNS: Readonly<Record<PosternTableName, string>> = { migrations: MIGRATION_COLUMNS, idempotency_keys: IDEMPOTENCY_COLUMNS };

/** Creates Postern's own tables, which have other names in the other placement. Default privileges do not apply to them yet. */
export async function createPosternTables(client: pg.Client, placement: Placement, names: readonly PosternTableName[]): Promise<void> {
  for (const table of names) {
    const { schema, name } = posternTable(placement, table);
    if (schema !== undefined) await client.query(`CREATE SCHEMA IF NOT EXISTS ${schema}`);
    await client.query(`CREATE TABLE ${name} (${COLUMNS[table]})`);
    if (table === 'idempotency_keys') await client.query(`CREATE INDEX ON ${name} (created_at)`);
  }
}

/** Has the numbering of migrations go on after the copied ones. */
export async function continueMigrations(client: pg.Client, placement: Placement, names: readonly PosternTableName[]): Promise<void> {
  if (!names.includes('migrations')) return;
  const { name } = posternTable(placement, 'migrations');
  await client.query(`SELECT pg_catalog.setval(pg_catalog.pg_get_serial_sequence($1, 'id'), pg_catalog.max(id)) FROM ${name}`, [name]);
}

/** Two sessions of an organization's own role at one of its placements. */
export interface TenantSession {
  /** For statements; it may be in a transaction. */
  readonly client: pg.Client;
  /** For COPY. */
  readonly backend: BackendConnection;
  readonly processIds: readonly number[];
  /** Resolves when the server does not list them any more, or after some seconds. */
  end(): Promise<void>;
}

/** One of the two placements between which an organization's data is copied. */
export interface OpenPlacement extends ServedPlacement {
  readonly session: TenantSession;
}

/** With the same settings at both placements a value has the same text, and a setting of the role changes nothing. */
const SETTINGS: Readonly<Record<string, string>> = {
  search_path: '',
  client_encoding: 'UTF8',
  client_min_messages: 'error',
  DateStyle: 'ISO',
  IntervalStyle: 'postgres',
  TimeZone: 'UTC',
  bytea_output: 'hex',
  extra_float_digits: '1',
  lc_monetary: 'C',
  xmloption: 'content',
  standard_conforming_strings: 'on',
  row_security: 'off',
  check_function_bodies: 'off',
  lock_timeout: '5s',
};

const GONE_WITHIN_MS = 5_000;
const POLL_MS = 20;

export async function openTenantSession(
  { platform, provisioner }: ServedCluster,
  placement: Placement,
  { name, timeoutMs }: Pick<CopyOptions, 'name' | 'timeoutMs'> = FOR_MOVE,
): Promise<TenantSession> {
  const { cluster } = platform;
  // A login that the organization has broken is repaired here.
  const backend = await provisioner.open(placement);
  const { host, port, ssl, user, password, database } = cluster.login({
    user: placement.role,
    password: rolePassword(cluster.secret, placement.role),
    database: placement.database,
  });
  const settings = setting({
    ...SETTINGS,
    application_name: name,
    statement_timeout: String(timeoutMs),
    idle_in_transaction_session_timeout: String(timeoutMs),
  });
  const options = '-c role=none -c statement_timeout=0 -c idle_in_transaction_session_timeout=0 -c default_transaction_read_only=off';
  const client = new pg.Client({ host, port, ssl: ssl ?? false, user, password, database, options, application_name: name });
  // A connection lost between two statements fails the next one.
  client.on('error', () => {});
  const processIds = [backend.processId];
  const end = async () => {
    backend.end();
    await client.end().catch(() => {});
    await untilGone(platform, processIds).catch(() => {});
  };
  try {
    await runCommand(backend, settings);
    await client.connect();
    await client.query(settings);
    const { rows } = await client.query<{ id: number }>('SELECT pg_catalog.pg_backend_pid() AS id');
    processIds.push(...rows.map(({ id }) => id));
    return { client, backend, processIds, end };
  } catch (error) {
    await end();
    throw error;
  }
}

/** A session that its client has ended is listed for some time. A move would take it for one of somebody else. */
async function untilGone(platform: ServedCluster['platform'], processIds: readonly number[]): Promise<void> {
  const deadline = performance.now() + GONE_WITHIN_MS;
  const query = 'SELECT FROM pg_catalog.pg_stat_activity WHERE pid = ANY ($1)';
  while ((await platform.run((session) => session.query(query, [processIds]))).rows.length > 0) {
    if (performance.now() > deadline) return;
    await delay(POLL_MS);
  }
}

function setting(values: Readonly<Record<string, string>>): string {
  return Object.entries(values)
    .map(([name, value]) => `SET ${name} = ${pg.escapeLiteral(value)}`)
    .join('; ');
}

/** Settings whose values are identifiers. Those of others are data. */
const SETTINGS_OF_NAMES = new Set(['search_path', 'role', 'session_authorization']);

/** What is not in a dump of one schema: its name, default privileges, and settings of the role. */
export async function completeDefinitions(source: OpenPlacement, target: OpenPlacement): Promise<void> {
  const { placement: from, session: own } = source;
  const { placement: to, session: copy } = target;
  const { platform } = target.server;
  if (to.kind === 'database') {
    if (from.kind === 'schema') {
      await copy.client.query(`ALTER SCHEMA ${pg.escapeIdentifier(from.schema)} RENAME TO public; ${MAKE_PUBLIC}`);
      await renameInRoutines(copy.client, from);
    }
    for (const scope of await platform.run((session) => restrictedScopesOf(session, to.role)))
      await copy.client.query(`GRANT USAGE ON SCHEMA public TO ${pg.escapeIdentifier(restrictedRole(to.role, scope))}`);
  }
  const named = (text: string) => (isClone(from, to) ? forClone(text, from, to) : text);
  for (const statement of await defaultPrivilegesOf(own.client, from.role)) await copy.client.query(named(statement));
  const ofPlatform = Object.keys(platform.cluster.roleSettings);
  const settings = await source.server.platform.run((session) => readSettings(session, from, ofPlatform));
  const isNewRole = isClone(from, to) || from.cluster !== to.cluster;
  const carried = settings.filter(({ inDatabase }) => inDatabase || isNewRole);
  await applySettings(
    copy.backend,
    to,
    carried.map((setting) => (SETTINGS_OF_NAMES.has(setting.name.toLowerCase()) ? { ...setting, value: named(setting.value) } : setting)),
  );
}
