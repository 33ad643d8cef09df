import pg from 'pg';
import { channelSecret, channelsOf } from '../auth/derived-secrets.ts';
import { type BackendConnection, NO_RECEIVER } from '../backend/connection.ts';
import type { Placement } from '../catalog/organization.ts';
import { ServiceError } from '../errors.ts';
import { PostgresError } from '../protocol/backend.ts';
import { FrontendType, message, queryMessage } from '../protocol/frontend.ts';
import { ReplyReader, replyFrames } from '../protocol/reply-reader.ts';
import { allForClone } from './clone-names.ts';
import { type Contents, type CopiedTable, checkForObstacles, readContents } from './contents.ts';
import {
  type CopyOptions,
  completeDefinitions,
  continueMigrations,
  createPosternTables,
  dumpDefinitions,
  FOR_MOVE,
  inSchema,
  isClone,
  type OpenPlacement,
  runDefinitions,
  statementsOf,
} from './definitions.ts';

/**
 * Copies all that an organization has to another placement, or to that of its clone, and compares the tables. Nobody can write to the source's tables before its session ends.
 * @returns how much has been copied
 * @throws ServiceError `unsupported_statement` if the target cannot have all of it
 */
export async function copyOrganization(
  source: OpenPlacement,
  target: OpenPlacement,
  options: CopyOptions = FOR_MOVE,
): Promise<{ readonly tables: number; readonly rows: number }> {
  const { placement: from } = source;
  const { placement: to } = target;
  const { client: reading } = source.session;
  const { client: writing } = target.session;
  await checkForObstacles(reading, from, to);
  const schema = schemaMeanwhile(from, to);
  const contents = await readContents(reading, from, to, schema);
  await lockTables(reading, contents);
  const { cluster } = source.server.platform;
  const dump = (section: 'pre-data' | 'post-data') => dumpDefinitions(cluster, from, schema === undefined, section, options);
  const [before, after] = await Promise.all([dump('pre-data'), dump('post-data')]);
  if (from.kind === 'schema' && to.kind === 'database')
    await writing.query(`DROP SCHEMA public; CREATE SCHEMA ${pg.escapeIdentifier(from.schema)}`);
  await runDefinitions(writing, await adapted(before, source, target), to.schema);
  await createPosternTables(writing, to, contents.posternTables);
  await copyTables(source, target, contents.tables);
  await runDefinitions(writing, await adapted(after, source, target), to.schema);
  for (const view of contents.views) await writing.query(`REFRESH MATERIALIZED VIEW ${view}`);
  await carrySequences(reading, writing, contents);
  await continueMigrations(writing, to, contents.posternTables);
  const rows = await compareTables(reading, writing, contents.tables);
  await completeDefinitions(source, target);
  return { tables: contents.tables.length, rows };
}

/**
 * What the schema is called at the target while it is copied. In a database of its own it gets the name `public` at the end, so that all
 * that refers to it follows. Undefined: all schemas of the database keep their names.
 */
function schemaMeanwhile(from: Placement, to: Placement): string | undefined {
  if (to.kind === 'schema') return to.schema;
  return from.kind === 'schema' ? from.schema : undefined;
}

async function adapted(dump: string, { placement: from }: OpenPlacement, { server, placement: to }: OpenPlacement): Promise<string[]> {
  const statements = await statementsOf(dump, from.schema);
  if (isClone(from, to)) return allForClone(statements, from, to);
  if (to.kind === 'database' || from.kind === 'schema') return statements;
  const { secret, pgNotify } = server.platform.cluster;
  const target = { schema: to.schema, channels: channelsOf(channelSecret(secret), to.role), pgNotify, database: to.database };
  return statements.map((statement) => inSchema(statement, target));
}

/** Runs a statement on an idle session, which may be in a transaction. @throws PostgresError, ServiceError `backend_lost` */
export async function runQuery(backend: BackendConnection, sql: string): Promise<void> {
  const conversation = new Conversation(backend, {});
  try {
    // Nobody has rows for it.
    void conversation.copying.then(() => backend.write(message(FrontendType.CopyFail, GIVEN_UP)));
    conversation.ask(sql);
    await conversation.ready;
    conversation.throwIfFailed();
  } finally {
    backend.receiver = NO_RECEIVER;
  }
}

/**
 * Copies rows to an idle session, with no more of them in memory than a part and what the sockets hold.
 * @param sql a `COPY … FROM STDIN` @param rows read to their end, even if the server refuses them
 * @throws as {@link runQuery}, and what reading throws
 */
export async function copyIn(backend: BackendConnection, sql: string, rows: AsyncIterable<Buffer>): Promise<void> {
  let drained = () => {};
  const conversation = new Conversation(backend, { drained: () => drained() });
  const over = conversation.ready.then(() => drained());
  try {
    conversation.ask(sql);
    await Promise.race([conversation.ready, conversation.copying]);
    for await (const part of rows) {
      if (conversation.failure !== undefined) continue;
      const drain = new Promise<void>((resolve) => {
        drained = resolve;
      });
      if (!backend.write(message(FrontendType.CopyData, part))) await Promise.race([drain, over]);
    }
    if (conversation.failure === undefined) backend.write(message(FrontendType.CopyDone));
    await conversation.ready;
    conversation.throwIfFailed();
  } finally {
    backend.receiver = NO_RECEIVER;
  }
}

const FRAMES = replyFrames();
const GIVEN_UP = Buffer.from('the rows could not be read\0');

/** Nobody writes to the tables before the session ends. */
export async function lockTables(client: pg.Client, { tables }: Contents): Promise<void> {
  await client.query('BEGIN');
  for (const { from } of tables) await client.query(`LOCK TABLE ONLY ${from} IN SHARE MODE`);
}

/** Copies the rows of tables, one table after the other. @throws PostgresError, ServiceError `backend_lost` */
export async function copyTables(
  { session: own }: OpenPlacement,
  { session: copy }: OpenPlacement,
  tables: readonly CopiedTable[],
): Promise<void> {
  for (const { from, to, columns, copiedColumns } of tables)
    await copyRows(own.backend, `COPY ${from}${listOf(columns)} TO STDOUT`, copy.backend, `COPY ${to}${listOf(copiedColumns)} FROM STDIN`);
}

function listOf(columns: readonly string[]): string {
  return columns.length === 0 ? '' : ` (${columns.join(', ')})`;
}

/** Has the sequences of the copy go on after the values of the source. */
export async function carrySequences(source: pg.Client, target: pg.Client, { sequences }: Contents): Promise<void> {
  for (const { from, to } of sequences) {
    const { rows } = await source.query<{ value: string; called: boolean }>(
      `SELECT last_value::text AS value, is_called AS called FROM ${from}`,
    );
    const [last] = rows;
    if (last !== undefined) await target.query('SELECT pg_catalog.setval($1, $2, $3)', [to, last.value, last.called]);
  }
}

/**
 * Copies rows from one idle session to another, with no more of them in memory than one row and what the sockets hold.
 * @param reading a `COPY … TO STDOUT` @param writing a `COPY … FROM STDIN`
 * @throws as {@link copyTables}
 */
async function copyRows(from: BackendConnection, reading: string, to: BackendConnection, writing: string): Promise<void> {
  const target = new Conversation(to, { drained: () => from.resume() });
  const source = new Conversation(from, {
    copied: (bytes) => {
      if (!to.write(bytes)) from.pause();
    },
  });
  try {
    target.ask(writing);
    await Promise.race([target.ready, target.copying]);
    target.throwIfFailed();
    source.ask(reading);
    await source.ready;
    to.write(source.failure === undefined ? message(FrontendType.CopyDone) : message(FrontendType.CopyFail, GIVEN_UP));
    await target.ready;
    source.throwIfFailed();
    target.throwIfFailed();
  } finally {
    from.receiver = NO_RECEIVER;
    to.receiver = NO_RECEIVER;
    from.resume();
  }
}

interface Listener {
  /** A part of what a COPY sends. */
  copied?(bytes: Buffer): void;
  drained?(): void;
}

/** One statement of a session, and its reply. */
class Conversation {
  readonly copying: Promise<void>;
  readonly ready: Promise<void>;
  failure: Error | undefined;
  readonly #backend: BackendConnection;
  readonly #listener: Listener;
  readonly #reader: ReplyReader;
  #end: () => void = () => {};

  constructor(backend: BackendConnection, listener: Listener) {
    this.#backend = backend;
    this.#listener = listener;
    let begin = () => {};
    this.copying = new Promise((resolve) => {
      begin = resolve;
    });
    this.ready = new Promise((resolve) => {
      this.#end = resolve;
    });
    this.#reader = new ReplyReader(FRAMES, {
      copyIn: begin,
      copied: (source, start, end) => listener.copied?.(Buffer.from(source.subarray(start, end))),
      failed: (fields) => {
        this.failure ??= new PostgresError(fields);
      },
      ready: () => this.#end(),
    });
  }

  ask(sql: string): void {
    this.#backend.receiver = {
      data: (chunk) => this.#read(chunk),
      drain: () => this.#listener.drained?.(),
      closed: (cause) => this.#fail(cause),
    };
    if (this.#backend.closed) this.#fail(undefined);
    else this.#backend.write(queryMessage(sql));
  }

  throwIfFailed(): void {
    if (this.failure !== undefined) throw this.failure;
  }

  #read(chunk: Buffer): void {
    this.#reader.push(chunk);
    while (this.#reader.next());
  }

  #fail(cause: Error | undefined): void {
    this.failure ??= new ServiceError('backend_lost', 'the connection to the database server was lost', { cause });
    this.#end();
  }
}

/** A table's rows and their checksum, which does not depend on their order. The output function is called, and no cast of the tenant's. */
const summary = (table: string) =>
  `SELECT pg_catalog.count(*)::text AS count,
     coalesce(pg_catalog.sum(pg_catalog.hashtextextended(pg_catalog.textin(pg_catalog.record_out(moved)), 0)), 0)::text AS checksum
   FROM ONLY ${table} AS moved`;

interface Summary {
  readonly count: string;
  readonly checksum: string;
}

/** How many rows a table has, and how it differs from its copy. */
interface Comparison {
  readonly rows: number;
  readonly difference: ServiceError | undefined;
}

/**
 * Compares every table with its copy.
 * @returns how many rows there are in all
 * @throws ServiceError `internal` for one that differs
 */
export async function compareTables(source: pg.Client, target: pg.Client, tables: readonly CopiedTable[]): Promise<number> {
  let all = 0;
  for (const table of tables) {
    const { rows, difference } = await compareTable(source, target, table);
    if (difference !== undefined) throw difference;
    all += rows;
  }
  return all;
}

export async function compareTable(source: pg.Client, target: pg.Client, { from, to }: CopiedTable): Promise<Comparison> {
  const [own, copied] = await Promise.all([summarize(source, from), summarize(target, to)]);
  const isSame = own.count === copied.count && own.checksum === copied.checksum;
  return { rows: Number(own.count), difference: isSame ? undefined : differs(from, own.count, copied.count) };
}

/**
 * Compares how many rows the tables and their copies have.
 * @returns how many there are in all
 * @throws ServiceError `internal` for one that differs
 */
export async function compareCounts(source: pg.Client, target: pg.Client, tables: readonly CopiedTable[]): Promise<number> {
  let rows = 0;
  for (const { from, to } of tables) {
    const [own, copied] = await Promise.all([countRows(source, from), countRows(target, to)]);
    if (own !== copied) throw differs(from, own, copied);
    rows += own;
  }
  return rows;
}

function differs(table: string, rows: number | string, copied: number | string): ServiceError {
  return new ServiceError('internal', `the copy of the table ${table} differs: ${rows} rows, and ${copied} in the copy`);
}

async function countRows(client: pg.Client, table: string): Promise<number> {
  const { rows } = await client.query<{ count: string }>(`SELECT pg_catalog.count(*)::text AS count FROM ONLY ${table}`);
  return Number(rows[0]?.count);
}

async function summarize(client: pg.Client, table: string): Promise<Summary> {
  const { rows } = await client.query<Summary>(summary(table));
  return rows[0] ?? { count: 'none', checksum: '' };
}
