import type { LatencyBaseline } from '../../backend/latency.ts';
import type { ServiceError } from '../../errors.ts';
import { YOUNG_MS } from '../../multiplex/shareable-sql.ts';
import type { TransactionStatus } from '../../protocol/backend.ts';
import type { Lease } from '../../router/lease.ts';
import type { Edit } from '../../router/schema-rewriting/edits/edits.ts';
import type { Indexed } from '../../runtime/indexed-set.ts';
import type { MemoryReservation } from '../../runtime/memory-budget.ts';
import { Deadline } from '../session/deadline.ts';
import { Pipeline, type Replies, type Settle } from '../session/pipeline.ts';
import { RewrittenSql } from '../session/rewritten-sql.ts';
import { Session, type SessionOptions } from '../session/session.ts';
import type { SideEffects } from '../session/side-effects.ts';
import type { RunHost } from './run-prepared.ts';

/**
 * Quick reads of one organization that use one backend, one behind the other, without waiting for those ahead to be
 * answered. Nothing watches over them, for they take no time; one that does take its time gets a session of its own, with
 * all that it needs to be stopped, and the others are run elsewhere, which harms nobody as they only read. The same goes for
 * one that changes how the session answers, by a function that a view calls: Postgres tells of that ahead of ReadyForQuery.
 */
export class SharedPipeline implements Indexed {
  index = -1;
  readonly lease: Lease;
  /** How many have ever been in it. */
  entered = 0;
  /** When the turn of the one ahead of all began. */
  slotStartedAt = performance.now();
  readonly #pipeline: Pipeline;
  readonly #placed: RewrittenSql;
  readonly #slots: Slot[] = [];
  readonly #baseline: LatencyBaseline;
  readonly #stallDeadline: Deadline;
  readonly #closed: (pipeline: SharedPipeline) => void;
  #isOpen = true;
  #isLost = false;

  /** @param closed called when nobody can get on any more */
  constructor(lease: Lease, baseline: LatencyBaseline, closed: (pipeline: SharedPipeline) => void) {
    this.lease = lease;
    this.#baseline = baseline;
    this.#stallDeadline = new Deadline(this.#baseline.stallTimeoutMs, () => this.#checkStall());
    this.#pipeline = new Pipeline(
      lease.backend,
      lease,
      (reason) => this.#slots[0]?.abort(reason),
      () => this.#slots[0]?.takeOver(),
    );
    this.#placed = new RewrittenSql(lease.tenant);
    this.#closed = closed;
  }

  /** How many have not been answered. */
  get load(): number {
    return this.#slots.length;
  }

  get status(): TransactionStatus {
    return this.#pipeline.status;
  }

  isOpen(now: number): boolean {
    return this.#isOpen && now - this.slotStartedAt < YOUNG_MS && this.#isFitForOthers;
  }

  /** Its session is as it was, and as new ones are. */
  get #isFitForOthers(): boolean {
    return !this.#pipeline.hasChangedSettings && !this.lease.backend.session.retired;
  }

  send(slot: Slot, messages: readonly Uint8Array[], replies: Replies, edits: readonly Edit[], settle: Settle): void {
    this.#slots.push(slot);
    this.entered += 1;
    this.#pipeline.send(messages, replies, 'ready', (ended) => {
      // Of the one that was running nobody knows how it ended; those behind it have not begun.
      if (this.#isLost) slot.requeue();
      else settle(this.#placed.ended(ended, edits));
    });
  }

  /** The first one has been answered, or one could not even be sent. */
  leave(slot: Slot): void {
    const isFirst = this.#slots[0] === slot;
    if (isFirst) this.#slots.shift();
    if (this.#pipeline.isDead) this.#lose();
    else if (this.#slots.length === 0) this.#release();
    else if (isFirst) this.#nextSlot();
  }

  #nextSlot(): void {
    this.slotStartedAt = performance.now();
    this.#stallDeadline.restart(this.slotStartedAt + this.#baseline.stallTimeoutMs);
  }

  #release(): void {
    this.#close();
    void this.lease.release(!this.#pipeline.hasChangedSettings);
  }

  /** @returns a session for the first one, which has the backend to itself from now on */
  handOver(options: SessionOptions, sideEffects: SideEffects | undefined): Session {
    this.#close();
    this.#pipeline.disregardOthers();
    const session = new Session(this.lease, options, this.#pipeline);
    if (sideEffects !== undefined) void session.expect(sideEffects);
    for (const slot of this.#slots.splice(1)) slot.requeue();
    return session;
  }

  #lose(): void {
    this.#isLost = true;
    this.#close();
    this.lease.destroy();
  }

  #close(): void {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    this.#stallDeadline.clear();
    this.#closed(this);
  }

  /** The first one takes its time, as soon as it is sure that no answer lies there unread. */
  #checkStall(): void {
    const [slot] = this.#slots;
    setImmediate(() => {
      if (this.#isOpen && this.#slots[0] === slot) slot?.takeOver();
    });
  }
}

/** One statement's requests in a {@link SharedPipeline}. */
export class Slot implements RunHost {
  readonly isAlone = false;
  readonly requeue: () => void;
  readonly #pipeline: SharedPipeline;
  readonly #options: SessionOptions;
  readonly #wasFirst: boolean;
  #sideEffects: SideEffects | undefined;
  /** Where it has taken its time. */
  #session: Session | undefined;

  /** @param stepAside has the statement run elsewhere; how it ends here is of no interest then */
  constructor(pipeline: SharedPipeline, options: SessionOptions, stepAside: () => void) {
    this.#pipeline = pipeline;
    this.#options = options;
    this.#wasFirst = pipeline.load === 0;
    this.requeue = stepAside;
  }

  get status(): TransactionStatus {
    return this.#pipeline.status;
  }

  get abortReason(): ServiceError | undefined {
    return this.#session?.abortReason;
  }

  get slotStartedAt(): number | undefined {
    return this.#wasFirst ? undefined : this.#pipeline.slotStartedAt;
  }

  expect(sideEffects: SideEffects): void {
    this.#sideEffects = sideEffects;
  }

  send(messages: readonly Uint8Array[], replies: Replies, edits: readonly Edit[], settle: Settle): void {
    this.#pipeline.send(this, messages, replies, edits, settle);
  }

  share(): MemoryReservation {
    return this.#pipeline.lease.share();
  }

  pause(): void {
    this.takeOver().pause();
  }

  resume(): void {
    this.#session?.resume();
  }

  abort(reason: ServiceError): void {
    this.takeOver().abort(reason);
  }

  /** For one whose answer is due: from now on it has the backend to itself, and is watched over. */
  takeOver(): Session {
    this.#session ??= this.#pipeline.handOver(this.#options, this.#sideEffects);
    return this.#session;
  }

  /** What those have left who went elsewhere is nothing to wait for. */
  end(): Promise<void> {
    if (this.#session === undefined) this.#pipeline.leave(this);
    else void this.#session.end();
    return DONE;
  }
}

const DONE = Promise.resolve();
