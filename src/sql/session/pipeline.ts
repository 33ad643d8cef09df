import { serialize } from 'pg-protocol';
import type { BackendConnection, BackendReceiver } from '../../backend/connection.ts';
import { ServiceError } from '../../errors.ts';
import { SCHEMA_CHANGE } from '../../multiplex/statement-registry.ts';
import {
  BackendType,
  type CommandTag,
  decodeCommandComplete,
  decodeParameterDescription,
  decodeParameterStatus,
  decodeReadyForQuery,
  decodeRowDescription,
  ErrorFieldsReader,
  type FieldDescription,
  PostgresError,
  type TransactionStatus,
} from '../../protocol/backend.ts';
import { SYNC } from '../../protocol/frontend-encoder.ts';
import { ANY_SIZE, backendFrames, FrameScanner, HEADER_BYTES } from '../../protocol/message-framing.ts';
import { joinShort } from '../../runtime/bytes.ts';
import { turnStartedAt } from '../../runtime/event-loop.ts';
import { carriedOut } from '../execution/statement-failure.ts';
import { LARGE_ROW_BYTES } from '../json/row.ts';
import { closeStatement } from './messages.ts';
import { Notices, type Warning } from './notices.ts';
import { ReceiveBudget, type ResultMemory } from './receive-budget.ts';

/** What a request wants to see of its replies, in the order in which they come. */
export interface Replies {
  parameters?(types: readonly number[], body: Buffer): void;
  /** The columns to come; none for a statement that returns no rows. `body` is the RowDescription's, if there is one. */
  fields?(fields: readonly FieldDescription[], body: Buffer | undefined): void;
  /** The body of a DataRow is `source[start..end)`; it is only good during the call. */
  row?(source: Buffer, start: number, end: number): void;
  /** As `row`, for one of more than LARGE_ROW_BYTES, which is good until the promise is kept; without it they go to `row`. */
  largeRow?(source: Buffer, start: number, end: number): Promise<void>;
  /** What a large row waits for is of no use any more. */
  interrupt?(): void;
}

export interface Completion {
  /** Absent for an empty statement, and where nothing was executed. */
  readonly tag: CommandTag | undefined;
  /** Whether the session is in a transaction block now. */
  readonly status: TransactionStatus;
  readonly warnings: readonly Warning[];
}

/** Whose requests a pipeline sends. */
export interface PipelineOwner {
  /** What runs is of no use any more, for this reason. */
  abort(reason: ServiceError): void;
  /** Postgres has reported a setting that is not what it was. */
  settingsChanged?(): void;
}

/** What a request waits for: its description (RowDescription or NoData), or everything up to ReadyForQuery. */
export type Until = 'described' | 'ready';

/** Told how a request ended, in the turn in which that is known; with an Error when it failed. */
export type Settle = (ended: Completion | Error) => void;

interface Expectation {
  replies: Replies;
  settle: Settle;
  until: Until;
  error: Error | undefined;
  tag: CommandTag | undefined;
  /** Something of its result was not taken. */
  isCut: boolean;
}

const COPY_REFUSED = Buffer.concat([serialize.copyFail('COPY needs a PostgreSQL connection'), SYNC]);
const NO_WARNINGS: readonly Warning[] = [];

/** Who has used a session, for those who ask whether it was somebody else. */
const SOMEBODY = {};

/** Of errors and notices only the beginning of each field is kept, however long they are: they need not be there as a whole. */
const FRAMES = { ...backendFrames(), heads: new Int32Array(256).fill(ANY_SIZE) };
FRAMES.heads[BackendType.ErrorResponse] = 0;
FRAMES.heads[BackendType.NoticeResponse] = 0;
/** Of each field, in bytes. */
const ERROR_FIELD_MAX_BYTES = 16_384;

/**
 * Requests to one backend and the replies to them, which come in the same order. A request may be sent before earlier ones
 * are answered; all requests of one turn of the event loop go out in one write.
 * @see https://www.postgresql.org/docs/current/protocol-flow.html#PROTOCOL-FLOW-PIPELINING
 */
export class Pipeline implements BackendReceiver {
  readonly #backend: BackendConnection;
  readonly #inflow: ReceiveBudget;
  readonly #owner: PipelineOwner;
  readonly #scanner: FrameScanner;
  readonly #queue: Expectation[] = [];
  #notices: Notices | undefined;
  #outbox: Uint8Array[] = [];
  #status: TransactionStatus = 'I';
  #isUnsynced = false;
  /** A large row is being written: what has come behind it waits. */
  #isWriting = false;
  /** The backend is another's: what is left of the last chunk has been taken. */
  #isLeft = false;
  /** The error or notice that is coming. */
  #fields = new ErrorFieldsReader(ERROR_FIELD_MAX_BYTES);
  #isUntouched = true;
  #hasChangedSettings = false;
  #hasChangedSchema = false;
  #dead: Error | undefined;
  #blame: ServiceError | undefined;
  #onDrained: (() => void) | undefined;

  /** @param results counts large messages */
  constructor(backend: BackendConnection, results: ResultMemory, owner: PipelineOwner) {
    this.#backend = backend;
    this.#inflow = new ReceiveBudget(backend, results);
    this.#scanner = new FrameScanner(FRAMES, this.#inflow);
    this.#owner = owner;
  }

  /** From now on it receives what the backend sends. */
  attach(): void {
    this.#backend.attach(this);
    if (this.#backend.closed) this.fail(connectionLost());
  }

  /** Whatever else has to wait for the rest of it is copied. */
  get holdsChunk(): boolean {
    return this.#isWriting;
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
    return this.#isUntouched;
  }

  /** Postgres has reported a setting that is not what it was. */
  get hasChangedSettings(): boolean {
    return this.#hasChangedSettings;
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

  /** @param settle is given a PostgresError, or a ServiceError: `unsupported_statement`, `response_too_large`, `backend_lost`, or who is to {@link blame} */
  send(messages: readonly Uint8Array[], replies: Replies, until: Until, settle: Settle): void {
    if (this.#dead !== undefined) {
      settle(this.#dead);
      return;
    }
    this.#isUnsynced = until === 'described';
    this.#queue.push({ replies, settle, until, error: undefined, tag: undefined, isCut: false });
    this.#write(messages);
  }

  /** Whatever fails from now on fails for this reason. */
  blame(reason: ServiceError): void {
    this.#blame ??= reason;
    this.#inflow.giveUp();
    if (this.#isWriting) this.#queue[0]?.replies.interrupt?.();
  }

  /**
   * As {@link send}, where requests of others are ahead of it or may follow: it is written by itself.
   * @param isFirst the backend is idle; else others of this turn may be written with it
   */
  sendAmongOthers(messages: readonly Uint8Array[], replies: Replies, isFirst: boolean, settle: Settle): void {
    this.#queue.push({ replies, settle, until: 'ready', error: undefined, tag: undefined, isCut: false });
    if (this.#isUntouched) this.#takeOver();
    this.#outbox.push(...messages);
    for (const bytes of this.#takeOutbox()) {
      if (isFirst) this.#backend.write(bytes);
      else this.#backend.writeSoon(bytes);
    }
  }

  /** The backend is another's now. @returns what has come from it for that one */
  takeRest(): Buffer {
    this.#isLeft = true;
    return this.#scanner.takeRest();
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
    this.#dead ??= this.#blame ?? error;
    this.#inflow.release();
    for (const expectation of this.#queue.splice(0)) expectation.settle(this.#blame ?? expectation.error ?? error);
    this.#onDrained?.();
  }

  data(chunk: Buffer): void {
    this.#scanner.push(chunk);
    this.#scan();
  }

  #scan(): void {
    turnStartedAt();
    try {
      while (this.#dead === undefined && !this.#isWriting && !this.#isLeft && this.#scanner.next()) this.#receive();
    } catch (error) {
      this.fail(error instanceof Error ? error : new ServiceError('internal', 'internal error', { cause: error }));
    }
  }

  drain(): void {}

  /** Lets nothing more arrive. */
  pause(): void {
    this.#inflow.pause();
  }

  resume(): void {
    this.#inflow.resume();
  }

  closed(error: Error | undefined): void {
    this.fail(connectionLost(error));
  }

  #write(messages: readonly Uint8Array[]): void {
    if (this.#outbox.length === 0) queueMicrotask(() => this.#flush());
    if (this.#isUntouched) this.#takeOver();
    this.#outbox.push(...messages);
  }

  /** Of what the session's last borrower has left, the unnamed statement goes, and whatever only stands in the way. */
  #takeOver(): void {
    const { session } = this.#backend;
    this.#isUntouched = false;
    session.lastUser = SOMEBODY;
    session.unnamed = undefined;
    if (session.staleNames.size === 0) return;
    for (const name of session.takeStaleNames()) this.#outbox.push(closeStatement(name));
  }

  #flush(): void {
    const writes = this.#takeOutbox();
    if (this.#dead === undefined) for (const bytes of writes) this.#backend.write(bytes);
  }

  #takeOutbox(): readonly Uint8Array[] {
    const messages = this.#outbox;
    this.#outbox = [];
    return joinShort(messages);
  }

  /** @see https://www.postgresql.org/docs/current/protocol-message-formats.html */
  #receive(): void {
    const { type, length, buffer, start, end, first, last } = this.#scanner;
    const head = this.#queue[0];
    if (type === BackendType.ErrorResponse || type === BackendType.NoticeResponse) {
      this.#receiveFields(head);
      return;
    }
    if (type === BackendType.DataRow && last && length > LARGE_ROW_BYTES && head?.replies.largeRow !== undefined) {
      this.#await(head.replies.largeRow(buffer, start + HEADER_BYTES, end));
      return;
    }
    // From here on it is kept by whoever wants it.
    this.#inflow.release();
    if (!first || !last) {
      if (first) this.#refuse(type, length);
      return;
    }
    switch (type) {
      case BackendType.DataRow:
        head?.replies.row?.(buffer, start + HEADER_BYTES, end);
        return;
      case BackendType.ParameterDescription:
        head?.replies.parameters?.(decodeParameterDescription(this.#body()), this.#body());
        return;
      case BackendType.RowDescription:
        this.#described(head, decodeRowDescription(this.#body()), this.#body());
        return;
      case BackendType.NoData:
        this.#described(head, []);
        return;
      case BackendType.CommandComplete:
        this.#completed(head, decodeCommandComplete(this.#body()));
        return;
      case BackendType.ReadyForQuery:
        this.#ready(decodeReadyForQuery(this.#body()));
        return;
      case BackendType.ParameterStatus:
        this.#hasChangedSettings = true;
        this.#owner.settingsChanged?.();
        this.#watchEncoding(decodeParameterStatus(this.#body()));
        return;
      case BackendType.CopyInResponse:
        this.#refuseCopyIn();
        return;
      case BackendType.CopyOutResponse:
        this.#cut(copyRefused());
        return;
      default:
        // ParseComplete, BindComplete, CloseComplete, EmptyQueryResponse, NotificationResponse, CopyData, CopyDone: nothing to do.
        return;
    }
  }

  #completed(head: Expectation | undefined, tag: CommandTag): void {
    this.#hasChangedSchema ||= SCHEMA_CHANGE.test(tag.tag);
    if (head) head.tag = tag;
  }

  /** Of an error or a notice, which may come in many fragments. */
  #receiveFields(head: Expectation | undefined): void {
    const { type, buffer, start, end, first, last } = this.#scanner;
    this.#fields.push(buffer, first ? start + HEADER_BYTES : start, end);
    if (!last) return;
    const fields = this.#fields.end();
    if (type === BackendType.NoticeResponse) {
      this.#notices ??= new Notices();
      this.#notices.add(fields);
      return;
    }
    if (head) head.tag = undefined;
    this.#failHead(new PostgresError(fields));
  }

  /** Waits for a large row to be written; the room that it has had to come it keeps so long. */
  #await(writing: Promise<void>): void {
    this.#isWriting = true;
    this.#inflow.hold();
    const goOn = () => {
      this.#isWriting = false;
      if (this.#dead !== undefined) return;
      this.#inflow.letGo();
      this.#scan();
    };
    writing.then(goOn, (error: unknown) => {
      this.fail(error instanceof Error ? error : new ServiceError('internal', 'internal error', { cause: error }));
      goOn();
    });
  }

  #body(): Buffer {
    const { buffer, start, end } = this.#scanner;
    return buffer.subarray(start + HEADER_BYTES, end);
  }

  #described(head: Expectation | undefined, fields: readonly FieldDescription[], body?: Buffer): void {
    head?.replies.fields?.(fields, body);
    if (head?.until === 'described') this.#settle(head);
  }

  #ready(status: TransactionStatus): void {
    this.#status = status;
    const head = this.#queue[0];
    if (head) this.#settle(head);
  }

  #settle(head: Expectation): void {
    this.#queue.shift();
    const warnings = (head.until === 'ready' && this.#notices?.take()) || NO_WARNINGS;
    if (head.error !== undefined) head.settle(this.#errorOf(head, head.error));
    else head.settle({ tag: head.tag, status: this.#status, warnings });
    if (this.#queue.length === 0) this.#onDrained?.();
  }

  /** A request that is answered without error is carried out, unless a transaction is open. */
  #errorOf({ tag, isCut }: Expectation, own: Error): Error {
    const error = this.#blame ?? own;
    return isCut && tag !== undefined && this.#status === 'I' && error instanceof ServiceError ? carriedOut(error) : error;
  }

  /** There is no room for all of a message. A row can be missed; anything else tells what becomes of the connection. */
  #refuse(type: number, length: number): void {
    const reason = this.#inflow.refusal(length);
    if (type !== BackendType.DataRow) throw reason;
    this.#cut(reason);
  }

  /** What comes is of no use any more. */
  #cut(reason: ServiceError): void {
    const head = this.#queue[0];
    if (head) head.isCut = true;
    this.#failHead(reason);
    this.#owner.abort(reason);
  }

  /** The first error counts. After one, Postgres reads on from the next Sync, so one has to be on its way. */
  #failHead(error: Error): void {
    const head = this.#queue[0];
    if (head === undefined) return;
    head.error ??= error;
    if (head.until === 'ready') return;
    head.until = 'ready';
    this.#isUnsynced = false;
    this.#write([SYNC]);
  }

  /** The Sync that followed the statement was lost in copy-in mode, so another one must follow. */
  #refuseCopyIn(): void {
    this.#failHead(copyRefused());
    this.#write([COPY_REFUSED]);
  }

  /** In any other encoding the text would not be JSON's UTF-8. */
  #watchEncoding({ parameter, value }: { readonly parameter: string; readonly value: string }): void {
    if (parameter !== 'client_encoding' || value === 'UTF8') return;
    this.#failHead(new ServiceError('unsupported_statement', `client_encoding cannot be ${value} here: JSON is UTF-8`));
  }
}

function copyRefused(): ServiceError {
  return new ServiceError('unsupported_statement', 'COPY FROM STDIN and COPY TO STDOUT need a PostgreSQL connection');
}

function connectionLost(cause?: Error): ServiceError {
  return new ServiceError('backend_lost', 'the connection to the database was lost', cause === undefined ? {} : { cause });
}
