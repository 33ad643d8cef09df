import { serialize } from 'pg-protocol';
import type { BackendConnection, BackendReceiver } from '../backend/connection.ts';
import { ServiceError } from '../errors.ts';
import { SCHEMA_CHANGE } from '../multiplex/statement-registry.ts';
import { type CommandTag, type ErrorFields, type FieldDescription, PostgresError, type TransactionStatus } from '../protocol/backend.ts';
import type { HeadBudget } from '../protocol/framing.ts';
import { bindAndExecute, SYNC } from '../protocol/frontend.ts';
import { type ReplyHandler, ReplyReader, replyFrames } from '../protocol/reply-reader.ts';
import { joinShort } from '../runtime/bytes.ts';
import { turnStartedAt } from '../runtime/event-loop.ts';
import type { MemoryReservation } from '../runtime/memory-budget.ts';
import { withCompletion } from './failures.ts';
import { LARGE_ROW_BYTES } from './json-values.ts';
import type { ParameterText } from './parameters.ts';
import { noRoomForResults } from './result-budget.ts';
import { Notices, type Warning } from './warnings.ts';

const COPY_REFUSED = Buffer.concat([serialize.copyFail('COPY needs a PostgreSQL connection'), SYNC]);
const NO_WARNINGS: readonly Warning[] = [];
const FRAMES = replyFrames();

/** Whose requests a pipeline sends. */
export interface PipelineOwner {
  /** What runs is of no use any more, for this reason. */
  abort(reason: ServiceError): void;
  /** Postgres has reported a setting that is not what it was. */
  settingsChanged?(): void;
}

/**
 * Requests to one backend and the replies to them, which come in the same order. A request may be sent before earlier ones
 * are answered; all requests of one turn of the event loop go out in one write.
 * @see https://www.postgresql.org/docs/current/protocol-flow.html#PROTOCOL-FLOW-PIPELINING
 */
export class Pipeline implements BackendReceiver, ReplyHandler {
  readonly #backend: BackendConnection;
  readonly #receiveBudget: ReceiveBudget;
  readonly #output: PipelineOutput;
  readonly #owner: PipelineOwner;
  readonly #reader: ReplyReader;
  readonly #queue: PendingRequest[] = [];
  #notices: Notices | undefined;
  #status: TransactionStatus = 'I';
  #isUnsynced = false;
  /** A large row is being written: what has come behind it waits. */
  #isWritingRow = false;
  #hasChangedSettings = false;
  /** As Postgres has reported it since the login. */
  #strings: string | undefined;
  #hasChangedSchema = false;
  #dead: Error | undefined;
  #abortReason: ServiceError | undefined;
  #onDrained: (() => void) | undefined;

  /** @param results counts large messages */
  constructor(backend: BackendConnection, results: ResultMemory, owner: PipelineOwner) {
    this.#backend = backend;
    this.#output = new PipelineOutput(backend);
    this.#receiveBudget = new ReceiveBudget(backend, results);
    this.#reader = new ReplyReader(FRAMES, this, this.#receiveBudget);
    this.#owner = owner;
  }

  /** From now on it receives what the backend sends. */
  attach(): void {
    this.#backend.receiver = this;
    if (this.#backend.closed) this.fail(connectionLost());
  }

  /** A chunk that has to wait for a large row is used where it is; any other may be overwritten. */
  get holdsChunk(): boolean {
    return this.#isWritingRow;
  }

  /** As of the last ReadyForQuery. */
  get status(): TransactionStatus {
    return this.#status;
  }

  /** Postgres has described a statement and waits for a Sync. */
  get isUnsynced(): boolean {
    return this.#isUnsynced;
  }

  get isWaiting(): boolean {
    return this.#queue.length > 0;
  }

  /** Nothing has been sent, so the session is as it was. */
  get isUntouched(): boolean {
    return this.#output.isUntouched;
  }

  /** Postgres has reported a setting that is not what it was. */
  get hasChangedSettings(): boolean {
    return this.#hasChangedSettings;
  }

  /** The value of `standard_conforming_strings`, as of the last ReadyForQuery. */
  get areStringsStandard(): boolean {
    return (this.#strings ?? this.#backend.parameters.get('standard_conforming_strings')) !== 'off';
  }

  /** Tables, or what they are made of, may have changed. */
  get hasChangedSchema(): boolean {
    return this.#hasChangedSchema;
  }

  /** The connection cannot be used any more. */
  get isDead(): boolean {
    return this.#dead !== undefined;
  }

  /** All is answered, outside a transaction, and the connection is good for more. */
  get isAtRest(): boolean {
    return this.#queue.length === 0 && this.#status === 'I' && !this.#isUnsynced && this.#dead === undefined;
  }

  /** @param settle is given a PostgresError, or a ServiceError: `unsupported_statement`, `response_too_large`, `backend_lost`, or the reason of {@link failAllWith} */
  send(messages: readonly Uint8Array[], replies: Replies, until: Until, settle: Settle): void {
    if (this.#dead !== undefined) {
      settle(this.#dead);
      return;
    }
    this.#isUnsynced = until === 'described';
    this.#queue.push(new PendingRequest(replies, until, settle));
    this.#output.write(messages);
  }

  /** Whatever fails from now on fails for this reason. */
  failAllWith(reason: ServiceError): void {
    this.#abortReason ??= reason;
    this.#receiveBudget.giveUp();
    if (this.#isWritingRow) this.#queue[0]?.replies.interrupt?.();
  }

  /**
   * As {@link send}, where requests of others are ahead of it or may follow: it is written by itself.
   * @param isFirst the backend is idle; else others of this turn may be written with it
   */
  sendAmongOthers(messages: readonly Uint8Array[], replies: Replies, isFirst: boolean, settle: Settle): void {
    this.#queue.push(new PendingRequest(replies, 'ready', settle));
    this.#output.writeNow(messages, isFirst);
  }

  /** The backend belongs to another user now. @returns what it has sent for that user */
  takeRest(): Buffer {
    return this.#reader.takeRest();
  }

  /** All requests are answered, or will never be. */
  drained(): Promise<void> {
    return new Promise((resolve) => {
      if (this.#queue.length === 0) resolve();
      else this.#onDrained = resolve;
    });
  }

  /** Gives the connection up: nothing that comes from it is looked at any more. */
  fail(error: Error): void {
    this.#dead ??= this.#abortReason ?? error;
    this.#output.close();
    this.#receiveBudget.release();
    for (const request of this.#queue.splice(0)) request.lost(error, this.#abortReason);
    this.#onDrained?.();
  }

  data(chunk: Buffer): void {
    this.#reader.push(chunk);
    this.#read();
  }

  #read(): void {
    turnStartedAt();
    try {
      while (this.#dead === undefined && !this.#isWritingRow && this.#reader.next()) {
        // Whoever wanted the message has it now.
        if (!this.#isWritingRow) this.#receiveBudget.release();
      }
    } catch (error) {
      this.fail(error instanceof Error ? error : new ServiceError('internal', 'internal error', { cause: error }));
    }
  }

  drain(): void {}

  /** Lets nothing more arrive. */
  pause(): void {
    this.#receiveBudget.pause();
  }

  resume(): void {
    this.#receiveBudget.resume();
  }

  closed(error: Error | undefined): void {
    this.fail(connectionLost(error));
  }

  parameters(types: readonly number[], body: Buffer): void {
    this.#queue[0]?.replies.parameters?.(types, body);
  }

  fields(fields: readonly FieldDescription[], body?: Buffer): void {
    const head = this.#queue[0];
    head?.replies.fields?.(fields, body);
    if (head?.until === 'described') this.#answered(head);
  }

  bound(): void {
    this.#queue[0]?.replies.bound?.();
  }

  row(source: Buffer, start: number, end: number): void {
    const replies = this.#queue[0]?.replies;
    if (end - start > LARGE_ROW_BYTES && replies?.largeRow !== undefined) {
      this.#await(replies.largeRow(source, start, end));
      return;
    }
    // Its values count in the budget of whoever keeps them.
    this.#receiveBudget.release();
    replies?.row?.(source, start, end);
  }

  completed(tag: CommandTag): void {
    this.#hasChangedSchema ||= SCHEMA_CHANGE.test(tag.tag);
    const head = this.#queue[0];
    if (head) head.tag = tag;
  }

  ready(status: TransactionStatus): void {
    this.#status = status;
    const head = this.#queue[0];
    if (head) this.#answered(head);
  }

  failed(fields: ErrorFields): void {
    const head = this.#queue[0];
    if (head) head.tag = undefined;
    this.#failHead(new PostgresError(fields));
  }

  noticed(fields: ErrorFields): void {
    this.#notices ??= new Notices();
    this.#notices.add(fields);
  }

  /** In any other encoding the text would not be JSON's UTF-8. */
  parameterStatus({ parameter, value }: { readonly parameter: string; readonly value: string }): void {
    this.#hasChangedSettings = true;
    this.#owner.settingsChanged?.();
    if (parameter === 'standard_conforming_strings') this.#strings = value;
    if (parameter !== 'client_encoding' || value === 'UTF8') return;
    this.#failHead(new ServiceError('unsupported_statement', `client_encoding cannot be ${value} here: JSON is UTF-8`));
  }

  /** The Sync that followed the statement was lost in copy-in mode, so another one must follow. */
  copyIn(): void {
    this.#failHead(copyRefused());
    this.#output.write([COPY_REFUSED]);
  }

  copyOut(): void {
    this.#dropResult(copyRefused());
  }

  /** There is no memory for a whole message. A row can be dropped; any other message is needed to know the state of the connection. */
  refused(bytes: number, isRow: boolean): void {
    const reason = this.#receiveBudget.refusal(bytes);
    if (!isRow) throw reason;
    this.#dropResult(reason);
  }

  /** Waits for a large row to be written. Its memory stays reserved meanwhile. */
  #await(writing: Promise<void>): void {
    this.#isWritingRow = true;
    this.#receiveBudget.hold();
    const goOn = () => {
      this.#isWritingRow = false;
      if (this.#dead !== undefined) return;
      this.#receiveBudget.letGo();
      this.#read();
    };
    writing.then(goOn, (error: unknown) => {
      this.fail(error instanceof Error ? error : new ServiceError('internal', 'internal error', { cause: error }));
      goOn();
    });
  }

  #answered(head: PendingRequest): void {
    this.#queue.shift();
    const warnings = (head.until === 'ready' && this.#notices?.take()) || NO_WARNINGS;
    head.answered(this.#status, warnings, this.#abortReason);
    if (this.#queue.length === 0) this.#onDrained?.();
  }

  /** Drops the rest of the result. */
  #dropResult(reason: ServiceError): void {
    const head = this.#queue[0];
    if (head) head.isCut = true;
    this.#failHead(reason);
    this.#owner.abort(reason);
  }

  #failHead(error: Error): void {
    if (this.#queue[0]?.fail(error) !== true) return;
    this.#isUnsynced = false;
    this.#output.write([SYNC]);
  }
}

function copyRefused(): ServiceError {
  return new ServiceError('unsupported_statement', 'COPY FROM STDIN and COPY TO STDOUT need a PostgreSQL connection');
}

function connectionLost(cause?: Error): ServiceError {
  return new ServiceError('backend_lost', 'the connection to the database was lost', cause === undefined ? {} : { cause });
}

/** A request whose replies have not all come, and what is known of its outcome. */
class PendingRequest {
  readonly replies: Replies;
  readonly #settle: Settle;
  #until: Until;
  #error: Error | undefined;
  /** Of the last statement that has completed. */
  tag: CommandTag | undefined;
  /** A part of its result was not taken. */
  isCut = false;

  constructor(replies: Replies, until: Until, settle: Settle) {
    this.replies = replies;
    this.#until = until;
    this.#settle = settle;
  }

  get until(): Until {
    return this.#until;
  }

  /** The first error counts. @returns whether a Sync has to be sent: after an error Postgres reads on from the next one */
  fail(error: Error): boolean {
    this.#error ??= error;
    if (this.#until === 'ready') return false;
    this.#until = 'ready';
    return true;
  }

  /** All replies have come. @param reason why the request was to be aborted, if it was */
  answered(status: TransactionStatus, warnings: readonly Warning[], reason: ServiceError | undefined): void {
    if (this.#error === undefined) this.#settle({ tag: this.tag, status, warnings });
    else this.#settle(this.#withCompletion(reason ?? this.#error, status));
  }

  /** No more replies come. @param reason as in {@link answered} */
  lost(error: Error, reason: ServiceError | undefined): void {
    this.#settle(reason ?? this.#error ?? error);
  }

  /** A request whose result was cut off has been executed, unless a transaction is open. The error says so. */
  #withCompletion(error: Error, status: TransactionStatus): Error {
    return this.isCut && this.tag !== undefined && status === 'I' && error instanceof ServiceError ? withCompletion(error) : error;
  }
}

/** The user of a backend's session over HTTP. Sessions are compared with it to see whether another has used the backend. */
const HTTP_USER = {};

/** Messages for a backend. All messages of one turn of the event loop go out in one write. */
class PipelineOutput {
  readonly #backend: BackendConnection;
  #messages: Uint8Array[] = [];
  #isUntouched = true;
  #isClosed = false;

  constructor(backend: BackendConnection) {
    this.#backend = backend;
  }

  /** Nothing has been sent, so the session is as it was. */
  get isUntouched(): boolean {
    return this.#isUntouched;
  }

  /** Sends the messages at the end of this turn of the event loop. */
  write(messages: readonly Uint8Array[]): void {
    if (this.#messages.length === 0) queueMicrotask(() => this.#flush());
    this.#add(messages);
  }

  /** Sends the messages now. @param isFirst the backend is idle; else others of this turn may be written with them */
  writeNow(messages: readonly Uint8Array[], isFirst: boolean): void {
    this.#add(messages);
    for (const bytes of this.#take()) {
      if (isFirst) this.#backend.write(bytes);
      else this.#backend.writeSoon(bytes);
    }
  }

  /** Drops what has not been sent. */
  close(): void {
    this.#isClosed = true;
  }

  #add(messages: readonly Uint8Array[]): void {
    if (this.#isUntouched) this.#begin();
    this.#messages.push(...messages);
  }

  /** The unnamed statement of the session's last user is forgotten, and statements that nobody uses are closed. */
  #begin(): void {
    const { session } = this.#backend;
    this.#isUntouched = false;
    session.lastUser = HTTP_USER;
    session.unnamed = undefined;
    session.sqlHome = undefined;
    if (session.staleNames.size === 0) return;
    for (const name of session.takeStaleNames()) this.#messages.push(closeStatement(name));
  }

  #flush(): void {
    const writes = this.#take();
    if (!this.#isClosed) for (const bytes of writes) this.#backend.write(bytes);
  }

  #take(): readonly Uint8Array[] {
    const messages = this.#messages;
    this.#messages = [];
    return joinShort(messages);
  }
}

/** The limit for a row, and for any other message of Postgres. */
const MESSAGE_MAX_BYTES = 32 * 1_048_576;
/** How long a message waits for memory, which readers of other results free. */
const WAIT_MAX_MS = 10_000;

/** Makes reservations in the memory budget for results. */
export interface ResultMemory {
  reservation(): MemoryReservation;
}

/**
 * Controls what is received from a backend. It is paused while the reader is too slow, and while the memory budget does not allow for
 * a large message. The memory for a large message is reserved as a whole: if many messages took memory piece by piece, none might
 * ever be complete.
 */
class ReceiveBudget implements HeadBudget {
  readonly #backend: BackendConnection;
  readonly #results: ResultMemory;
  #isPaused = false;
  /** The reservation for the large message that is being received. */
  #reservation: MemoryReservation | undefined;
  #stopWaiting: (() => void) | undefined;
  /** The received message is being written. */
  #isHeld = false;
  #isRefused = false;
  #isUseless = false;

  constructor(backend: BackendConnection, results: ResultMemory) {
    this.#backend = backend;
    this.#results = results;
  }

  /** Pauses receiving, because the reader is too slow. */
  pause(): void {
    this.#isPaused = true;
    this.#backend.pause();
  }

  resume(): void {
    this.#isPaused = false;
    this.#resumeIfReady();
  }

  /** Pauses receiving while the last message is being written; it keeps its reservation. */
  hold(): void {
    this.#isHeld = true;
    this.#backend.pause();
  }

  /** Ends {@link hold}: the message has been written. */
  letGo(): void {
    this.#isHeld = false;
    this.release();
    this.#resumeIfReady();
  }

  #resumeIfReady(): void {
    if (!this.#isPaused && !this.#isHeld && this.#stopWaiting === undefined) this.#backend.resume();
  }

  /** Is asked about a message that has arrived in part. @returns false when it must not be held; {@link refusal} has the reason */
  mayGrow(_bytes: number, messageBytes: number): boolean {
    if (this.#reservation !== undefined) return true;
    if (messageBytes > MESSAGE_MAX_BYTES || this.#isRefused || this.#isUseless) return false;
    if (this.#stopWaiting === undefined) this.#reserve(messageBytes, this.#results.reservation());
    // These bytes had been read before the backend was paused.
    else this.#backend.pause();
    return true;
  }

  /** @returns the error for a message of so many bytes that is not held */
  refusal(messageBytes: number): ServiceError {
    if (messageBytes <= MESSAGE_MAX_BYTES) return noRoomForResults(this.#results.reservation().exhaustedBy(messageBytes) ?? 'its own');
    return new ServiceError('response_too_large', `message exceeds the limit of ${MESSAGE_MAX_BYTES} bytes`);
  }

  /** Declares further results useless. They neither wait for memory nor are kept. */
  giveUp(): void {
    this.#isUseless = true;
    if (this.#stopWaiting !== undefined) this.#endWait(true);
  }

  /** Frees the reservation: the message is complete, or no more of it will arrive. */
  release(): void {
    if (this.#stopWaiting !== undefined) this.#endWait(false);
    this.#isRefused = false;
    if (this.#reservation === undefined) return;
    this.#reservation.resize(0);
    this.#reservation = undefined;
  }

  #reserve(bytes: number, reservation: MemoryReservation): void {
    if (reservation.tryResize(bytes) === undefined) {
      this.#reservation = reservation;
      return;
    }
    this.#backend.pause();
    const timer = setTimeout(() => this.#endWait(true), WAIT_MAX_MS);
    const giveUp = reservation.wait(bytes, () => {
      reservation.resize(bytes);
      this.#reservation = reservation;
      this.#endWait(false);
    });
    this.#stopWaiting = () => {
      clearTimeout(timer);
      giveUp();
    };
  }

  #endWait(isRefused: boolean): void {
    this.#stopWaiting?.();
    this.#stopWaiting = undefined;
    this.#isRefused = isRefused;
    this.#resumeIfReady();
  }
}

/** What a request wants to see of its replies, in the order in which they come. */
export interface Replies {
  parameters?(types: readonly number[], body: Buffer): void;
  /** The columns to come; none for a statement that returns no rows. `body` is the RowDescription's, if there is one. */
  fields?(fields: readonly FieldDescription[], body: Buffer | undefined): void;
  /** The statement has its parameters and is about to be executed. */
  bound?(): void;
  /** The body of a DataRow is `source[start..end)`; it is only good during the call. */
  row?(source: Buffer, start: number, end: number): void;
  /** As `row`, for one of more than LARGE_ROW_BYTES, which is good until the promise is kept; without it they go to `row`. */
  largeRow?(source: Buffer, start: number, end: number): Promise<void>;
  /** What a large row waits for is of no use any more. */
  interrupt?(): void;
}

/** How a request ended well. */
export interface Completion {
  /** Absent for an empty statement, and where nothing was executed. */
  readonly tag: CommandTag | undefined;
  /** Whether the session is in a transaction block now. */
  readonly status: TransactionStatus;
  readonly warnings: readonly Warning[];
}

/** What a request waits for: its description (RowDescription or NoData), or everything up to ReadyForQuery. */
export type Until = 'described' | 'ready';

/** Told how a request ended, in the turn in which that is known; with an Error when it failed. */
export type Settle = (ended: Completion | Error) => void;

/** Makes Parse and Describe for a statement; without a name, for the unnamed one. */
export function parseAndDescribe(sql: string, name = ''): readonly Uint8Array[] {
  return [serialize.parse({ text: sql, name }), serialize.describe({ type: 'S', name })];
}

/**
 * Makes Close for a statement. Closing one that does not exist is no error.
 * @see https://www.postgresql.org/docs/current/protocol-flow.html#PROTOCOL-FLOW-EXT-QUERY
 */
export function closeStatement(name: string): Uint8Array {
  return serialize.close({ type: 'S', name });
}

/** Makes all messages of an extended query, Sync included, for a statement whose parameters need no description. */
export function extendedQuery(sql: string, values: readonly ParameterText[] = []): readonly Uint8Array[] {
  return [...parseAndDescribe(sql), bindAndExecute(values)];
}
