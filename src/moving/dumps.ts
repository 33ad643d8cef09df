import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { dirname, join } from 'node:path';
import type { Readable } from 'node:stream';
import { promisify } from 'node:util';
import type pg from 'pg';
import type { BackendConnection } from '../backend/connection.ts';
import { RESTRICTED_SCOPES } from '../catalog/key-rows.ts';
import type { Organization, Placement } from '../catalog/organization.ts';
import { ServiceError } from '../errors.ts';
import { hasCitus } from '../placement/citus.ts';
import type { Cluster } from '../placement/cluster.ts';
import { restrictedRole } from '../placement/restricted-roles.ts';
import { textOf } from '../protocol/backend.ts';
import { clientText } from '../rewriting/rewriter.ts';
import type { Clusters } from '../router/clusters.ts';
import { requireWithinQuota } from '../router/moves.ts';
import { Lexer, Token } from '../syntax/scanner.ts';
import { allForClone } from './clone-names.ts';
import { copyIn, runQuery } from './copy.ts';
import {
  clientEnvironment,
  FOR_MOVE,
  findPgDump,
  isClone,
  openTenantSession,
  runDefinitions,
  statementsOf,
  withTlsEnvironment,
} from './definitions.ts';

const run = promisify(execFile);

const DUMPER_NAME = 'postern dump';
const RESTORER_NAME = 'postern restore';
/** What pg_dump leaves out: replies kept for requests that are repeated. */
const LEFT_OUT = { database: 'postern.idempotency_keys', schema: 'postern_idempotency_keys' } as const;

/** What an operator may take out of an organization, and put into another. Everything is done with the organization's own role. */
export class Dumps {
  readonly #clusters: Clusters;

  constructor(clusters: Clusters) {
    this.#clusters = clusters;
  }

  /**
   * Writes all that the organization has, in pg_dump's custom format. Its clients go on.
   * @param to a file descriptor
   * @throws ServiceError `invalid_request` without a pg_dump that can read the server, `disk_quota_exceeded`, `not_ready`, `internal`
   */
  async dump(organization: Organization, to: number): Promise<void> {
    requireWithinQuota(organization);
    const { placement } = organization;
    const { kind, schema, role } = placement;
    const { platform, provisioner } = await this.#clusters.ready(placement.cluster);
    const { cluster } = platform;
    const { pgDump } = await findPrograms(cluster);
    // A login that the organization has broken is repaired here.
    (await provisioner.open(placement)).end();
    const words = ['--format=custom', '--no-owner', '--no-password', ...whatOf({ kind, schema, role })];
    const environment = clientEnvironment(cluster, placement, DUMPER_NAME);
    await withTlsEnvironment(cluster, async (tls) => {
      const child = spawn(pgDump, words, { env: { ...environment, ...tls }, stdio: ['ignore', to, 'pipe'] });
      await ended(child, 'pg_dump');
    });
  }

  /**
   * Loads a dump into an organization that has nothing yet: all of it, or nothing.
   * @param file as pg_dump writes it in the custom format
   * @returns how many tables there were rows for
   * @throws ServiceError `invalid_request` if the organization has something, the dump is of the other placement, or something in it is
   * refused; `unsupported_statement` on Citus
   */
  async restore({ id, placement }: Organization, file: string): Promise<number> {
    const server = await this.#clusters.ready(placement.cluster);
    const { platform, provisioner } = server;
    if (await platform.runInShared(hasCitus)) throw new ServiceError('unsupported_statement', 'a dump cannot be restored on Citus');
    const { pgRestore } = await findPrograms(platform.cluster);
    const from = await sourceOf(pgRestore, file, placement);
    const session = await openTenantSession(server, placement, { name: RESTORER_NAME, timeoutMs: 0 });
    try {
      await requireEmpty(session.client, id, placement);
      const privileges = from === undefined ? ['--no-privileges'] : [];
      const words = (section: string) => [`--section=${section}`, '--no-owner', ...privileges, '--file=-', file];
      const named = (statements: readonly string[]) =>
        from !== undefined && isClone(from, placement) ? allForClone(statements, from, placement) : statements;
      const definitions = async (section: string) => {
        const { definitionsMaxBytes: maxBuffer } = FOR_MOVE;
        const { stdout } = await run(pgRestore, words(section), { maxBuffer }).catch((cause: unknown) => {
          throw new ServiceError('invalid_request', `the dump cannot be read: ${textOf(cause)}`, { cause });
        });
        return named(await statementsOf(stdout, from?.schema ?? placement.schema));
      };
      const [before, after] = [await definitions('pre-data'), await definitions('post-data')];
      for (const scope of RESTRICTED_SCOPES) {
        const role = restrictedRole(placement.role, scope);
        if ([...before, ...after].some((statement) => statement.includes(role))) await provisioner.admit(placement, scope);
      }
      const { backend } = session;
      const runner = { query: (sql: string) => runQuery(backend, sql) };
      await runQuery(backend, 'BEGIN');
      await runDefinitions(runner, before, placement.schema);
      const child = spawn(pgRestore, words('data'), { stdio: ['ignore', 'pipe', 'pipe'] });
      const loading = loadRows(child.stdout, backend, named, placement.schema);
      const [tables] = await Promise.all([loading, ended(child, 'pg_restore')]).finally(() => child.kill());
      await runDefinitions(runner, after, placement.schema);
      await runQuery(backend, 'COMMIT');
      return tables;
    } finally {
      await session.end();
    }
  }
}

/** @throws ServiceError `invalid_request` */
async function findPrograms(cluster: Cluster): Promise<{ readonly pgDump: string; readonly pgRestore: string }> {
  const { program, needed, found } = await findPgDump(cluster);
  if (program === undefined) throw new ServiceError('invalid_request', `this needs ${needed}, and ${found}`);
  const folder = dirname(program);
  return { pgDump: program, pgRestore: folder === '.' ? 'pg_restore' : join(folder, 'pg_restore') };
}

/** The names are quoted, so that they are no patterns. */
function whatOf({ kind, schema }: Pick<Placement, 'kind' | 'schema' | 'role'>): string[] {
  if (kind === 'database') return [`--exclude-table=${LEFT_OUT.database}`];
  return [`--schema="${schema}"`, `--exclude-table="${schema}"."${LEFT_OUT.schema}"`];
}

/** @throws ServiceError with what the program has said */
async function ended(child: ChildProcess, program: string): Promise<void> {
  let said = '';
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    said = `${said}${text}`.slice(-SAID_MAX_CHARACTERS);
  });
  const [code] = await once(child, 'close').catch((cause: unknown) => {
    throw new ServiceError('internal', `${program} cannot be run: ${textOf(cause)}`, { cause });
  });
  if (code !== 0) throw new ServiceError('internal', `${program} has failed: ${said.trim() || 'it said nothing'}`);
}

const SAID_MAX_CHARACTERS = 2_000;

const ID = /^org_[a-z0-9]{12}$/;
/** In the list of what an archive has. */
const DATABASE = /^; +dbname: (.*)$/m;
const SCHEMA = /^\d+; 2615 \d+ SCHEMA - (org_[a-z0-9]{12}) /m;

/**
 * The placement of the organization that a dump is of, as far as names go.
 * @returns undefined: it is of no organization
 * @throws ServiceError `invalid_request`
 */
async function sourceOf(pgRestore: string, file: string, to: Placement): Promise<Placement | undefined> {
  const { stdout } = await run(pgRestore, ['--list', file], { maxBuffer: FOR_MOVE.definitionsMaxBytes }).catch((cause: unknown) => {
    throw new ServiceError('invalid_request', 'that is no dump in the custom format of pg_dump, or one of a later version', { cause });
  });
  const schema = SCHEMA.exec(stdout)?.[1];
  const database = DATABASE.exec(stdout)?.[1]?.trim() ?? '';
  const kind = schema === undefined ? 'database' : 'schema';
  if (kind !== to.kind) {
    const [of, other] =
      kind === 'schema' ? ['in the schema placement', 'has a database of its own'] : ['of a database', 'is in the schema placement'];
    throw new ServiceError('invalid_request', `the dump is ${of}, and the organization ${other}: restore it there, and move it afterwards`);
  }
  if (schema !== undefined) return { ...to, schema, role: schema };
  return ID.test(database) ? { ...to, database, role: database } : undefined;
}

/** Tables, views, functions, types and the like of its own; Postern's tables are of Postern. */
const OBJECTS = `
  SELECT c.relname AS name FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  WHERE n.nspname = ANY ($1) AND c.relkind <> ALL ('{i,I,t}')
  UNION ALL
  SELECT p.proname FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = ANY ($1)
  UNION ALL
  SELECT t.typname FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
  WHERE n.nspname = ANY ($1) AND t.typtype = ANY ('{d,e,r}')
  LIMIT 1`;
const SCHEMAS = `SELECT nspname AS name FROM pg_catalog.pg_namespace
  WHERE nspname !~ '^pg_' AND nspname <> ALL ('{information_schema,public}') LIMIT 1`;

/** @throws ServiceError `invalid_request` */
async function requireEmpty(client: pg.Client, id: string, { kind, schema }: Placement): Promise<void> {
  const found = [...(await client.query<{ name: string }>(OBJECTS, [[schema]])).rows];
  if (kind === 'database') found.push(...(await client.query<{ name: string }>(SCHEMAS)).rows);
  const [first] = found;
  if (first === undefined) return;
  throw new ServiceError('invalid_request', `organization "${id}" has something already (${first.name}): restore the dump into a new one`);
}

const COPY = /^COPY [\s\S]* FROM stdin$/;
const END_OF_ROWS = Buffer.from('\n\\.\n');
const END_LINE = Buffer.from('\\.\n');
/** Comments before a statement, and commands of psql at the beginning and the end of what pg_restore writes. */
const BEFORE_STATEMENT = /^(?:--.*\n|\n|\\(?:un)?restrict .*\n)*/;
const STATEMENT_MAX_BYTES = 64 * 1024 * 1024;

/**
 * Runs what is in the data section of a dump: COPY with its rows, values of sequences, large objects.
 * @param named gives names of the organization to statements
 * @returns how many tables there were
 * @throws ServiceError `invalid_request` with the statement that failed
 */
async function loadRows(
  script: Readable,
  backend: BackendConnection,
  named: (statements: readonly string[]) => readonly string[] | Promise<readonly string[]>,
  schema: string,
): Promise<number> {
  const reader = new ScriptReader(script);
  let tables = 0;
  for (let statement = await reader.statement(); statement !== undefined; statement = await reader.statement()) {
    const [sql = ''] = await named([statement]);
    const isCopy = COPY.test(statement);
    if (isCopy) tables += 1;
    await (isCopy ? copyIn(backend, sql, reader.rows()) : runQuery(backend, sql)).catch((cause: unknown) => {
      const [first = ''] = sql.split('\n', 1);
      throw new ServiceError(
        'invalid_request',
        clientText(`the data cannot be loaded: ${textOf(cause)} (${first.slice(0, 200)})`, schema),
        { cause },
      );
    });
  }
  return tables;
}

/** Reads a script for psql that has nothing but statements, and rows behind each COPY, with as much of it in memory as is needed. */
export class ScriptReader {
  readonly #chunks: AsyncIterator<Buffer>;
  #rest: Buffer = Buffer.alloc(0);

  constructor(script: AsyncIterable<Buffer>) {
    this.#chunks = script[Symbol.asyncIterator]();
  }

  /** @returns the next statement without its semicolon; undefined: there are no more */
  async statement(): Promise<string | undefined> {
    for (let searched = 0; ; ) {
      const end = this.#rest.indexOf(';\n', searched);
      if (end < 0) {
        // The semicolon may be the last byte that there is.
        searched = Math.max(0, this.#rest.length - 1);
        if (await this.#readMore()) continue;
        // What is left has no end: white space and comments.
        return undefined;
      }
      const text = this.#rest.toString('utf8', 0, end);
      if (isWhole(text)) {
        this.#rest = this.#rest.subarray(end + 2);
        return text.replace(BEFORE_STATEMENT, '');
      }
      searched = end + 1;
    }
  }

  /** The rows behind a COPY, up to the line that ends them. */
  async *rows(): AsyncGenerator<Buffer, void> {
    for (let isAtLineStart = true; ; ) {
      if (isAtLineStart && this.#rest.subarray(0, END_LINE.length).equals(END_LINE)) {
        this.#rest = this.#rest.subarray(END_LINE.length);
        return;
      }
      const end = this.#rest.indexOf(END_OF_ROWS);
      if (end >= 0) {
        const rows = this.#rest.subarray(0, end + 1);
        this.#rest = this.#rest.subarray(end + END_OF_ROWS.length);
        yield rows;
        return;
      }
      // The end may have begun.
      const rows = this.#rest.subarray(0, Math.max(0, this.#rest.length - END_OF_ROWS.length));
      this.#rest = this.#rest.subarray(rows.length);
      if (rows.length > 0) {
        isAtLineStart = rows.at(-1) === NEWLINE;
        yield rows;
      }
      if (!(await this.#readMore())) throw new ServiceError('invalid_request', 'the dump ends within the rows of a table');
    }
  }

  async #readMore(): Promise<boolean> {
    if (this.#rest.length > STATEMENT_MAX_BYTES) throw new ServiceError('invalid_request', 'a statement of the dump is too long');
    const { done, value } = await this.#chunks.next();
    if (done === true) return false;
    this.#rest = this.#rest.length === 0 ? value : Buffer.concat([this.#rest, value]);
    return true;
  }
}

const NEWLINE = 0x0a;

/** Whether a text ends outside of quotes and comments. */
function isWhole(text: string): boolean {
  const lexer = new Lexer(text);
  while (lexer.next() !== Token.End) if (!lexer.terminated) return false;
  return true;
}
