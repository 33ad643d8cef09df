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
import { turnStartedAt } from '../../runtime/event-loop.ts';
import { withCompletion } from '../execution/statement-failure.ts';
import { LARGE_ROW_BYTES } from '../json/row.ts';
import { Notices, type Warning } from './notices.ts';
import { PipelineOutput } from './pipeline-output.ts';
import type { Replies, Settle, Until } from './pipeline-request.ts';
import { ReceiveBudget, type ResultMemory } from './receive-budget.ts';

/** Whose requests a pipeline sends. */
export interface PipelineOwner {
  /** What runs is of no use any more, for this reason. */
  abort(reason: ServiceError): void;
  /** Postgres has reported a setting that is not what it was. */
  settingsChanged?(): void;
}

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

/** Errors and notices are read piece by piece, and only the beginning of each field is kept. */
const FRAMES = { ...backendFrames(), heads: new Int32Array(256).fill(ANY_SIZE) };
FRAMES.heads[BackendType.ErrorResponse] = 0;
FRAMES.heads[BackendType.NoticeResponse] = 0;
/** The most that is kept of a field. */
const ERROR_FIELD_MAX_BYTES = 16_384;

/**
 * Requests to one backend and the replies to them, which come in the same order. A request may be sent before earlier ones
 * are answered; all requests of one turn of the event loop go out in one write.
 * @see https://www.postgresql.org/docs/current/protocol-flow.html#PROTOCOL-FLOW-PIPELINING
 */
export class Pipeline implements BackendReceiver {
  readonly #backend: BackendConnection;
  readonly #receiveBudget: ReceiveBudget;
  readonly #output: PipelineOutput;
  readonly #owner: PipelineOwner;
  readonly #scanner: FrameScanner;
  readonly #queue: Expectation[] = [];
  #notices: Notices | undefined;
  #status: TransactionStatus = 'I';
  #isUnsynced = false;
  /** A large row is being written: what has come behind it waits. */
  #isWritingRow = false;
  /** The backend belongs to another user, who has taken the rest of the last chunk. */
  #isLeft = false;
  /** The error or notice that is coming. */
  #fields = new ErrorFieldsReader(ERROR_FIELD_MAX_BYTES);
  #hasChangedSettings = false;
  #hasChangedSchema = false;
  #dead: Error | undefined;
  #abortReason: ServiceError | undefined;
  #onDrained: (() => void) | undefined;

  /** @param results counts large messages */
  constructor(backend: BackendConnection, results: ResultMemory, owner: PipelineOwner) {
    this.#backend = backend;
    this.#output = new PipelineOutput(backend);
    this.#receiveBudget = new ReceiveBudget(backend, results);
    this.#scanner = new FrameScanner(FRAMES, this.#receiveBudget);
    this.#owner = owner;
  }

  /** From now on it receives what the backend sends. */
  attach(): void {
    this.#backend.attach(this);
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
    this.#queue.push({ replies, settle, until, error: undefined, tag: undefined, isCut: false });
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
    this.#queue.push({ replies, settle, until: 'ready', error: undefined, tag: undefined, isCut: false });
    this.#output.writeNow(messages, isFirst);
  }

  /** The backend belongs to another user now. @returns what it has sent for that user */
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
    this.#dead ??= this.#abortReason ?? error;
    this.#output.close();
    this.#receiveBudget.release();
    for (const expectation of this.#queue.splice(0)) expectation.settle(this.#abortReason ?? expectation.error ?? error);
    this.#onDrained?.();
  }

  data(chunk: Buffer): void {
    this.#scanner.push(chunk);
    this.#scan();
  }

  #scan(): void {
    turnStartedAt();
    try {
      while (this.#dead === undefined && !this.#isWritingRow && !this.#isLeft && this.#scanner.next()) this.#receive();
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
    this.#receiveBudget.release();
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
        this.#dropResult(copyRefused());
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

  /** Waits for a large row to be written. Its memory stays reserved meanwhile. */
  #await(writing: Promise<void>): void {
    this.#isWritingRow = true;
    this.#receiveBudget.hold();
    const goOn = () => {
      this.#isWritingRow = false;
      if (this.#dead !== undefined) return;
      this.#receiveBudget.letGo();
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

  /** A request whose result was cut off has been executed, unless a transaction is open. The error says so. */
  #errorOf({ tag, isCut }: Expectation, own: Error): Error {
    const error = this.#abortReason ?? own;
    return isCut && tag !== undefined && this.#status === 'I' && error instanceof ServiceError ? withCompletion(error) : error;
  }

  /** There is no memory for a whole message. A row can be dropped; any other message is needed to know the state of the connection. */
  #refuse(type: number, length: number): void {
    const reason = this.#receiveBudget.refusal(length);
    if (type !== BackendType.DataRow) throw reason;
    this.#dropResult(reason);
  }

  /** Drops the rest of the result. */
  #dropResult(reason: ServiceError): void {
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
    this.#output.write([SYNC]);
  }

  /** The Sync that followed the statement was lost in copy-in mode, so another one must follow. */
  #refuseCopyIn(): void {
    this.#failHead(copyRefused());
    this.#output.write([COPY_REFUSED]);
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
