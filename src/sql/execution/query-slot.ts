import type { BackendConnection } from '../../backend/connection.ts';
import type { ServiceError } from '../../errors.ts';
import {
  type Multiplexer,
  mayTake,
  type ShareableRequest,
  type SharedBackend,
  type SharedPipeline,
  type ShareMode,
  type Slot,
} from '../../multiplex/multiplexer.ts';
import type { TransactionStatus } from '../../protocol/backend.ts';
import type { Tenant } from '../../router/lease.ts';
import type { MemoryReservation } from '../../runtime/memory-budget.ts';
import type { Edits } from '../../syntax/edits.ts';
import { Pipeline } from '../session/pipeline.ts';
import type { Replies, Settle } from '../session/replies-and-completion.ts';
import { SessionRewriter } from '../session/session-rewriter.ts';
import { type SessionLease, type SessionOptions, SqlSession } from '../session/sql-session.ts';
import type { RunHost } from './run-prepared.ts';

/**
 * One quick statement in a shared pipeline. It has no deadline and cannot be aborted, because it takes next to no time. If the statement
 * or its reader turns out to be slow, a session is opened, which has both; the slot is that session's lease.
 */
export class QuerySlot implements Slot, SharedBackend, RunHost, SessionLease {
  readonly isAlone = false;
  readonly canRunAgain = false;
  readonly isAtWork = true;
  /** The organization that sent the statement. */
  readonly tenant: Tenant;
  readonly receiver: Pipeline;
  slotStartedAt: number | undefined;
  readonly #shared: SharedPipeline;
  readonly #multiplexer: Multiplexer;
  readonly #options: SessionOptions;
  readonly #requeued: () => void;
  #session: SqlSession | undefined;
  #hasEntered = false;
  #isOver = false;

  /** @param requeued runs the statement elsewhere; the slot ignores what happens afterwards */
  constructor(tenant: Tenant, shared: SharedPipeline, multiplexer: Multiplexer, options: SessionOptions, requeued: () => void) {
    this.tenant = tenant;
    this.#shared = shared;
    this.#multiplexer = multiplexer;
    this.#options = options;
    this.#requeued = requeued;
    this.receiver = new Pipeline(shared.lease.backend, shared.lease, this);
  }

  get backend(): BackendConnection {
    return this.#shared.lease.backend;
  }

  get status(): TransactionStatus {
    return this.receiver.status;
  }

  get abortReason(): ServiceError | undefined {
    return this.#session?.abortReason;
  }

  get load(): number {
    return this.#shared.length;
  }

  get entered(): number {
    return this.#shared.entered;
  }

  /** Does nothing, because quick statements leave no state. */
  expect(): void {}

  send(messages: readonly Uint8Array[], replies: Replies, edits: Edits, settle: Settle): void {
    const rewritten = new SessionRewriter(this.tenant);
    const isFirst = this.#shared.length === 0;
    this.receiver.sendAmongOthers(messages, replies, isFirst, (ended) => settle(rewritten.outcome(ended, edits)));
    this.#hasEntered = true;
    this.#shared.enter(this);
  }

  slotStarted(now: number): void {
    // The first slot has none ahead of it, so its statement has been running since it was sent.
    if (this.#shared.entered > 1) this.slotStartedAt = now;
    this.#multiplexer.add(this);
  }

  pipelineFor(request: ShareableRequest, now: number, mode: ShareMode): SharedPipeline | undefined {
    return mode === 'quick' && this.#shared.isOpen(now) && mayTake(this.backend, request) ? this.#shared : undefined;
  }

  /** Requeues the requests behind this one, because they run with settings that are not theirs. */
  settingsChanged(): void {
    this.#shared.evictQueued();
  }

  stalled(): void {
    this.#ensureSession();
  }

  requeue(): boolean {
    this.#isOver = true;
    this.#requeued();
    return true;
  }

  takeOver(): void {}

  reservation(): MemoryReservation {
    return this.#shared.lease.reservation();
  }

  pause(): void {
    this.#ensureSession().pause();
  }

  resume(): void {
    this.#session?.resume();
  }

  abort(reason: ServiceError): void {
    this.#ensureSession().abort(reason);
  }

  /** Makes it possible to abort the statement, and requeues those behind it, so that they do not wait. */
  #ensureSession(): SqlSession {
    if (this.#session === undefined) {
      this.#shared.evictQueued();
      this.#session = new SqlSession(this, this.#options, this.receiver);
    }
    return this.#session;
  }

  /** Frees the slot: the statement has been answered, or could not be sent. */
  end(): Promise<void> {
    void this.#session?.end();
    this.#leave();
    return DONE;
  }

  async cancel(): Promise<void> {
    if (!this.#isOver) await this.#shared.cancel(this);
  }

  release(): Promise<void> {
    this.#leave();
    return DONE;
  }

  destroy(): void {
    this.#leave();
  }

  terminate(): void {
    if (!this.#isOver) this.#shared.lost(true);
  }

  retireSessions(): void {
    this.#shared.lease.retireSessions();
  }

  /** Has an effect only once, because the backend belongs to another slot afterwards. */
  #leave(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#multiplexer.delete(this);
    if (!this.#hasEntered) return;
    const { isDead, hasChangedSettings } = this.receiver;
    if (isDead) this.#shared.lost(false);
    else this.#shared.next(!hasChangedSettings, this.receiver.takeRest());
  }
}

const DONE = Promise.resolve();
