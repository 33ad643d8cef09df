import { performance } from 'node:perf_hooks';
import type { Duplex } from 'node:stream';
import type { BackendConnection, BackendReceiver } from '../src/backend/connection.ts';
import { ReplyQueue } from '../src/backend/reply-queue.ts';
import type { ServerStatement } from '../src/backend/session-state.ts';
import { ServiceError } from '../src/errors.ts';
import type { TransactionStatus } from '../src/protocol/backend.ts';
import { FrameScanner, frontendFrames } from '../src/protocol/framing.ts';
import { Deadline } from '../src/runtime/event-loop.ts';
import { MAX_KEPT_DEFINITION_BYTES, MAX_REWRITTEN_BYTES } from './audited-text.ts';
import { BackendReplies } from './backend-messages.ts';
import { BackendLink, Checkout } from './checkout.ts';
import { errorResponse } from './errors.ts';
import { Gate, Reason } from './gate.ts';
import { Inspection } from './inspection.ts';
import type { Pins } from './pins.ts';
import type { RelayEnd, SessionServices } from './session-services.ts';
import { RequestInFlight } from './sharing.ts';
import { StatementCounting } from './statement-counting.ts';
import { Statements } from './statements.ts';
import { WriteBuffer } from './write-buffer.ts';

/** The longest names that are inspected: PostgreSQL truncates SQL names to 63 bytes, but protocol names have no limit. */
const MAX_NAMES_BYTES = 65_536;
const OID_BYTES = 4;
const HEADS = { B: MAX_NAMES_BYTES, D: MAX_NAMES_BYTES, C: MAX_NAMES_BYTES, E: MAX_NAMES_BYTES, F: OID_BYTES };
const FRONTEND = frontendFrames({ ...HEADS, Q: 65_536, P: MAX_KEPT_DEFINITION_BYTES });
/** Texts that are rewritten have to be held whole. */
const FRONTEND_REWRITTEN = frontendFrames({ ...HEADS, Q: MAX_REWRITTEN_BYTES, P: MAX_REWRITTEN_BYTES });

const NEVER = -1;
const STRINGS = 'standard_conforming_strings';
const CLIENT_ENCODING = 'client_encoding';

/**
 * The state of a session, in the words of pg_stat_activity, and of PgBouncer for a session that waits for a backend.
 * @see https://www.postgresql.org/docs/current/monitoring-stats.html#MONITORING-PG-STAT-ACTIVITY-VIEW
 */
type Activity = 'idle' | 'idle in transaction' | 'active' | 'waiting' | 'ended';

const CLIENT_GONE: RelayEnd = { reason: 'client_gone' };
/** How long the rest of a message may take. A server that is busy takes its time for the cancel request. */
const REST_TIMEOUT_MS = 2_000;

/** What is known of a session's end, from when its client, its backend or the service begins to end it. */
class SessionEnding {
  isOver = false;
  /** The client has closed its sending side and may still be reading. */
  halfClosed = false;
  /** The backend has sent its final error, and the client has it. */
  hasFatal = false;
  /** The running statement does not end when it is canceled. */
  cancelFailed = false;
  /** The session ends with this error as soon as it is idle outside a transaction. */
  atRest: ServiceError | undefined;
  /** Set when the session ends as soon as the client has the message that is being forwarded; expires at the latest then. */
  afterMessage: Deadline | undefined;
  /** The session ends like this when all requests have been answered. */
  afterReplies: RelayEnd | undefined;
}

/** The record of one client's session, and how it ends. `relay.ts` extends it: it calls the steps of a request in their order. */
export abstract class WireSession implements BackendReceiver {
  readonly client: Duplex;
  readonly services: SessionServices;
  /** The state that outlives transactions. */
  readonly pins: Pins;

  /* Messages on their way. */
  readonly clientScanner: FrameScanner;
  readonly toClient: WriteBuffer;
  readonly toBackend: WriteBuffer;
  readonly received: BackendReplies;
  /** The replies that the backend owes. */
  readonly replies: ReplyQueue;
  readonly gate = new Gate();
  readonly link: BackendLink;
  readonly checkout: Checkout;
  readonly inFlight: RequestInFlight;
  readonly inspection = new Inspection(this);

  /* What the client has prepared and has been told. */
  readonly statements: Statements;

  /** As of the last ReadyForQuery. */
  status: TransactionStatus = 'I';
  /** When the oldest unanswered request was sent, or when the session last became idle; on performance.now()'s clock. */
  since = performance.now();
  /** How many statements have completed, for the watchdog. */
  completions = 0;
  bytesIn = 0;

  readonly counting = new StatementCounting(this);

  /* The input that is being forwarded. */
  /** The batch in which extended-protocol messages have been sent that no Sync has followed yet. */
  unsyncedBatch = NEVER;
  /** The batch in which an Execute has been sent, unless it is known how the server reads strings behind it. */
  unknownStringsBatch = NEVER;
  /** How the server reads strings in the rest of a batch, which it has been asked in its middle. */
  learnedStrings: { readonly batch: number; readonly areStandard: boolean } | undefined;
  /**
   * Whose latency is measured if the input is a single request: that of the Query's text, or of the statement bound last.
   * `none`: its statements have traits, are audited, or are unnamed on the server, too.
   */
  timed: ServerStatement | 'text' | 'none' = 'text';
  /** Why there was no backend for the request that comes next. `told`: the client knows, and its messages up to the next Sync are ignored. */
  refusal: ServiceError | 'told' | undefined;

  ending: SessionEnding | undefined;

  constructor(client: Duplex, services: SessionServices, pins: Pins, parameters: ReadonlyMap<string, string>) {
    this.client = client;
    this.services = services;
    this.pins = pins;
    this.clientScanner = new FrameScanner(services.rewriter === undefined ? FRONTEND : FRONTEND_REWRITTEN, services.bufferBudget);
    this.toClient = new WriteBuffer(client);
    this.received = new BackendReplies(this, parameters);
    this.replies = new ReplyQueue(this.received);
    this.statements = new Statements(this);
    pins.startStrings = parameters.get(STRINGS);
    this.link = new BackendLink(this);
    this.toBackend = this.link.out;
    this.inFlight = new RequestInFlight(this);
    this.checkout = new Checkout(this);
  }

  /* How the relay goes on, after an event that a step has waited for. */
  abstract data(chunk: Buffer): void;
  abstract get holdsChunk(): boolean;
  abstract drain(): void;
  abstract closed(): void;
  /** Handles the input that waits, if it does not have to wait any more. */
  abstract continueInput(): void;
  /** Handles the input that waits. */
  abstract resumeInput(): void;
  /** There is no backend for the client's next request. */
  abstract refused(reason: ServiceError): void;
  /** The request in the shared pipeline has not been answered at all and has to be requeued. */
  abstract runElsewhere(isCanceled: boolean): void;
  /** The session's request and those behind it have been answered: the session has the backend for itself again. */
  abstract tookOver(): void;

  /** The backend that the session has at the moment. */
  get backend(): BackendConnection | undefined {
    return this.link.lease?.backend;
  }

  /** Extended-protocol messages have been sent without a Sync, or with one that the server ignored. */
  get isUnsynced(): boolean {
    return this.hasUnsynced || this.replies.missingSync !== 'none';
  }

  /** Extended-protocol messages have been sent without a Sync. A Query that has been answered ends them, too. */
  get hasUnsynced(): boolean {
    return this.unsyncedBatch >= this.replies.oldestBatch;
  }

  /**
   * The value of `standard_conforming_strings` with which the server reads the client's next text, if nothing that has been sent
   * changes it. The server reports a new value before the ReadyForQuery of the request that has set it.
   */
  get standardConformingStrings(): boolean {
    const { learnedStrings: learned } = this;
    if (learned?.batch === this.replies.batch) return learned.areStandard;
    return this.received.parameter(STRINGS) !== 'off';
  }

  /** The encoding of the client's texts, as the server has reported it. */
  get clientEncoding(): string | undefined {
    return this.received.parameter(CLIENT_ENCODING);
  }

  /** Unanswered requests may change how the server reads the client's next text. */
  get mayChangeStrings(): boolean {
    const { batch, oldestBatch } = this.replies;
    return oldestBatch !== batch || this.unknownStringsBatch === batch;
  }

  /** All of the client's requests have been answered, and the next message begins a new pipeline. */
  get startsPipeline(): boolean {
    return !this.isUnsynced && this.replies.onlyOurs;
  }

  /** All requests have been answered, and no transaction is open. */
  get isAtRest(): boolean {
    return this.replies.length === 0 && this.status === 'I' && !this.isUnsynced;
  }

  get activity(): Activity {
    if (this.isOver) return 'ended';
    if (this.gate.isWaiting || this.link.isQueued) return 'waiting';
    if (this.replies.length > 0 || this.gate.isClosed(Reason.settings)) return 'active';
    return this.status === 'I' ? 'idle' : 'idle in transaction';
  }

  /** The client waits for replies or for a backend. */
  get isBusy(): boolean {
    return this.replies.length > 0 || this.gate.isWaiting || this.gate.isClosed(Reason.settings) || this.link.isQueued;
  }

  get isOver(): boolean {
    return this.ending?.isOver === true;
  }

  /** Nothing more is done for the client. */
  get isEnding(): boolean {
    return this.ending !== undefined && (this.ending.isOver || this.ending.afterMessage !== undefined);
  }

  /** The client's input is ignored from now on. */
  get ignoresInput(): boolean {
    return this.ending !== undefined && (this.isEnding || this.ending.afterReplies !== undefined);
  }

  /* A session ends at once, when it is idle outside a transaction, or when all of its client's requests have been answered. */

  makeEnding(): SessionEnding {
    this.ending ??= new SessionEnding();
    return this.ending;
  }

  /** The backend has sent its final error. */
  fatalErrorCame(): void {
    this.makeEnding().hasFatal = true;
  }

  #endNow(end: RelayEnd): void {
    const ending = this.makeEnding();
    if (ending.isOver) return;
    ending.isOver = true;
    ending.afterMessage?.clear();
    this.toClient.flush();
    void this.#leave(end);
  }

  /** Ends the session with an error, which the client is told unless a message to it is incomplete. */
  endByError(error: ServiceError): void {
    this.#endTelling(error, 'ended', !this.received.isAmidMessage);
  }

  /**
   * As {@link endByError}. If the client has only the beginning of a message, it gets the rest first, because the error can be sent only
   * between messages. The statement is canceled, so the rest comes soon if the client reads.
   */
  end(error: ServiceError): void {
    // To cancel in a shared pipeline would affect the requests of other clients too. The replies there are short.
    if (!this.received.isAmidMessage || this.link.shared !== undefined) this.endByError(error);
    else if (!this.isEnding) {
      this.makeEnding().afterMessage = new Deadline(REST_TIMEOUT_MS, () => this.endByError(error));
      void this.link.cancel();
    }
  }

  /** As {@link endByError}, for a statement that does not end when it is canceled: its backend is terminated. */
  terminate(error: ServiceError): void {
    this.makeEnding().cancelFailed = true;
    this.endByError(error);
  }

  /** Messages that the client has sent during a COPY make it unknown which reply comes next. PostgreSQL uses this message in such a case. */
  endAfterProtocolError(): void {
    this.endByError(new ServiceError('protocol_violation', 'terminating connection because protocol synchronization was lost'));
  }

  endWithoutBackend(): void {
    const error = new ServiceError('backend_lost', 'the connection to the database server was lost');
    this.#endTelling(error, 'backend_lost', !this.received.isAmidMessage && this.ending?.hasFatal !== true);
  }

  /** As {@link endByError}, for an unexpected failure, which is reported. */
  endByFailure(cause: unknown): void {
    this.endByError(this.#internalError(cause));
  }

  #endTelling(error: ServiceError, reason: RelayEnd['reason'], isTold: boolean): void {
    this.#endNow({ reason, ...(isTold ? { finalError: errorResponse(error, 'FATAL') } : {}) });
  }

  clientGone(): void {
    this.#endNow(CLIENT_GONE);
  }

  /** Ends the session without an error, because the client does not read. */
  abandon(): void {
    this.#endNow(this.ending?.afterReplies ?? CLIENT_GONE);
  }

  /** Ends the session when it is idle outside a transaction. */
  endAtRest(error: ServiceError): void {
    this.makeEnding().atRest = error;
    this.#endIfAtRest();
  }

  /**
   * The client has sent Terminate, or has violated the protocol. Earlier requests are still answered. The watchdog limits the
   * time for that, as for a client that has closed its sending side.
   */
  #endAfterReplies(end: RelayEnd): void {
    const ending = this.makeEnding();
    ending.afterReplies = end;
    ending.halfClosed = true;
    if (this.replies.length === 0) this.#endNow(end);
  }

  /** The client has sent Terminate. */
  terminated({ buffer, start, end }: FrameScanner): void {
    const { replies, toBackend } = this;
    // During COPY FROM STDIN PostgreSQL answers it with an error.
    if (replies.copyIn) toBackend.add(buffer, start, end);
    toBackend.flush();
    this.#endAfterReplies({ reason: 'terminated' });
  }

  /** The client has violated the protocol, or its input could not be handled. */
  violated(error: unknown): void {
    const { replies, toBackend } = this;
    toBackend.flush();
    const told = error instanceof ServiceError ? error : this.#internalError(error);
    const end: RelayEnd = { reason: 'protocol_violation', finalError: errorResponse(told, 'FATAL') };
    // During COPY FROM STDIN the server waits for data, and Postern can no longer tell where messages begin.
    if (replies.copyIn) this.#endNow(end);
    else this.#endAfterReplies(end);
  }

  /** Reports an unexpected failure. @returns the error that the client is told */
  #internalError(cause: unknown): ServiceError {
    const { services } = this;
    services.observe({ name: 'service.failure', message: 'a wire session failed', cause });
    return new ServiceError('internal', 'internal error', { cause });
  }

  /** All requests have been answered: ends the session if it was to end then. @returns whether it has ended */
  endedWithReplies(): boolean {
    const end = this.ending?.afterReplies;
    if (end !== undefined) this.#endNow(end);
    return end !== undefined;
  }

  /** Ends the session if it is idle and was to end then, or if its client sends no more. @returns whether it has ended */
  endedAtRest(): boolean {
    if (this.#endIfAtRest()) return true;
    if (this.ending?.halfClosed !== true || this.gate.input !== undefined) return false;
    this.abandon();
    return true;
  }

  #endIfAtRest(): boolean {
    const error = this.ending?.atRest;
    if (error === undefined || !this.isAtRest) return false;
    this.endByError(error);
    return true;
  }

  /** Gives back all that the session holds, and reports its end. */
  async #leave(end: RelayEnd): Promise<void> {
    // The caller may still be using the backend.
    await undefined;
    let failure: unknown;
    try {
      await this.#giveBack();
    } catch (error) {
      failure = error;
    }
    this.services.ended(end, failure);
  }

  async #giveBack(): Promise<void> {
    const { checkout, statements, services, link } = this;
    checkout.giveUp();
    // The rest of a reply from a shared backend is discarded.
    this.received.discard();
    if (link.backend !== undefined) statements.backendLeft(link.backend.session);
    statements.end();
    services.bufferBudget.end();
    if (link.lease === undefined) link.cancelReservation();
    else await link.close(this.isAtRest && this.clientScanner.last, this.ending?.cancelFailed === true);
  }
}
