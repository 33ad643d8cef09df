import { Buffer } from 'node:buffer';
import { performance } from 'node:perf_hooks';
import type { Duplex } from 'node:stream';
import type { BackendReceiver } from '../src/backend/connection.ts';
import { ServiceError } from '../src/errors.ts';
import type { ErrorFields, TransactionStatus } from '../src/protocol/backend.ts';
import type { Lease } from '../src/router/lease.ts';
import { joined } from '../src/runtime/bytes.ts';
import { SMALL_BYTES } from '../src/runtime/memory-budget.ts';
import { ClientStatements } from './client-statements.ts';
import type { ClientReceiver } from './connection.ts';
import { Ending } from './ending.ts';
import { isCanceled, isStalePlan, isTakenAway } from './errors.ts';
import { InFlight } from './in-flight.ts';
import { Inbound } from './inbound.ts';
import { HIGH_WATER_BYTES } from './limits.ts';
import type { Pins } from './pins.ts';
import type { RelayHost } from './relay-host.ts';
import { Replies } from './replies.ts';
import { Requests } from './requests.ts';
import { Run } from './run.ts';
import { Settling } from './settling.ts';
import type { Company } from './sharing.ts';
import { StatementEffects } from './statement-effects.ts';
import { StatementWatch } from './statement-watch.ts';
import { Tenure } from './tenure.ts';

const MAX_KEPT_BACK_BYTES = 65_536;
const NOTHING = Buffer.alloc(0);

/**
 * One client's conversation, carried on over whatever backend it has at the moment. A backend is borrowed for a
 * transaction, and kept while the session holds state that outlives one. Bodies go through untouched; the side whose peer
 * cannot take more is not read until it can. Each of its parts says by its type what it knows of the others.
 */
export class Relay implements BackendReceiver, ClientReceiver {
  /** Among those who are watched. */
  index = -1;
  /** When the client last took bytes off our hands. */
  lastTakenAt = performance.now();
  readonly client: Duplex;
  readonly host: RelayHost;
  readonly pins: Pins;
  readonly toClient: Run;
  readonly replies: Replies;
  readonly requests: Requests;
  readonly tenure: Tenure;
  readonly inFlight: InFlight;
  readonly ending: Ending;
  readonly #statements: ClientStatements;
  readonly #settling: Settling;
  readonly #inbound: Inbound;
  /** What is being answered has met an error of which the client has not been told, and is run a second time. */
  #hasRunAgain = false;
  /** The backend has nothing to do, and is kept until the client has taken its answer. */
  #awaitsReader = false;

  constructor(client: Duplex, host: RelayHost, pins: Pins, parameters: ReadonlyMap<string, string>) {
    const statements = new ClientStatements(host.kept);
    const watch = new StatementWatch(host);
    this.#statements = statements;
    this.client = client;
    this.host = host;
    this.pins = pins;
    this.toClient = new Run(client);
    this.replies = new Replies(this, statements, watch, parameters);
    this.tenure = new Tenure(this);
    this.requests = new Requests(statements, host, this.replies.queue, watch, new StatementEffects(this), this.tenure.out);
    this.inFlight = new InFlight(this);
    this.ending = new Ending(this);
    this.#settling = new Settling(this);
    this.#inbound = new Inbound(this);
  }

  get status(): TransactionStatus {
    return this.replies.status;
  }

  /** When the oldest unanswered request was sent, or when the session last became idle; on performance.now()'s clock. */
  get since(): number {
    return this.replies.since;
  }

  get traffic(): { readonly bytesIn: number; readonly bytesOut: number } {
    return { bytesIn: this.#inbound.bytes, bytesOut: this.replies.bytesOut };
  }

  get statements(): number {
    return this.requests.counts.statements;
  }

  /** Replies are owed to the client, or it waits for a backend. */
  get busy(): boolean {
    return this.replies.queue.length > 0 || this.#inbound.isWaiting || this.replies.heldReady || this.tenure.isBehind;
  }

  /** The backend at hand, e.g. to be canceled. */
  get lease(): Lease | undefined {
    return this.tenure.isBehind ? undefined : this.tenure.lease;
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
    return this.ending.halfClosed;
  }

  /** As {@link Ending.byError}. */
  end(error: ServiceError): void {
    this.ending.byError(error);
  }

  /** As {@link Ending.byForce}. */
  terminate(error: ServiceError): void {
    this.ending.byForce(error);
  }

  /** As {@link Ending.atRest}. */
  endAtRest(error: ServiceError): void {
    this.ending.atRest(error);
  }

  /** As {@link Ending.abandon}. */
  abandon(): void {
    this.ending.abandon();
  }

  /** Cancels what the client is waiting for, be it an answer or a backend. Resolves when the server has taken the request. */
  async cancel(): Promise<void> {
    if (this.tenure.lease === undefined) this.#inbound.giveUp();
    else await this.tenure.cancels.send();
  }

  /** As {@link cancel}, of our own accord: what the client says meanwhile is not what has taken too long, and waits. */
  stop(): void {
    void this.tenure.keepBackUntil(this.cancel()).then(() => this.#inbound.goOn());
  }

  clientData(chunk: Buffer): void {
    this.#inbound.take(chunk);
  }

  clientDrained(): void {
    this.lastTakenAt = performance.now();
    this.host.held.toClient(0);
    this.tenure.backend?.resume();
    if (this.#awaitsReader && !this.busy) this.settleAgain();
  }

  clientEnded(): void {
    this.ending.halfClosed = true;
    if (!this.busy) this.ending.clientGone();
  }

  clientClosed(): void {
    this.ending.clientGone();
  }

  /**
   * The client knows nothing of what was prepared for it, and is not to hear that it does not fit any more; nor of others
   * that its backend was busy with, and of a cancel request that was meant for one of them.
   */
  canRunAgain(error: ErrorFields): boolean {
    if (!this.inFlight.isUntold) return false;
    // Once: a function can say the same.
    if (isTakenAway(error)) return !this.#hasRunAgain && (this.requests.usesRepeated || this.toClient.bytes === 0);
    return (this.requests.usesRepeated && isStalePlan(error)) || (this.tenure.isDisturbed && isCanceled(error));
  }

  /** The answer may yet be cut short by a cancel request that was meant for another: the beginning of a short one can wait. */
  get #keepsBack(): boolean {
    return this.tenure.isDisturbed && this.inFlight.isUntold && this.toClient.bytes <= MAX_KEPT_BACK_BYTES;
  }

  #runAgain(): void {
    const { bytes } = this.inFlight;
    this.replies.hiding = false;
    if (bytes !== undefined) this.#inbound.takeAgain(bytes);
  }

  /**
   * What was sent ahead, of which nothing has been answered, is held up where it is: it is sent again, elsewhere.
   * @param isCanceled the client has asked for it to be canceled
   */
  runElsewhere(isCanceled: boolean): void {
    if (this.ending.isOver) return;
    this.replies.queue.abandon();
    // What was answered for the server, and waited for its answers.
    this.toClient.clear();
    this.host.shared('set_aside');
    this.#runAgain();
    if (isCanceled) void this.cancel();
    this.#inbound.goOn();
  }

  /** Since when a request has been running, if others may have theirs run behind it in such company. */
  errandSince(company: Company): number | undefined {
    return this.pins.isShareable ? this.inFlight.errandSince(company) : undefined;
  }

  data(chunk: Buffer): void {
    const { shared, isFollowed } = this.tenure;
    let rest: Buffer | undefined;
    try {
      rest = this.replies.take(chunk, isFollowed);
    } catch (error) {
      if (!(error instanceof ServiceError)) this.host.failed(error);
      this.closed();
      return;
    }
    if (this.replies.queue.isUnclear) {
      this.ending.outOfStep();
      return;
    }
    if (this.replies.isInterrupted) this.#readOnSoon();
    this.tenure.cancels.sendIfDue();
    if (this.replies.queue.length === 0) this.#answered();
    else if (!this.ending.isOver && !this.#keepsBack) this.toClient.flushPart(!this.replies.betweenMessages);
    if (this.client.writableLength === 0) this.lastTakenAt = performance.now();
    else if (this.client.writableLength > HIGH_WATER_BYTES && !this.ending.isOver) this.lease?.backend.pause();
    // The chunk may be read into again; the next one's bytes are few.
    if (rest !== undefined && rest.length > 0) shared?.deliver(joined([rest], rest.length));
    if (this.tenure.shared === undefined) this.#inbound.goOn();
  }

  /** What the backend has said is much work: others get a turn. */
  #readOnSoon(): void {
    this.tenure.backend?.pause();
    setImmediate(() => {
      const { backend } = this.tenure;
      if (backend === undefined || !this.replies.isInterrupted) return;
      if (this.client.writableLength <= HIGH_WATER_BYTES) backend.resume();
      this.data(NOTHING);
    });
  }

  /** All that was asked has been answered. */
  #answered(): void {
    const again = this.replies.hiding;
    this.#hasRunAgain = again;
    if (!this.ending.isOver) this.inFlight.answered(again);
    const { isAsked: cancelAsked } = this.tenure.cancels;
    const isDone = again || this.ending.isOver;
    if (this.tenure.shared !== undefined) {
      if (again && !this.ending.isOver) this.host.shared('set_aside');
      // Where there is more to find out, others' backend is not the place for it.
      if (!isDone && this.pins.holdsState) this.tenure.lend();
      else if (isDone || this.tenure.isFollowed) this.tenure.passOn();
    }
    if (this.ending.isOver || this.tenure.isBehind) return;
    if (again) {
      this.#runAgain();
      // Too late for what was canceled on behalf of others, and meant for what is run now.
      if (cancelAsked) void this.cancel();
    } else if (!this.ending.answered()) {
      if (this.tenure.lease === undefined) this.#passedOn();
      else this.settle();
    }
  }

  /** What was asked has been answered, and so have others since, behind it: the backend is at hand again, for this client alone. */
  gotBack(): void {
    this.#answered();
    this.#inbound.goOn();
  }

  /** The backend is another's already. */
  #passedOn(): void {
    this.inFlight.end();
    this.toClient.flush();
    this.ending.rested(this.#inbound.hasMore);
  }

  /** Nothing is owed. Others get the backend before the client gets its answer: they wait for it to work, not to read. */
  settle(): void {
    this.#settleBackend();
    this.toClient.flush();
  }

  /** The same, later: the client may have said more meanwhile. */
  settleAgain(): void {
    this.settle();
    this.#inbound.goOn();
  }

  /** Finds out what the session holds, gives the backend back, or keeps it. */
  #settleBackend(): void {
    if (this.tenure.lease === undefined || this.ending.isOver || !this.#isIdle) return;
    if (!this.#settling.isDone()) return;
    this.pins.restores = false;
    this.pins.unsettled = false;
    this.inFlight.end();
    this.replies.restored();
    if (this.ending.rested(this.#inbound.hasMore) || this.tenure.isPinned() || !this.#mayWaitForReader()) return;
    this.tenure.end();
    this.#inbound.listen();
  }

  /** Whether there is room for what the client has not taken: a backend that is kept says no more, so that it is never much. */
  #mayWaitForReader(): boolean {
    this.#awaitsReader = false;
    if (this.unsent + this.toClient.bytes <= SMALL_BYTES) return true;
    this.toClient.flush();
    const { held } = this.host;
    this.#awaitsReader = this.unsent > SMALL_BYTES && !held.mayGrow(this.unsent);
    if (!this.#awaitsReader) held.toClient(this.unsent);
    return !this.#awaitsReader;
  }

  /** Nothing is owed, no transaction is open, and nothing has begun. */
  get #isIdle(): boolean {
    return this.ending.isAtRest && this.#inbound.betweenMessages;
  }

  drain(): void {
    this.#inbound.drained();
  }

  closed(): void {
    while (this.replies.isInterrupted && this.tenure.lease !== undefined) this.data(NOTHING);
    this.tenure.lost();
    this.ending.backendLost();
  }

  /**
   * Gives back all that has been borrowed.
   * @param disobeyed what the backend runs does not end when it is canceled
   */
  async giveBack(disobeyed: boolean): Promise<void> {
    this.#inbound.giveUp();
    // What still comes of a shared backend's answer is nobody's.
    this.replies.hiding = true;
    this.#statements.end();
    this.host.held.end();
    if (this.tenure.lease === undefined) this.tenure.cancelReservation();
    else await this.tenure.giveUp(this.#isIdle, disobeyed);
  }
}
