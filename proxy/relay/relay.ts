import { Buffer } from 'node:buffer';
import { performance } from 'node:perf_hooks';
import type { Duplex } from 'node:stream';
import type { BackendReceiver } from '../../src/backend/connection.ts';
import { ServiceError } from '../../src/errors.ts';
import type { ErrorFields, TransactionStatus } from '../../src/protocol/backend.ts';
import type { Lease } from '../../src/router/lease.ts';
import { joined } from '../../src/runtime/bytes.ts';
import { SMALL_BYTES } from '../../src/runtime/memory-budget.ts';
import { HIGH_WATER_BYTES } from '../buffer-limits.ts';
import { BackendLink } from '../checkout/backend-link.ts';
import { Checkin } from '../checkout/checkin.ts';
import { isCanceled, isStalePlan, isTakenAway } from '../errors.ts';
import { DdlAudit } from '../inspection/ddl-audit.ts';
import type { ClientReceiver } from '../login/client-connection.ts';
import { InFlight } from '../multiplex/in-flight.ts';
import type { ShareMode } from '../multiplex/multiplexer.ts';
import type { Pins } from '../pinning/pins.ts';
import { StatementEffects } from '../pinning/statement-effects.ts';
import { ClientStatements } from '../prepared/client-statements.ts';
import type { SessionServices } from '../sessions/session-services.ts';
import { BackendMessages } from './backend-messages.ts';
import { Forwarding } from './forwarding.ts';
import { FrontendMessages } from './frontend-messages.ts';
import { SessionEnd } from './session-end.ts';
import { WriteBuffer } from './write-buffer.ts';

const HELD_BACK_MAX_BYTES = 65_536;
const NOTHING = Buffer.alloc(0);

/**
 * One client's conversation, carried on over whatever backend it has at the moment. A backend is checked out for a
 * transaction, and kept while the session holds state that outlives one. Bodies go through untouched; the side whose peer
 * cannot take more is not read until it can. Each of its parts says by its type what it knows of the others.
 */
export class Relay implements BackendReceiver, ClientReceiver {
  /** Among those who are watched. */
  index = -1;
  /** When the client last took bytes off our hands. */
  lastTakenAt = performance.now();
  readonly client: Duplex;
  readonly services: SessionServices;
  readonly pins: Pins;
  readonly toClient: WriteBuffer;
  readonly replies: BackendMessages;
  readonly forwarding: Forwarding;
  readonly link: BackendLink;
  readonly inFlight: InFlight;
  readonly sessionEnd: SessionEnd;
  readonly #statements: ClientStatements;
  readonly #checkin: Checkin;
  readonly #frontendMessages: FrontendMessages;
  /** What is being answered has met an error of which the client has not been told, and is run a second time. */
  #hasRunAgain = false;
  /** The backend has nothing to do, and is kept until the client has taken its answer. */
  #awaitsReader = false;

  constructor(client: Duplex, host: SessionServices, pins: Pins, parameters: ReadonlyMap<string, string>) {
    const statements = new ClientStatements(host.kept);
    const watch = new DdlAudit(host);
    this.#statements = statements;
    this.client = client;
    this.services = host;
    this.pins = pins;
    this.toClient = new WriteBuffer(client);
    this.replies = new BackendMessages(this, statements, watch, parameters);
    this.link = new BackendLink(this);
    this.forwarding = new Forwarding(statements, host, this.replies.queue, watch, new StatementEffects(this), this.link.out);
    this.inFlight = new InFlight(this);
    this.sessionEnd = new SessionEnd(this);
    this.#checkin = new Checkin(this);
    this.#frontendMessages = new FrontendMessages(this);
  }

  get status(): TransactionStatus {
    return this.replies.status;
  }

  /** When the oldest unanswered request was sent, or when the session last became idle; on performance.now()'s clock. */
  get since(): number {
    return this.replies.since;
  }

  get traffic(): { readonly bytesIn: number; readonly bytesOut: number } {
    return { bytesIn: this.#frontendMessages.bytes, bytesOut: this.replies.bytesOut };
  }

  get statements(): number {
    return this.forwarding.counts.statements;
  }

  /** Replies are owed to the client, or it waits for a backend. */
  get busy(): boolean {
    return this.replies.queue.length > 0 || this.#frontendMessages.isWaiting || this.replies.heldReady || this.link.isQueued;
  }

  /** The backend at hand, e.g. to be canceled. */
  get lease(): Lease | undefined {
    return this.link.isQueued ? undefined : this.link.lease;
  }

  /** What a backend sends is written to the client at once, and only what the kernel has not taken is needed longer. */
  get holdsChunk(): boolean {
    return this.client.writableLength > 0 || this.toClient.bytes > 0 || this.replies.isInterrupted;
  }

  /** Bytes that the client has not taken yet. */
  get unsent(): number {
    return this.client.writableLength;
  }

  /** The client has closed its sending side and may still be reading. */
  get halfClosed(): boolean {
    return this.sessionEnd.halfClosed;
  }

  /** As {@link SessionEnd.byError}. */
  end(error: ServiceError): void {
    this.sessionEnd.byError(error);
  }

  /** As {@link SessionEnd.byForce}. */
  terminate(error: ServiceError): void {
    this.sessionEnd.byForce(error);
  }

  /** As {@link SessionEnd.atRest}. */
  endAtRest(error: ServiceError): void {
    this.sessionEnd.atRest(error);
  }

  /** As {@link SessionEnd.abandon}. */
  abandon(): void {
    this.sessionEnd.abandon();
  }

  /** Cancels what the client is waiting for, be it an answer or a backend. Resolves when the server has taken the request. */
  async cancel(): Promise<void> {
    if (this.link.lease === undefined) this.#frontendMessages.giveUp();
    else await this.link.cancels.send();
  }

  /** As {@link cancel}, of our own accord: what the client says meanwhile is not what has taken too long, and waits. */
  stop(): void {
    void this.link.holdBackUntil(this.cancel()).then(() => this.#frontendMessages.goOn());
  }

  clientData(chunk: Buffer): void {
    this.#frontendMessages.take(chunk);
  }

  clientDrained(): void {
    this.lastTakenAt = performance.now();
    this.services.held.toClient(0);
    this.link.backend?.resume();
    if (this.#awaitsReader && !this.busy) this.checkInAgain();
  }

  clientEnded(): void {
    this.sessionEnd.halfClosed = true;
    if (!this.busy) this.sessionEnd.clientGone();
  }

  clientClosed(): void {
    this.sessionEnd.clientGone();
  }

  /**
   * The client knows nothing of what was prepared for it, and is not to hear that it does not fit any more; nor of others
   * that its backend was busy with, and of a cancel request that was meant for one of them.
   */
  canRunAgain(error: ErrorFields): boolean {
    if (!this.inFlight.isUntold) return false;
    // Once: a function can say the same.
    if (isTakenAway(error)) return !this.#hasRunAgain && (this.forwarding.usesRepeated || this.toClient.bytes === 0);
    return (this.forwarding.usesRepeated && isStalePlan(error)) || (this.link.mayMeetForeignCancel && isCanceled(error));
  }

  /** The answer may yet be cut short by a cancel request that was meant for another: the beginning of a short one can wait. */
  get #keepsBack(): boolean {
    return this.link.mayMeetForeignCancel && this.inFlight.isUntold && this.toClient.bytes <= HELD_BACK_MAX_BYTES;
  }

  #runAgain(): void {
    const { bytes } = this.inFlight;
    this.replies.hiding = false;
    if (bytes !== undefined) this.#frontendMessages.takeAgain(bytes);
  }

  /**
   * What was sent ahead, of which nothing has been answered, is held up where it is: it is sent again, elsewhere.
   * @param isCanceled the client has asked for it to be canceled
   */
  runElsewhere(isCanceled: boolean): void {
    if (this.sessionEnd.isOver) return;
    this.replies.queue.abandon();
    // What was answered for the server, and waited for its answers.
    this.toClient.clear();
    this.services.shared('requeued');
    this.#runAgain();
    if (isCanceled) void this.cancel();
    this.#frontendMessages.goOn();
  }

  /** Since when a request has been running, if others may have theirs run behind it in this mode. */
  shareableSince(mode: ShareMode): number | undefined {
    return this.pins.isShareable ? this.inFlight.shareableSince(mode) : undefined;
  }

  data(chunk: Buffer): void {
    const { shared, isFollowed } = this.link;
    let rest: Buffer | undefined;
    try {
      rest = this.replies.take(chunk, isFollowed);
    } catch (error) {
      if (!(error instanceof ServiceError)) this.services.failed(error);
      this.closed();
      return;
    }
    if (this.replies.queue.isUnclear) {
      this.sessionEnd.outOfStep();
      return;
    }
    if (this.replies.isInterrupted) this.#readOnSoon();
    this.link.cancels.sendIfDue();
    if (this.replies.queue.length === 0) this.#answered();
    else if (!this.sessionEnd.isOver && !this.#keepsBack) this.toClient.flushPart(!this.replies.betweenMessages);
    if (this.client.writableLength === 0) this.lastTakenAt = performance.now();
    else if (this.client.writableLength > HIGH_WATER_BYTES && !this.sessionEnd.isOver) this.lease?.backend.pause();
    // The chunk may be read into again; the next one's bytes are few.
    if (rest !== undefined && rest.length > 0) shared?.deliver(joined([rest], rest.length));
    if (this.link.shared === undefined) this.#frontendMessages.goOn();
  }

  /** What the backend has said is much work: others get a turn. */
  #readOnSoon(): void {
    this.link.backend?.pause();
    setImmediate(() => {
      const { backend } = this.link;
      if (backend === undefined || !this.replies.isInterrupted) return;
      if (this.client.writableLength <= HIGH_WATER_BYTES) backend.resume();
      this.data(NOTHING);
    });
  }

  /** All that was asked has been answered. */
  #answered(): void {
    const again = this.replies.hiding;
    this.#hasRunAgain = again;
    if (!this.sessionEnd.isOver) this.inFlight.answered(again);
    const { isAsked: cancelAsked } = this.link.cancels;
    const isDone = again || this.sessionEnd.isOver;
    if (this.link.shared !== undefined) {
      if (again && !this.sessionEnd.isOver) this.services.shared('requeued');
      // Where there is more to find out, others' backend is not the place for it.
      if (!isDone && this.pins.holdsState) this.link.finishKeepingState();
      else if (isDone || this.link.isFollowed) this.link.finishSlot();
    }
    if (this.sessionEnd.isOver || this.link.isQueued) return;
    if (again) {
      this.#runAgain();
      // Too late for what was canceled on behalf of others, and meant for what is run now.
      if (cancelAsked) void this.cancel();
    } else if (!this.sessionEnd.answered()) {
      if (this.link.lease === undefined) this.#passedOn();
      else this.settle();
    }
  }

  /** What was asked has been answered, and so have others since, behind it: the backend is at hand again, for this client alone. */
  gotBack(): void {
    this.#answered();
    this.#frontendMessages.goOn();
  }

  /** The backend is another's already. */
  #passedOn(): void {
    this.inFlight.end();
    this.toClient.flush();
    this.sessionEnd.rested(this.#frontendMessages.hasMore);
  }

  /** Nothing is owed. Others get the backend before the client gets its answer: they wait for it to work, not to read. */
  settle(): void {
    this.#settleBackend();
    this.toClient.flush();
  }

  /** The same, later: the client may have said more meanwhile. */
  checkInAgain(): void {
    this.settle();
    this.#frontendMessages.goOn();
  }

  /** Finds out what the session holds, gives the backend back, or keeps it. */
  #settleBackend(): void {
    if (this.link.lease === undefined || this.sessionEnd.isOver || !this.#isIdle) return;
    if (!this.#checkin.isDone()) return;
    this.pins.restores = false;
    this.pins.unsettled = false;
    this.inFlight.end();
    this.replies.restored();
    if (this.sessionEnd.rested(this.#frontendMessages.hasMore) || this.link.isPinned() || !this.#mayWaitForReader()) return;
    this.link.end();
    this.#frontendMessages.listen();
  }

  /** Whether there is room for what the client has not taken: a backend that is kept says no more, so that it is never much. */
  #mayWaitForReader(): boolean {
    this.#awaitsReader = false;
    if (this.unsent + this.toClient.bytes <= SMALL_BYTES) return true;
    this.toClient.flush();
    const { held } = this.services;
    this.#awaitsReader = this.unsent > SMALL_BYTES && !held.mayGrow(this.unsent);
    if (!this.#awaitsReader) held.toClient(this.unsent);
    return !this.#awaitsReader;
  }

  /** Nothing is owed, no transaction is open, and nothing has begun. */
  get #isIdle(): boolean {
    return this.sessionEnd.isAtRest && this.#frontendMessages.betweenMessages;
  }

  drain(): void {
    this.#frontendMessages.drained();
  }

  closed(): void {
    while (this.replies.isInterrupted && this.link.lease !== undefined) this.data(NOTHING);
    this.link.lost();
    this.sessionEnd.backendLost();
  }

  /**
   * Checks everything in.
   * @param cancelFailed what the backend runs does not end when it is canceled
   */
  async giveBack(cancelFailed: boolean): Promise<void> {
    this.#frontendMessages.giveUp();
    // What still comes of a shared backend's answer is nobody's.
    this.replies.hiding = true;
    this.#statements.end();
    this.services.held.end();
    if (this.link.lease === undefined) this.link.cancelReservation();
    else await this.link.close(this.#isIdle, cancelFailed);
  }
}
