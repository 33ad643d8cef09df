import type { LatencyBaseline } from '../backend/latency.ts';
import type { ServiceError } from '../errors.ts';
import type { TransactionStatus } from '../protocol/backend.ts';
import type { Lease } from '../router/lease.ts';
import type { Edit } from '../router/search-path/edits.ts';
import type { Indexed } from '../runtime/indexed-set.ts';
import type { MemoryReservation } from '../runtime/memory-budget.ts';
import { Deadline } from './deadline.ts';
import type { Footprint } from './footprint.ts';
import { Pipeline, type Replies, type Settle } from './pipeline.ts';
import { PlacedText } from './placed-text.ts';
import type { RunHost } from './prepared-run.ts';
import { Session, type SessionOptions } from './session.ts';
import { YOUNG_MS } from './sharing-rules.ts';

/**
 * Quick reads of one organization that use one backend, one behind the other, without waiting for those ahead to be
 * answered. Nothing watches over them, for they take no time; one that does take its time gets a session of its own, with
 * all that it needs to be stopped, and the others are run elsewhere, which harms nobody as they only read. The same goes for
 * one that changes how the session answers, by a function that a view calls: Postgres tells of that ahead of ReadyForQuery.
 */
export class Company implements Indexed {
  index = -1;
  readonly lease: Lease;
  /** How many have ever been in it. */
  seated = 0;
  /** When the turn of the one ahead of all began. */
  turnBeganAt = performance.now();
  readonly #pipeline: Pipeline;
  readonly #placed: PlacedText;
  readonly #seats: Seat[] = [];
  readonly #tempo: LatencyBaseline;
  readonly #patience: Deadline;
  readonly #closed: (company: Company) => void;
  #isOpen = true;
  #isLost = false;

  /** @param closed called when nobody can get on any more */
  constructor(lease: Lease, tempo: LatencyBaseline, closed: (company: Company) => void) {
    this.lease = lease;
    this.#tempo = tempo;
    this.#patience = new Deadline(this.#tempo.stallTimeoutMs, () => this.#lookAgain());
    this.#pipeline = new Pipeline(
      lease.backend,
      lease,
      (reason) => this.#seats[0]?.abort(reason),
      () => this.#seats[0]?.takeOver(),
    );
    this.#placed = new PlacedText(lease.tenant);
    this.#closed = closed;
  }

  /** How many have not been answered. */
  get load(): number {
    return this.#seats.length;
  }

  get status(): TransactionStatus {
    return this.#pipeline.status;
  }

  isOpen(now: number): boolean {
    return this.#isOpen && now - this.turnBeganAt < YOUNG_MS && this.#isFitForOthers;
  }

  /** Its session is as it was, and as new ones are. */
  get #isFitForOthers(): boolean {
    return !this.#pipeline.hasChangedSettings && !this.lease.backend.session.retired;
  }

  send(seat: Seat, messages: readonly Uint8Array[], replies: Replies, edits: readonly Edit[], settle: Settle): void {
    this.#seats.push(seat);
    this.seated += 1;
    this.#pipeline.send(messages, replies, 'ready', (ended) => {
      // Of the one that was running nobody knows how it ended; those behind it have not begun.
      if (this.#isLost) seat.stepAside();
      else settle(this.#placed.ended(ended, edits));
    });
  }

  /** The first one has been answered, or one could not even be sent. */
  leave(seat: Seat): void {
    const isFirst = this.#seats[0] === seat;
    if (isFirst) this.#seats.shift();
    if (this.#pipeline.isDead) this.#lose();
    else if (this.#seats.length === 0) this.#giveBack();
    else if (isFirst) this.#nextTurn();
  }

  #nextTurn(): void {
    this.turnBeganAt = performance.now();
    this.#patience.restart(this.turnBeganAt + this.#tempo.stallTimeoutMs);
  }

  #giveBack(): void {
    this.#close();
    void this.lease.release(!this.#pipeline.hasChangedSettings);
  }

  /** @returns a session for the first one, which has the backend to itself from now on */
  dissolve(options: SessionOptions, footprint: Footprint | undefined): Session {
    this.#close();
    this.#pipeline.disregardOthers();
    const session = new Session(this.lease, options, this.#pipeline);
    if (footprint !== undefined) void session.expect(footprint);
    for (const seat of this.#seats.splice(1)) seat.stepAside();
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
    this.#patience.clear();
    this.#closed(this);
  }

  /** The first one takes its time, as soon as it is sure that no answer lies there unread. */
  #lookAgain(): void {
    const [seat] = this.#seats;
    setImmediate(() => {
      if (this.#isOpen && this.#seats[0] === seat) seat?.takeOver();
    });
  }
}

/** A statement's place in a company. */
export class Seat implements RunHost {
  readonly isAlone = false;
  readonly stepAside: () => void;
  readonly #company: Company;
  readonly #options: SessionOptions;
  readonly #wasFirst: boolean;
  #footprint: Footprint | undefined;
  /** Where it has taken its time. */
  #session: Session | undefined;

  /** @param stepAside has the statement run elsewhere; how it ends here is of no interest then */
  constructor(company: Company, options: SessionOptions, stepAside: () => void) {
    this.#company = company;
    this.#options = options;
    this.#wasFirst = company.load === 0;
    this.stepAside = stepAside;
  }

  get status(): TransactionStatus {
    return this.#company.status;
  }

  get abortReason(): ServiceError | undefined {
    return this.#session?.abortReason;
  }

  get turnBeganAt(): number | undefined {
    return this.#wasFirst ? undefined : this.#company.turnBeganAt;
  }

  expect(footprint: Footprint): void {
    this.#footprint = footprint;
  }

  send(messages: readonly Uint8Array[], replies: Replies, edits: readonly Edit[], settle: Settle): void {
    this.#company.send(this, messages, replies, edits, settle);
  }

  share(): MemoryReservation {
    return this.#company.lease.share();
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
    this.#session ??= this.#company.dissolve(this.#options, this.#footprint);
    return this.#session;
  }

  /** What those have left who went elsewhere is nothing to wait for. */
  end(): Promise<void> {
    if (this.#session === undefined) this.#company.leave(this);
    else void this.#session.end();
    return DONE;
  }
}

const DONE = Promise.resolve();
