import { serialize } from 'pg-protocol';
import type { BackendConnection, BackendReceiver } from '../../backend/connection.ts';
import { ServiceError } from '../../errors.ts';
import { SCHEMA_CHANGE } from '../../multiplex/statement-registry.ts';
import { type CommandTag, type ErrorFields, type FieldDescription, PostgresError, type TransactionStatus } from '../../protocol/backend.ts';
import { SYNC } from '../../protocol/frontend.ts';
import { type ReplyHandler, ReplyReader, replyFrames } from '../../protocol/reply-reader.ts';
import { turnStartedAt } from '../../runtime/event-loop.ts';
import { LARGE_ROW_BYTES } from '../json/row.ts';
import { PendingRequest } from './pending-request.ts';
import { PipelineOutput } from './pipeline-output.ts';
import { ReceiveBudget, type ResultMemory } from './receive-budget.ts';
import type { Replies, Settle, Until } from './replies-and-completion.ts';
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
