import { randomUUID } from 'node:crypto';
import type { BackendConnection } from '../../src/backend/connection.ts';
import { Disposition, Request } from '../../src/backend/pending-replies.ts';
import { definitionAgain, newServerStatement, type ServerStatement } from '../../src/backend/prepared-statements.ts';
import type { ReplyQueue } from '../../src/backend/reply-queue.ts';
import type { SessionState } from '../../src/backend/session-state.ts';
import type { StatementRegistry } from '../../src/multiplex/statement-registry.ts';
import {
  bindMessage,
  closeStatementMessage,
  DISCARD_SEQUENCES,
  describeStatementMessage,
  EMPTY_DEFINITION,
  FLUSH,
  parseMessage,
  SYNC,
} from '../../src/protocol/frontend-encoder.ts';
import { isSameShape, type StatementShape } from '../../src/protocol/statement-shape.ts';
import type { Edit } from '../../src/router/schema-rewriting/edits/edits.ts';
import { deallocatedNames, type SqlTraits } from '../inspection/sql-traits.ts';
import type { WriteBuffer } from '../relay/write-buffer.ts';
import type { ClientStatements, UnnamedStatement } from './client-statements.ts';
import type { Effect } from './effects.ts';
import type { PendingNames } from './pending-names.ts';
import { ShapeReader } from './shape-reader.ts';

const NO_NAME = Buffer.alloc(0);
/** No statement has this name: what binds it fails, and so does all that comes behind it, up to the Sync. */
const MISSING_NAME = Buffer.from(`changed ${randomUUID()}`);
/** Goes with a request that fails because its statement has changed, in place of the client's. */
export const SHAPE_CHANGED: Effect = { undo: () => {} };

/** Whether a request can be sent: at once, when it is known what the backend makes of its statement, or not at all. */
export type Readiness = 'ready' | 'asked' | 'changed';

/**
 * Sees to it that the backend at hand has prepared what a client's next request speaks of, and nothing that would stand in
 * its way. What is sent for that is ours, and skipped in the replies.
 */
export class ServerStatements {
  readonly #statements: ClientStatements;
  readonly #names: PendingNames;
  readonly #registry: Pick<StatementRegistry, 'forget'>;
  readonly #queue: ReplyQueue;
  readonly #out: WriteBuffer;
  /** The names under which the client's own statements have been prepared in a batch, and in which. */
  #materialized: Set<string> | undefined;
  #materializedIn = 0;
  /** What the backend has been asked last that the next request depends on. */
  #question: ShapeReader | undefined;
  /** The statement that it has turned out to make something else of. */
  #changed: object | undefined;

  constructor(
    statements: ClientStatements,
    names: PendingNames,
    registry: Pick<StatementRegistry, 'forget'>,
    queue: ReplyQueue,
    out: WriteBuffer,
  ) {
    this.#statements = statements;
    this.#names = names;
    this.#registry = registry;
    this.#queue = queue;
    this.#out = out;
  }

  /**
   * The server knows what the client wants to deallocate by another name, and may not have it at all: an empty statement
   * takes its place, which nothing can keep from being prepared.
   * @returns the names, as the client knows them
   */
  placeholders(text: string, traits: SqlTraits, backend: BackendConnection): string[] {
    const names = traits.deallocates ? deallocatedNames(text).filter((name) => this.#statements.get(name) !== undefined) : [];
    for (const name of names) this.take(name, backend);
    return names;
  }

  /** Has an empty statement under a name of the client's. */
  take(name: string, backend: BackendConnection): void {
    this.#materialized?.delete(name);
    this.#prepareAs(name, EMPTY_DEFINITION, backend);
  }

  /**
   * Prepares the client's statements under its own names, for SQL that speaks of them (EXECUTE, pg_prepared_statements);
   * they are closed before the next request. Each fails by itself, e.g. when its table is gone, where that can be had.
   * @param alone nothing else that is prepared may be seen
   * @param isApart what comes next does not belong to requests that have been sent before
   */
  materialize(backend: BackendConnection, alone: boolean, isApart: boolean): void {
    const { staleNames, prepared } = backend.session;
    if (alone) {
      for (const { name } of prepared.values()) staleNames.add(name.toString('latin1'));
      prepared.clear();
      this.closeLeftovers(backend);
    }
    const there = isApart || alone || this.#materializedIn !== this.#queue.batch ? undefined : this.#materialized;
    const names = new Set<string>();
    for (const [name, { server }] of this.#statements.entries()) {
      names.add(name);
      if (there?.has(name)) continue;
      this.#prepareAs(name, server.definition, backend);
      if (!isApart) continue;
      this.#queue.push(Request.sync, Disposition.skip);
      this.#out.insert(SYNC);
    }
    this.#materialized = names;
    this.#materializedIn = this.#queue.batch;
  }

  /**
   * Takes away what sequences gave to other sessions, amid whatever the client has under way: neither its unnamed statement
   * nor its portals are touched.
   * @param isApart as of {@link materialize}
   */
  discardSequences(backend: BackendConnection, isApart: boolean): void {
    const { session } = backend;
    const undo = () => {
      session.hasOthersSequenceValues = true;
    };
    session.hasOthersSequenceValues = false;
    this.#queue.push(Request.parse, Disposition.skip, { undo });
    for (const kind of [Request.bind, Request.execute, Request.close, Request.close]) this.#queue.push(kind, Disposition.skip);
    this.#out.insert(DISCARD_SEQUENCES);
    if (!isApart) return;
    this.#queue.push(Request.sync, Disposition.skip);
    this.#out.insert(SYNC);
  }

  /** Under a name of the client's, which the next request will not find any more. */
  #prepareAs(name: string, definition: Buffer, backend: BackendConnection): void {
    const own = Buffer.from(name, 'latin1');
    this.#queue.push(Request.close, Disposition.skip);
    this.#out.insert(closeStatementMessage(own));
    this.#queue.push(Request.parse, Disposition.skip);
    this.#out.insert(parseMessage(own, definition));
    backend.session.staleNames.add(name);
  }

  /** The next request waits for an answer. */
  get isAsking(): boolean {
    return this.#question !== undefined && !this.#question.isOver;
  }

  /** Whatever another client left as the unnamed statement must not answer for this one's. */
  ensureUnnamed(backend: BackendConnection): Readiness {
    const { unnamed: wanted } = this.#statements;
    if (wanted !== undefined && this.#takeChanged(wanted)) return 'changed';
    if (backend.session.unnamed === wanted && wanted !== undefined) return 'ready';
    this.#names.changes('');
    if (wanted !== undefined && wanted.isOversized !== true) return this.#prepareUnnamed(wanted, backend);
    backend.session.unnamed = undefined;
    this.#queue.push(Request.close, Disposition.skip);
    this.#out.insert(closeStatementMessage(NO_NAME));
    return 'ready';
  }

  #prepareUnnamed(unnamed: UnnamedStatement, backend: BackendConnection): Readiness {
    const { session } = backend;
    const undo = () => {
      session.unnamed = undefined;
    };
    const told = unnamed.shape ?? unnamed.server?.shape;
    session.unnamed = unnamed;
    this.#queue.push(Request.parse, Disposition.skip, { undo });
    this.#out.insert(parseMessage(NO_NAME, definitionAgain(unnamed.definition, told)));
    if (told === undefined || !this.#canAsk) return 'ready';
    return this.#ask(NO_NAME, (shape) => {
      if (isSameShape(shape, told)) return;
      undo();
      this.#changed = unnamed;
    });
  }

  /**
   * Has a backend prepare a statement if it has not. One that others may have been told of is described first: while it was
   * not there, what it was made from may have changed, of which PostgreSQL, to which it is new, says nothing.
   * @param isCompared it is to be known what it is, in any case
   */
  ensurePrepared(statement: ServerStatement, backend: BackendConnection, isCompared = false): Readiness {
    if (backend.session.prepared.use(statement)) return 'ready';
    if (this.#takeChanged(statement)) return 'changed';
    const asks = (statement.isSent || isCompared) && this.#canAsk;
    this.prepare(statement, backend, asks);
    return asks ? 'asked' : 'ready';
  }

  /** As {@link ensurePrepared}, for a Parse of it. @returns whether that has to wait until it is known whether it is the same here */
  asksFirst(statement: ServerStatement, backend: BackendConnection): boolean {
    this.#changed = undefined;
    if (!statement.isSent || !this.#canAsk || backend.session.prepared.use(statement)) return false;
    this.prepare(statement, backend, true);
    return true;
  }

  /** @param asks the next request waits for what it turns out to be */
  prepare(statement: ServerStatement, backend: BackendConnection, asks = false, edits?: readonly Edit[]): void {
    this.closeIfLeft(statement.name, backend);
    const { prepared } = backend.session;
    const evicted = prepared.set(statement, statement);
    this.#names.prepares(statement);
    const effect = { undo: () => prepared.delete(statement), redo: () => prepared.restore(statement, statement), statement, edits };
    this.#queue.push(Request.parse, Disposition.skip, effect);
    this.#out.insert(parseMessage(statement.name, definitionAgain(statement.definition, statement.shape)));
    this.evict(evicted, backend);
    this.describe(statement, backend, asks);
  }

  /** Finds out what a statement is that the backend has just been given. @param asks as in {@link prepare} */
  describe(statement: ServerStatement, backend: BackendConnection, asks = false): void {
    statement.isSent = true;
    const told = (shape: StatementShape) => this.#described(statement, shape, backend, asks);
    if (asks) this.#ask(statement.name, told);
    else this.#describe(statement.name, told);
  }

  /** Behind an error the backend says nothing, and amid the data of a COPY nothing else. */
  get #canAsk(): boolean {
    return !this.#queue.discarding && !this.#queue.copyIn;
  }

  #ask(name: Buffer, told: (shape: StatementShape) => void): 'asked' {
    this.#question = this.#describe(name, told, true);
    this.#out.insert(FLUSH);
    return 'asked';
  }

  #describe(name: Buffer, told: (shape: StatementShape) => void, isAwaited = false): ShapeReader {
    const reader = new ShapeReader(told, isAwaited);
    this.#queue.push(Request.describe, Disposition.skip, reader);
    this.#out.insert(describeStatementMessage(name));
    return reader;
  }

  #described(statement: ServerStatement, shape: StatementShape, { session }: BackendConnection, asks: boolean): void {
    if (statement.shape === undefined) statement.shape = shape;
    else if (!isSameShape(statement.shape, shape)) this.#differs(statement, shape, session, asks);
  }

  #differs(statement: ServerStatement, shape: StatementShape, session: SessionState, asks: boolean): void {
    session.unprepare(statement);
    this.#registry.forget(statement);
    if (asks) {
      this.#changed = statement;
      return;
    }
    // Two have been the first to prepare it, each on a backend of its own, with a change between them.
    const own = newServerStatement(statement.definition);
    own.isSent = true;
    own.shape = shape;
    this.#statements.replace(statement, own);
  }

  /** Whether a statement has turned out not to be what clients have been told. */
  #takeChanged(statement: object): boolean {
    if (this.#changed !== statement) return false;
    this.#changed = undefined;
    return true;
  }

  /** In place of a request whose statement is not what its client has been told: the backend refuses it, and what follows. */
  refuse(kind: typeof Request.bind | typeof Request.describe): void {
    this.#queue.push(kind, Disposition.forward, SHAPE_CHANGED);
    this.#out.insert(bindMessage(MISSING_NAME));
  }

  evict(statements: readonly ServerStatement[], backend: BackendConnection): void {
    for (const statement of statements) this.closeOnServer(statement, backend);
  }

  closeOnServer(statement: ServerStatement, backend: BackendConnection): void {
    this.#close(statement.name.toString('latin1'), backend, () => backend.session.prepared.delete(statement));
  }

  /** Where it may not come to that, it is still there, and in the way. */
  #close(name: string, { session }: BackendConnection, redo?: () => void): void {
    this.#names.changes(name);
    this.#queue.push(Request.close, Disposition.skip, { undo: () => session.staleNames.add(name), redo });
    this.#out.insert(closeStatementMessage(Buffer.from(name, 'latin1')));
  }

  /** What only stands in the way under a name is not to be taken for what the client means. */
  closeIfLeft(name: Buffer, backend: BackendConnection): void {
    const { staleNames } = backend.session;
    if (staleNames.size === 0) return;
    const left = name.toString('latin1');
    if (staleNames.delete(left)) this.#close(left, backend);
  }

  /** Closes what only stands in the way, ahead of a request of the client's. */
  closeLeftovers(backend: BackendConnection): void {
    for (const name of backend.session.takeStaleNames()) this.#close(name, backend);
  }
}
