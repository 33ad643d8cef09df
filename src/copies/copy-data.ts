import type pg from 'pg';
import { type BackendConnection, NO_RECEIVER } from '../backend/connection.ts';
import { ServiceError } from '../errors.ts';
import { PostgresError } from '../protocol/backend.ts';
import { FrontendType, message, queryMessage } from '../protocol/frontend.ts';
import { ReplyReader, replyFrames } from '../protocol/reply-reader.ts';
import type { Contents, CopiedTable } from './contents.ts';
import type { OpenPlacement } from './tenant-session.ts';

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
