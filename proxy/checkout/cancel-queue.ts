import type { ReplyQueue } from '../../src/backend/reply-queue.ts';
import type { SharedPipeline } from '../../src/multiplex/shared-pipeline.ts';
import type { Slot } from '../../src/multiplex/slot.ts';
import type { Lease } from '../../src/router/lease.ts';

/** Where a session's requests run at the moment. */
interface Place extends Slot {
  readonly lease: Lease | undefined;
  /** Where others' requests are in the backend's pipeline too. */
  readonly shared: SharedPipeline | undefined;
}

/** Waits until it can be sent; all that come meanwhile are one. */
interface DueCancel {
  /** The batch of requests that it is meant for. */
  readonly batch: number;
  /** Resolves when it has arrived, or what it was for is over. */
  readonly settled: Promise<void>;
  readonly settle: () => void;
}

/**
 * A session's cancel requests: each is sent when it meets what it is meant for, and one at a time. Its sender goes on as soon
 * as it is told that it has arrived: so it is not told before, unless nothing is left to cancel; else what it asks next would
 * be hit.
 */
export class CancelQueue {
  readonly #place: Place;
  readonly #replies: ReplyQueue;
  #underWay: Promise<void> | undefined;
  #due: DueCancel | undefined;
  #isAsked = false;

  constructor(place: Place, replies: ReplyQueue) {
    this.#place = place;
    this.#replies = replies;
  }

  /** Resolves when the one that is on its way to the backend at hand has arrived. */
  get underWay(): Promise<void> | undefined {
    return this.#underWay;
  }

  /** The client itself wants what runs in a shared pipeline to be canceled. */
  get isAsked(): boolean {
    return this.#isAsked;
  }

  /** Cancels what the backend runs for the client. Resolves when the server has taken the request, or nothing is left to cancel. */
  async send(): Promise<void> {
    const { lease, shared } = this.#place;
    if (lease === undefined || this.#replies.onlyOurs) return;
    if (shared !== undefined) this.#isAsked = true;
    if (this.#mustWait) await this.#whenDue();
    else if (shared !== undefined) await shared.cancel(this.#place);
    else await this.#sendTo(lease);
  }

  /** Others' requests, or one of ours, are ahead of the client's own, or the one before it may yet arrive and be enough. */
  get #mustWait(): boolean {
    const { shared } = this.#place;
    if (shared !== undefined) return !shared.isActive(this.#place);
    return this.#underWay !== undefined || this.#replies.answeringOurs;
  }

  #whenDue(): Promise<void> {
    if (this.#due === undefined) {
      let settle = () => {};
      const settled = new Promise<void>((resolve) => {
        settle = resolve;
      });
      this.#due = { batch: this.#replies.oldestBatch, settled, settle };
    }
    return this.#due.settled;
  }

  async #sendTo(lease: Lease): Promise<void> {
    const underWay = lease.cancel();
    this.#underWay = underWay;
    await underWay;
    // By now it may be another backend that is being canceled.
    if (this.#underWay === underWay) this.#underWay = undefined;
    this.sendIfDue();
  }

  /** Sends the one that waits, once nothing is in its way any more and what it was for is not over. */
  sendIfDue(): void {
    const due = this.#due;
    if (due === undefined) return;
    const isOver = this.#isOver(due);
    if (!isOver && this.#mustWait) return;
    this.#due = undefined;
    if (isOver) due.settle();
    else void this.send().then(due.settle);
  }

  /** A COPY ignores the Sync that ends its batch in our count, and goes on. */
  #isOver({ batch }: DueCancel): boolean {
    const replies = this.#replies;
    return replies.onlyOurs || (replies.oldestBatch !== batch && !replies.copyIn);
  }

  /** The backend goes to somebody else. @returns what it has to wait for */
  letGo(): Promise<void> | undefined {
    const underWay = this.#underWay;
    this.#underWay = undefined;
    return underWay;
  }

  /** The request that they were for is over. */
  forget(): void {
    this.#due?.settle();
    this.#due = undefined;
    this.#isAsked = false;
  }

  /** The backend is the client's alone again. */
  isAlone(): void {
    this.#isAsked = false;
  }
}
