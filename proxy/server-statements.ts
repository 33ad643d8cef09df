import { randomUUID } from 'node:crypto';
import type { BackendConnection } from '../src/backend/connection.ts';
import { Disposition, type ReplyQueue, Request } from '../src/backend/reply-queue.ts';
import { definitionToReprepare, newServerStatement, SESSIONS_SETTING, type ServerStatement } from '../src/backend/session-state.ts';
import { type ErrorFields, isSameShape, type StatementShape, type TransactionStatus } from '../src/protocol/backend.ts';
import { type FrameScanner, HEADER_BYTES, stringEnd } from '../src/protocol/framing.ts';
import {
  bindMessage,
  CLOSE_UNNAMED_PORTAL,
  closeStatementMessage,
  DISCARD_SEQUENCES,
  describeStatementMessage,
  EMPTY_DEFINITION,
  FLUSH,
  FrontendType,
  ownStatement,
  parseMessage,
  queryMessage,
  SHOW_STANDARD_CONFORMING_STRINGS,
  SYNC,
} from '../src/protocol/frontend.ts';
import type { Edits } from '../src/syntax/edits.ts';
import { withExplicitEscapes } from '../src/syntax/scanner.ts';
import { NO_TRAITS, type SessionTraits } from '../src/syntax/session-traits.ts';
import {
  type ClientStatements,
  DescribeReply,
  type Effect,
  type NamedStatement,
  type PendingNames,
  type ShapeQuestion,
  StringsReply,
  shapeTold,
  type UnnamedStatement,
} from './client-statements.ts';
import type { Inspected, InspectedSession, Inspection } from './inspection.ts';
import { literal } from './pins.ts';
import type { SqlStatements } from './sql-statements.ts';
import type { StatementCounting } from './statement-counting.ts';
import type { WriteBuffer } from './write-buffer.ts';

const NO_NAME = Buffer.alloc(0);
const BACKSLASH = 0x5c;
/** Lies before all batches. */
const NEVER = -1;
/** No statement has this name. A Bind of it fails, and the server ignores what follows up to the Sync. */
const MISSING_NAME = Buffer.from(`changed ${randomUUID()}`);

/** PostgreSQL's error when a statement's columns are not those that the client has been sent. Drivers recognize it by the routine. */
export const STALE_PLAN: ErrorFields = {
  severity: 'ERROR',
  code: '0A000',
  message: 'cached plan must not change result type',
  file: 'plancache.c',
  routine: 'RevalidateCachedQuery',
};

/** Whether the error says that a prepared statement does not exist. */
export function isMissing({ code }: ErrorFields): boolean {
  return code === '26000';
}

/** Stands in the reply queue beside the request that fails because its statement has changed. */
export class ShapeChanged implements Effect {
  /** Body of the ParameterDescription that comes before the error; undefined if none does, or if it is too long to be kept. */
  readonly parameters: Buffer | undefined;

  constructor(parameters: Buffer | undefined) {
    this.parameters = parameters;
  }

  undo(): void {}
}

/** Whether a request can be sent: now, after the backend has described its statement, or not at all. */
type Readiness = 'ready' | 'asked' | 'changed';

/** Stands in the reply queue beside a Parse under a client's name. */
export class NameParse implements Effect {
  readonly #statements: ServerStatements;
  readonly #name: string;

  constructor(statements: ServerStatements, name: string) {
    this.#statements = statements;
    this.#name = name;
  }

  undo(): void {}

  /** The statement is not valid any more: EXECUTE says why. */
  failed(error: ErrorFields): void {
    this.#statements.isRefused(this.#name, error);
  }
}

const NONE = -1;

/** More are not prepared for one request, which has few bytes itself: all at once would hold up other sessions and fill the memory. */
const FOR_SQL_MAX = 4_000;
const FOR_SQL_MAX_BYTES = 8 * 1024 * 1024;

/** The client's statements that SQL finds by name: the oldest ones. */
export function* statementsForSql(statements: ClientStatements): Iterable<[string, NamedStatement]> {
  let [count, bytes] = [0, 0];
  for (const entry of statements.entries()) {
    count += 1;
    bytes += entry[0].length + entry[1].server.definition.length;
    if (count > FOR_SQL_MAX || bytes > FOR_SQL_MAX_BYTES) return;
    yield entry;
  }
}

function isKnownWithoutColumns(shape: StatementShape | undefined): shape is StatementShape {
  return shape?.hasColumns === false && shape.parameters !== undefined;
}

/** What SQL finds under the client's own names. */
interface ClientNames {
  readonly names: Set<string>;
  /** The batch for which they were prepared. */
  readonly batch: number;
  /** They were prepared outside a pipeline, each with a Sync of its own. */
  readonly isApart: boolean;
  /** Those that fail when SQL executes them, with the errors. */
  readonly refusals: Map<string, ErrorFields> | undefined;
  /** `awaited`: the SQL waits until they have been compared with what the client was told; `ready`: they have been. */
  state: 'awaited' | 'ready' | 'used';
}

/** What a client's statements need of its session. */
export interface StatementsSession extends InspectedSession {
  readonly inspection: Inspection;
  readonly counting: StatementCounting;
  readonly replies: ReplyQueue;
  readonly toBackend: WriteBuffer;
  readonly clientScanner: FrameScanner;
  readonly backend: BackendConnection | undefined;
  readonly status: TransactionStatus;
  readonly isOver: boolean;
  readonly isUnsynced: boolean;
  readonly hasUnsynced: boolean;
  readonly startsPipeline: boolean;
  readonly mayChangeStrings: boolean;
  unsyncedBatch: number;
  unknownStringsBatch: number;
  learnedStrings: { readonly batch: number; readonly areStandard: boolean } | undefined;
  timed: ServerStatement | 'text' | 'none';
}

/**
 * The statements that the session's backend has prepared, as the client's next request needs them: it has those that the request
 * names, no other statement has their names, and SQL finds the client's own names. Postern sends the messages for that itself and
 * skips their replies.
 */
export class ServerStatements {
  readonly #session: StatementsSession;
  readonly #client: ClientStatements;
  readonly #names: PendingNames;
  readonly #sql: SqlStatements;
  /** What the backend was asked last before a message could be sent. */
  #question: ShapeQuestion | undefined;
  /** The client's names under which its statements have been prepared, and in which batch. */
  #clientNames: ClientNames | undefined;
  /** The next message waits until all before it has been answered. */
  #awaitsAll = false;
  /** The other processes' sessions have been looked for on behalf of the next message. */
  #areSessionsKnown = false;
  /** The last batch in which a portal was bound, and the last in which one was executed. */
  #boundBatch = NEVER;
  #executedBatch = NEVER;

  constructor(session: StatementsSession, client: ClientStatements, names: PendingNames, sql: SqlStatements) {
    this.#session = session;
    this.#client = client;
    this.#names = names;
    this.#sql = sql;
  }

  /** The message that had to wait still has to. */
  get isWaiting(): boolean {
    return this.#awaitsShape || (this.#awaitsAll && this.#session.replies.length > 0);
  }

  /** What the backend is being asked is how it reads strings. */
  get awaitedStrings(): StringsReply | undefined {
    const reply = this.#question?.reply;
    return reply instanceof StringsReply && !reply.isOver ? reply : undefined;
  }

  /** The server statement about which the backend was asked for the message with this name, which is handled again. */
  takeAsked(name: string): ServerStatement | undefined {
    const question = this.#question;
    const asked = question?.named;
    if (question === undefined || asked === undefined) return undefined;
    question.named = undefined;
    return asked.name === name ? asked.server : undefined;
  }

  /** The message with this name waits for what the backend is asked. */
  asksFor(name: string, server: ServerStatement): void {
    if (this.#question !== undefined) this.#question.named = { name, server };
  }

  /** A portal is bound in the current batch. */
  bound(): void {
    this.#boundBatch = this.#session.replies.batch;
  }

  /** One is executed. */
  executed(): void {
    this.#executedBatch = this.#session.replies.batch;
  }

  /** The client's statement could not be prepared under its name. */
  isRefused(name: string, error: ErrorFields): void {
    this.#clientNames?.refusals?.set(name, error);
  }

  /** Whether the next message waits until the backend has described a statement. */
  get #awaitsShape(): boolean {
    return this.#question !== undefined && !this.#question.reply.isOver;
  }

  /** Ensures that the backend's unnamed statement is this client's, and not one that another client left. */
  ensureUnnamed(backend: BackendConnection): Readiness {
    const session = this.#session;
    const { unnamed: wanted } = this.#client;
    if (wanted !== undefined && this.#takeChanged(wanted)) return 'changed';
    if (backend.session.unnamed === wanted && wanted !== undefined) return 'ready';
    this.#names.changes('');
    if (wanted !== undefined && wanted.isOversized !== true) return this.#prepareUnnamed(wanted, backend);
    backend.session.unnamed = undefined;
    session.replies.push(Request.close, Disposition.skip);
    session.toBackend.insert(closeStatementMessage(NO_NAME));
    return 'ready';
  }

  /**
   * The definition of a statement that was parsed before. The server reads it now as it did then: where the setting for that may be
   * another one, its strings say themselves whether a backslash escapes.
   */
  #readAlike({ definition, hasEscapes = false }: Pick<UnnamedStatement, 'definition' | 'hasEscapes'>): Buffer {
    const session = this.#session;
    if (!definition.includes(BACKSLASH)) return definition;
    const isKnown = session.pins.context !== undefined || !session.mayChangeStrings;
    if (isKnown && session.standardConformingStrings !== hasEscapes) return definition;
    const textEnd = definition.indexOf(0);
    const text = withExplicitEscapes(definition.toString('latin1', 0, textEnd), {
      ...session.inspection.options,
      standardConformingStrings: !hasEscapes,
    });
    return Buffer.concat([Buffer.from(text, 'latin1'), definition.subarray(textEnd)]);
  }

  /** Prepares an empty statement with these parameters, without a name. The backend's unnamed statement then belongs to no client. */
  #prepareUnnamedPlaceholder(backend: BackendConnection, shape: StatementShape): void {
    const session = this.#session;
    this.#names.changes('');
    backend.session.unnamed = undefined;
    session.replies.push(Request.parse, Disposition.skip);
    session.toBackend.insert(parseMessage(NO_NAME, definitionToReprepare(EMPTY_DEFINITION, shape)));
  }

  /**
   * Describes the unnamed statement before a portal of it is executed, where its client has not: a client may know its columns, and bind
   * it again after these have changed. Also where it returns no rows: its parameters keep the types that they had.
   */
  describeUnnamed(unnamed: UnnamedStatement): void {
    const { replies, backend } = this.#session;
    const isKnown = unnamed.describedIn === replies.batch || unnamed.isOversized === true || backend?.session.unnamed !== unnamed;
    if (isKnown || replies.copyIn) return;
    unnamed.describedIn = replies.batch;
    this.#describe(
      NO_NAME,
      (shape) => {
        unnamed.shape ??= shape;
      },
      false,
    );
  }

  #prepareUnnamed(unnamed: UnnamedStatement, backend: BackendConnection): Readiness {
    const session = this.#session;
    const state = backend.session;
    const undo = () => {
      state.unnamed = undefined;
    };
    const told = shapeTold(unnamed);
    this.#closeReplacedPortal();
    state.unnamed = unnamed;
    session.replies.push(Request.parse, Disposition.skip, { undo, parameters: this.#parametersToTell(told) });
    session.toBackend.insert(parseMessage(NO_NAME, definitionToReprepare(this.#readAlike(unnamed), told)));
    if (told === undefined || !this.#canAsk()) return 'ready';
    return this.#ask(NO_NAME, (shape) => {
      if (isSameShape(shape, told)) return;
      undo();
      this.#noteChanged(unnamed);
    });
  }

  /**
   * Prepares a statement on a backend that does not have it. If other clients may know the statement, it is described first:
   * its tables may have changed since they were told its columns, and PostgreSQL does not report that for a new statement.
   * @param isCompared the caller compares its shape, so it is described in any case
   */
  ensurePrepared(statement: ServerStatement, backend: BackendConnection, isCompared = false): Readiness {
    if (backend.session.prepared.use(statement)) return 'ready';
    if (this.#takeChanged(statement)) return 'changed';
    this.#closeReplacedPortal();
    const asks = (statement.isSent || isCompared) && this.#canAsk();
    this.prepareStatement(statement, backend, asks, undefined, this.#parametersToTell(statement.shape));
    return asks ? 'asked' : 'ready';
  }

  /**
   * A Bind removes the unnamed portal before it finds that its statement has become invalid. If what Postern sends ahead of it fails
   * instead, the portal must be gone, too: after ROLLBACK TO SAVEPOINT the client could execute it.
   */
  #closeReplacedPortal(): void {
    const {
      clientScanner: { type, buffer, start },
      replies,
      toBackend,
    } = this.#session;
    if (type !== FrontendType.Bind || buffer[start + HEADER_BYTES] !== 0) return;
    replies.push(Request.close, Disposition.skip);
    toBackend.insert(CLOSE_UNNAMED_PORTAL);
  }

  /** PostgreSQL tells the parameters of a statement before it finds that this has become invalid. */
  #parametersToTell(told: StatementShape | undefined): Buffer | undefined {
    const {
      clientScanner: { type },
    } = this.#session;
    return type === FrontendType.Describe ? told?.parameters : undefined;
  }

  /**
   * As {@link ensurePrepared}, for a Parse of the statement.
   * @param edits of its text, for the position of an error
   * @returns whether the Parse has to wait until the shape on this backend is known
   */
  mustDescribeFirst(statement: ServerStatement, backend: BackendConnection, edits: Edits): boolean {
    this.#question = undefined;
    if (!statement.isSent || !this.#canAsk() || backend.session.prepared.use(statement)) return false;
    this.prepareStatement(statement, backend, true, edits);
    return true;
  }

  /** @param asks the next message waits for the statement's shape */
  prepareStatement(statement: ServerStatement, backend: BackendConnection, asks = false, edits?: Edits, parameters?: Buffer): void {
    const session = this.#session;
    this.closeIfStale(statement.name, backend);
    const { prepared } = backend.session;
    const evicted = prepared.set(statement, statement);
    this.#names.prepares(statement);
    const effect = {
      undo: () => prepared.delete(statement),
      redo: () => prepared.restore(statement, statement),
      statement,
      edits,
      parameters,
    };
    session.replies.push(Request.parse, Disposition.skip, effect);
    session.toBackend.insert(parseMessage(statement.name, definitionToReprepare(this.#readAlike(statement), statement.shape)));
    this.closeEvicted(evicted, backend);
    this.describeStatement(statement, backend, asks);
  }

  /** Describes a statement that has just been prepared. @param asks as in {@link prepareStatement} */
  describeStatement(statement: ServerStatement, backend: BackendConnection, asks = false): void {
    statement.isSent = true;
    const told = (shape: StatementShape) => this.#described(statement, shape, backend, asks);
    if (asks) this.#ask(statement.name, told);
    else this.#describe(statement.name, told, false);
  }

  /**
   * Whether the scanner's message has to wait until it is known how the server reads the strings in its text. The server uses the
   * setting of the moment at which the message is its turn, and an earlier request may change that.
   */
  awaitsStrings({ type, buffer, start, end }: FrameScanner): boolean {
    const session = this.#session;
    if (!session.mayChangeStrings || session.inspection.isLong) return false;
    if (type !== FrontendType.Query && type !== FrontendType.Parse) return false;
    const textStart = type === FrontendType.Query ? start + HEADER_BYTES : stringEnd(buffer, start + HEADER_BYTES, end) + 1;
    const text = buffer.subarray(textStart, end);
    if (!text.includes(BACKSLASH)) return false;
    const { replies, services, pins } = session;
    if (pins.context !== undefined && services.rewriter?.dependsOnStrings(text) !== true) return false;
    if (replies.oldestBatch !== replies.batch) return this.#names.waitForAll();
    if (!this.#canAsk()) return false;
    this.#askForStrings();
    return true;
  }

  #askForStrings(): void {
    const session = this.#session;
    const { replies, toBackend } = session;
    const { batch } = replies;
    const reply = new StringsReply((areStandard) => {
      session.learnedStrings = { batch, areStandard };
      session.unknownStringsBatch = NEVER;
    });
    this.#question = { reply, named: undefined, changed: undefined };
    for (const kind of [Request.parse, Request.bind, Request.execute, Request.close]) replies.push(kind, Disposition.skip);
    replies.push(Request.close, Disposition.skip, reply);
    toBackend.insert(SHOW_STANDARD_CONFORMING_STRINGS);
  }

  /** After an error the backend ignores messages up to the Sync, and during COPY FROM STDIN it accepts only copy data. */
  #canAsk(): boolean {
    const { replies } = this.#session;
    return replies.missingSync !== 'discarding' && !replies.copyIn;
  }

  #ask(name: Buffer, told: (shape: StatementShape) => void): 'asked' {
    const session = this.#session;
    this.#question = { reply: this.#describe(name, told, true), named: undefined, changed: undefined };
    session.toBackend.insert(FLUSH);
    return 'asked';
  }

  #describe(name: Buffer, told: (shape: StatementShape) => void, isAwaited: boolean): DescribeReply {
    const session = this.#session;
    const reader = new DescribeReply(told, isAwaited);
    session.replies.push(Request.describe, Disposition.skip, reader);
    session.toBackend.insert(describeStatementMessage(name));
    return reader;
  }

  #described(statement: ServerStatement, shape: StatementShape, backend: BackendConnection, asks: boolean): void {
    if (statement.shape === undefined) statement.shape = shape;
    else if (!isSameShape(statement.shape, shape)) this.#shapeDiffers(statement, shape, backend, asks);
  }

  #shapeDiffers(statement: ServerStatement, shape: StatementShape, backend: BackendConnection, asks: boolean): void {
    const session = this.#session;
    backend.session.unprepare(statement);
    session.services.registry.forget(statement);
    if (asks) {
      this.#noteChanged(statement);
      return;
    }
    // Two sessions were both the first to prepare it, on different backends, and its tables changed in between.
    const own = newServerStatement(statement.definition, undefined, statement.hasEscapes);
    own.isSent = true;
    own.shape = shape;
    this.#client.replace(statement, own);
  }

  #noteChanged(statement: object): void {
    if (this.#question !== undefined) this.#question.changed = statement;
  }

  /** Whether the backend has described the statement differently from what clients were told. Clears the mark. */
  #takeChanged(statement: object): boolean {
    if (this.#question?.changed !== statement) return false;
    this.#question.changed = undefined;
    return true;
  }

  /**
   * Sends a failing Bind in place of a request whose statement has changed since its client was told of it. The backend refuses it
   * and ignores what follows.
   * @param told what the client was told. PostgreSQL describes the parameters before it finds that the columns have changed
   * @see https://github.com/postgres/postgres/blob/master/src/backend/tcop/postgres.c exec_describe_statement_message
   */
  refuseChanged(kind: typeof Request.bind | typeof Request.describe, told: StatementShape | undefined): void {
    const { replies, toBackend } = this.#session;
    this.#closeReplacedPortal();
    replies.push(kind, Disposition.forward, new ShapeChanged(kind === Request.describe ? told?.parameters : undefined));
    toBackend.insert(bindMessage(MISSING_NAME));
  }

  closeEvicted(statements: readonly ServerStatement[], backend: BackendConnection): void {
    for (const statement of statements) this.closeStatement(statement, backend);
  }

  closeStatement(statement: ServerStatement, backend: BackendConnection): void {
    this.#closeName(statement.name.toString('latin1'), backend, () => backend.session.prepared.delete(statement));
  }

  /** If the server ignores the Close, the name remains stale. */
  #closeName(name: string, backend: BackendConnection, redo?: () => void): void {
    const session = this.#session;
    this.#names.changes(name);
    session.replies.push(Request.close, Disposition.skip, { undo: () => backend.session.staleNames.add(name), redo });
    session.toBackend.insert(closeStatementMessage(Buffer.from(name, 'latin1')));
  }

  /** Closes a stale statement that has the name which the client is about to use. */
  closeIfStale(name: Buffer, backend: BackendConnection): void {
    const { staleNames } = backend.session;
    if (staleNames.size === 0) return;
    const stale = name.toString('latin1');
    if (staleNames.delete(stale)) this.#closeName(stale, backend);
  }

  /** Closes all stale statements before a request of the client. */
  closeStaleNames(backend: BackendConnection): void {
    for (const name of backend.session.takeStaleNames()) this.#closeName(name, backend);
  }

  /**
   * The server knows the statement that the client deallocates by another name, and may not have it at all. So Postern
   * prepares an empty statement under the client's name, which always succeeds, and the DEALLOCATE removes that.
   * @returns those of the names that the client has given to statements
   */
  preparePlaceholders(deallocated: readonly string[], backend: BackendConnection): string[] {
    const names = deallocated.filter(
      (name) => this.#client.get(name) !== undefined || this.#sql.absent(name, backend.session) !== undefined,
    );
    for (const name of names) this.preparePlaceholder(name, backend);
    return names;
  }

  /** Prepares an empty statement under one of the client's names. @param shape has the parameters that it is to have */
  preparePlaceholder(name: string, backend: BackendConnection, shape?: StatementShape): void {
    this.#clientNames?.names.delete(name);
    this.#prepareUnderClientName(name, definitionToReprepare(EMPTY_DEFINITION, shape), backend);
  }

  /**
   * Prepares the client's statements under its own names, for SQL that refers to them (EXECUTE, pg_prepared_statements);
   * they are closed before the next request. Outside a pipeline each gets its own Sync, so that one that fails, for example
   * because its table was dropped, does not affect the others.
   * @param traits of the SQL. What lists them must not see any other prepared statement
   */
  #prepareUnderClientNames(backend: BackendConnection, traits: SessionTraits, isCompared = false): void {
    const session = this.#session;
    const { replies } = session;
    const { staleNames, prepared } = backend.session;
    const { listsPrepared: isAlone } = traits;
    const isApart = !session.isUnsynced;
    if (isAlone) {
      for (const { name } of prepared.values()) staleNames.add(name.toString('latin1'));
      prepared.clear();
      this.closeStaleNames(backend);
    }
    const there = isApart || isAlone || this.#clientNames?.batch !== replies.batch ? undefined : this.#clientNames.names;
    const names = new Set<string>();
    const refusals = there === undefined ? new Map<string, ErrorFields>() : this.#clientNames?.refusals;
    this.#clientNames = { names, batch: replies.batch, isApart, refusals, state: 'used' };
    for (const [name, statement] of this.#forSql(traits, backend)) {
      names.add(name);
      if (there?.has(name)) continue;
      const { server, first = server } = statement;
      const told = first.shape ?? server.shape;
      const failing = isCompared && isApart ? new NameParse(this, name) : undefined;
      const bySql = isAlone && isApart ? statement.bySql?.statement : undefined;
      if (bySql === undefined)
        this.#prepareUnderClientName(name, definitionToReprepare(this.#readAlike(server), isCompared ? told : undefined), backend, failing);
      else this.#prepareBySql(name, bySql, backend);
      const compare = (shape: StatementShape) => this.#compare(name, statement, told, shape, bySql !== undefined);
      if (isCompared) this.#describe(Buffer.from(name, 'latin1'), compare, false);
      if (isApart) this.#skipSync();
    }
  }

  /** The client's statements of the protocol, and those of SQL that the backend does not have. */
  *#forSql(traits: SessionTraits, { session }: BackendConnection): Iterable<[string, NamedStatement]> {
    yield* statementsForSql(this.#client);
    if (this.#sql.isEmpty) return;
    for (const entry of this.#sql.missing(traits, session)) if (this.#client.get(entry[0]) === undefined) yield entry;
  }

  /** As {@link #prepareUnderClientName}, by SQL. The list of prepared statements shows the difference. */
  #prepareBySql(name: string, statement: string, backend: BackendConnection): void {
    const { replies, toBackend } = this.#session;
    replies.push(Request.close, Disposition.skip);
    toBackend.insert(closeStatementMessage(Buffer.from(name, 'latin1')));
    this.#skipSync();
    replies.push(Request.query, Disposition.skip, { own: 'statement' });
    toBackend.insert(queryMessage(Buffer.from(statement, 'latin1')));
    backend.session.unnamed = undefined;
    backend.session.staleNames.add(name);
  }

  #compare(name: string, statement: NamedStatement, told: StatementShape | undefined, shape: StatementShape, isBySql: boolean): void {
    const session = this.#session;
    const isSame = told === undefined || isSameShape(told, shape);
    if (isSame && statement.bySql !== undefined && session.backend !== undefined) this.#sql.adopted(name, session.backend.session, isBySql);
    if (isSame) return;
    if (statement.isUsed === true) {
      this.#clientNames?.refusals?.set(name, STALE_PLAN);
      return;
    }
    // The client has seen none of its rows: it gets those of now.
    session.services.registry.forget(statement.first ?? statement.server);
    const renewed = this.renewStatement(name, statement);
    renewed.isSent = true;
    renewed.shape ??= shape;
  }

  /**
   * SQL that executes a client's statements waits until these are prepared under its names, and described: their tables may have changed
   * since the client was told their columns. Those that have other columns by now are closed, and the server's error that they do not
   * exist becomes the one that it would give.
   * @returns whether the message has to wait
   */
  awaitsClientNames(traits: SessionTraits): boolean {
    const session = this.#session;
    const { backend, replies } = session;
    if (!traits.namesPrepared || backend === undefined) return false;
    const needs = this.#client.hasNames || this.#clientNames?.state === 'awaited' || this.#sql.areMissing(traits, backend.session);
    if (!needs) return false;
    if (this.#clientNames?.state === 'awaited') {
      this.#clientNames.state = 'ready';
      this.#awaitsAll = false;
      if (this.#clientNames.isApart) session.unsyncedBatch = NONE;
      for (const name of this.#clientNames.names) this.#client.used(name);
      if (!traits.listsPrepared) this.#closeRefused(this.#clientNames);
      return false;
    }
    if (replies.missingSync !== 'none' || session.status === 'E' || replies.copyIn) return false;
    const isPipelined = session.isUnsynced;
    if (isPipelined && this.#clientNames?.batch === replies.batch) return false;
    this.#prepareUnderClientNames(backend, traits, true);
    if (this.#clientNames !== undefined) this.#clientNames.state = 'awaited';
    this.#awaitsAll = true;
    if (isPipelined) session.toBackend.insert(FLUSH);
    // The session keeps its backend meanwhile.
    session.unsyncedBatch = replies.batch;
    return true;
  }

  #closeRefused({ refusals }: ClientNames): void {
    const { replies, toBackend } = this.#session;
    for (const name of refusals?.keys() ?? []) {
      replies.push(Request.close, Disposition.skip);
      toBackend.insert(closeStatementMessage(Buffer.from(name, 'latin1')));
    }
  }

  /** The error that a client gets in the place of one that says that one of its statements does not exist. */
  refusalOf(error: ErrorFields): ErrorFields | undefined {
    if (this.#clientNames?.refusals === undefined || !isMissing(error)) return undefined;
    for (const [name, refusal] of this.#clientNames.refusals)
      if (error.message.includes(`"${Buffer.from(name, 'latin1')}"`) && (this.#client.get(name) ?? this.#sql.get(name)) !== undefined)
        return refusal;
    return undefined;
  }

  /** The name is closed again before the next request. */
  #prepareUnderClientName(name: string, definition: Buffer, backend: BackendConnection, effect?: Effect): void {
    const { replies, toBackend } = this.#session;
    const own = Buffer.from(name, 'latin1');
    replies.push(Request.close, Disposition.skip);
    toBackend.insert(closeStatementMessage(own));
    replies.push(Request.parse, Disposition.skip, effect);
    toBackend.insert(parseMessage(own, definition));
    backend.session.staleNames.add(name);
  }

  /** A Sync whose reply the client does not see. */
  #skipSync(): void {
    const { replies, toBackend } = this.#session;
    replies.push(Request.sync, Disposition.skip);
    toBackend.insert(SYNC);
  }

  /**
   * PostgreSQL describes a statement that returns no rows also in a failed transaction, in which Postern cannot prepare it on a
   * backend that does not have it. So an empty statement with its parameters takes its place, in a failed transaction or not:
   * whether there is one may only be known when replies arrive.
   * @returns false if the statement itself has to be described
   * @see https://github.com/postgres/postgres/blob/master/src/backend/tcop/postgres.c exec_describe_statement_message
   */
  describesPlaceholder(name: string, { server, first = server }: NamedStatement, backend: BackendConnection): boolean {
    const { prepared } = backend.session;
    if (this.#question?.named?.name === name) return false;
    if (!isKnownWithoutColumns(first.shape) || prepared.use(first) !== undefined || prepared.use(server) !== undefined) return false;
    this.preparePlaceholder(name, backend, first.shape);
    return true;
  }

  /** As {@link describesPlaceholder}, for the client's unnamed statement. */
  describesUnnamedPlaceholder(unnamed: UnnamedStatement, backend: BackendConnection): boolean {
    const shape = shapeTold(unnamed);
    if (!isKnownWithoutColumns(shape) || backend.session.unnamed === unnamed) return false;
    this.#prepareUnnamedPlaceholder(backend, shape);
    return true;
  }

  /**
   * All clients that prepare the same text with the same settings share a server statement. A new one is made if the text may
   * mean something else in another session, or if it is not known yet whether the server has the shared one.
   * @param hasEscapes as in {@link ServerStatement}; the role's default may be the reason, which is in no context
   */
  serverStatementOf(definition: Buffer, canBePreparedAgain: boolean, hasEscapes = false): ServerStatement {
    const { pins, services } = this.#session;
    const { namesAreOwn, context } = pins;
    if (namesAreOwn || context === undefined || !canBePreparedAgain || hasEscapes)
      return newServerStatement(Buffer.from(definition), undefined, hasEscapes);
    const shared = services.registry.intern(definition, context);
    return this.#names.isUnsettled(shared) ? newServerStatement(shared.definition) : shared;
  }

  /** Makes a name refer to what its text means now. The client must not have been told the statement's columns. */
  renewStatement(name: string, statement: NamedStatement): ServerStatement {
    const { first = statement.server, server: _, ...rest } = statement;
    const server = this.serverStatementOf(first.definition, first.context !== undefined, first.hasEscapes);
    this.#client.set(name, { ...rest, server });
    return server;
  }

  /** The next message sends this text. */
  sendText(inspected: Inspected): void {
    const { traits } = inspected;
    if (traits !== NO_TRAITS) this.#discardForeignSequences(traits);
    if (traits.namesPrepared) for (const executed of this.#executed(traits)) this.#discardForeignSequences(executed);
    this.#session.inspection.apply(inspected);
    if (traits !== NO_TRAITS) this.#prepareNamed(traits);
  }

  /** As {@link sendText}, for a text that is too long to be inspected as a whole. */
  sendLongText(text: string, inspected: Inspected, scanner: FrameScanner, end: number): void {
    const session = this.#session;
    this.#discardForeignSequences(inspected.traits);
    session.inspection.applyBeginning(text, inspected);
    this.#prepareNamed(inspected.traits);
    session.inspection.goesOn(scanner, end);
  }

  /** The next message executes a statement with these traits, which has been inspected before. */
  sendTraits(traits: SessionTraits | undefined): void {
    if (traits === undefined || traits === NO_TRAITS) return;
    this.#discardForeignSequences(traits);
    this.#session.inspection.notice(traits);
    this.#prepareNamed(traits);
  }

  #discardForeignSequences(traits: SessionTraits): void {
    const { backend } = this.#session;
    if (backend?.session.hasOthersSequenceValues && this.#mustDiscardSequences(traits)) this.#discardSequences(backend);
  }

  #prepareNamed(traits: SessionTraits): void {
    const session = this.#session;
    const { backend, replies, status, inspection } = session;
    const isFailed = status === 'E' && replies.length === 0;
    if (!traits.namesPrepared || backend === undefined || isFailed) return;
    if (this.#clientNames?.state === 'ready') this.#clientNames.state = 'used';
    else this.#prepareUnderClientNames(backend, traits);
    // EXECUTE may run any of them.
    let listsSessions = false;
    for (const [, named] of statementsForSql(this.#client)) {
      if (named.traits !== NO_TRAITS) inspection.notice(named.traits);
      listsSessions ||= named.traits.listsSessions;
    }
    for (const named of this.#executed(traits)) {
      inspection.notice(named);
      listsSessions ||= named.listsSessions;
    }
    if (listsSessions) this.tellSessions(backend);
  }

  /** The traits of the statements of SQL that a text may execute. */
  *#executed({ namesPrepared, listsPrepared, executes }: SessionTraits): Iterable<SessionTraits> {
    if (!namesPrepared || listsPrepared || this.#sql.isEmpty) return;
    for (const [name, { traits }] of this.#sql.entries())
      if (traits !== NO_TRAITS && (executes.length === 0 || executes.includes(name))) yield traits;
  }

  /** Asks the backend to describe statements that SQL has prepared there. @returns whether there are any */
  describeBySql(): boolean {
    const names = this.#sql.takeUndescribed();
    for (const name of names) {
      this.#describe(Buffer.from(name, 'latin1'), (shape) => this.#sql.described(name, shape), false);
      this.#skipSync();
    }
    return names.length > 0;
  }

  /** PREPARE refuses a name that the client has given to a statement. @param prepared the names in a text */
  takeNames(prepared: readonly string[], deallocated: readonly string[], backend: BackendConnection): void {
    for (const name of prepared)
      if (!deallocated.includes(name) && this.#sql.absent(name, backend.session) !== undefined) this.preparePlaceholder(name, backend);
  }

  /**
   * What Postern sends ahead of a statement must not become part of the client's pipeline: an Execute there opens an implicit
   * transaction block, in which a procedure cannot commit, and PostgreSQL 18 loses what a Query does (a statement that fails makes
   * it ignore the client's messages besides). So a pipeline that has executed nothing yet is ended before, and begins anew behind.
   * Nothing can tell: Close, Parse and Describe leave nothing open, and a Query ends the portals that a Bind has made. Whether the
   * pipeline has failed must be known first, as its Query would run otherwise.
   * @param endsPortals the message is a Query or a FunctionCall
   * @returns whether the message has to wait until what was sent before it has been answered
   */
  mustEndPipeline(traits: SessionTraits, endsPortals = false): boolean {
    const session = this.#session;
    const { backend, replies, toBackend } = session;
    const { batch, missingSync } = replies;
    // What it has waited for is there.
    if (this.#clientNames?.state === 'awaited') return false;
    this.#awaitsAll = false;
    if (traits === NO_TRAITS || backend === undefined || session.unsyncedBatch !== batch || session.status !== 'I') return false;
    if (missingSync !== 'none' || this.#executedBatch === batch || (this.#boundBatch === batch && !endsPortals)) return false;
    if (!this.#sendsAhead(traits, backend)) return false;
    if (replies.length > 0) {
      this.#awaitsAll = true;
      toBackend.insert(FLUSH);
      return true;
    }
    this.#skipSync();
    session.unsyncedBatch = NONE;
    return false;
  }

  #sendsAhead(traits: SessionTraits, { session: { hasOthersSequenceValues } }: BackendConnection): boolean {
    return (hasOthersSequenceValues && this.#mustDiscardSequences(traits)) || traits.namesPrepared || traits.listsSessions;
  }

  /** A session must not see the sequence values of others. */
  #mustDiscardSequences({ readsSequenceState, advancesSequences, isTruncated }: SessionTraits): boolean {
    const { pins } = this.#session;
    return readsSequenceState || isTruncated || (advancesSequences && pins.maySequencesBeAskedFor);
  }

  /**
   * Discards the sequence values of other sessions, even in the middle of a client's pipeline. The client's unnamed statement
   * and portals remain.
   */
  #discardSequences(backend: BackendConnection): void {
    const undo = () => {
      backend.session.hasOthersSequenceValues = true;
    };
    backend.session.hasOthersSequenceValues = false;
    this.#sendOwn(DISCARD_SEQUENCES, { undo });
  }

  /** Whether the message has to wait until other processes have told of their sessions, because the statement with these traits shows them. */
  awaitsSessions(traits: SessionTraits): boolean {
    const session = this.#session;
    const { status, replies, link, services } = session;
    const lists = traits.listsSessions || [...this.#executed(traits)].some((executed) => executed.listsSessions);
    if (!lists || this.#areSessionsKnown || (status === 'E' && replies.length === 0)) return false;
    const known = services.lookForSessions().then(() => {
      this.#areSessionsKnown = true;
    });
    void link.holdBackUntil(known).then(() => session.continueInput());
    return true;
  }

  /**
   * Tells the backend of the sessions that the views of activity show to the client, for the statement that comes next. They are reset with
   * the session's settings when it has been answered.
   */
  tellSessions(backend: BackendConnection): void {
    const { replies, status, services } = this.#session;
    if (status === 'E' && replies.length === 0) return;
    this.#areSessionsKnown = false;
    backend.session.sessionsTold();
    this.#sendOwn(ownStatement('postern_set', `SET ${SESSIONS_SETTING} = ${literal(services.processIds.shown())}`));
  }

  /** Sends a statement of Postern's own, even in the middle of a client's pipeline. */
  #sendOwn(messages: Buffer, effect?: Effect): void {
    const { replies, toBackend, isUnsynced } = this.#session;
    replies.push(Request.parse, Disposition.skip, effect);
    for (const kind of [Request.bind, Request.execute, Request.close, Request.close]) replies.push(kind, Disposition.skip);
    toBackend.insert(messages);
    if (!isUnsynced) this.#skipSync();
  }
}
