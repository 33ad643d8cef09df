import type { ReplyQueue } from '../../src/backend/reply-queue.ts';
import type { SharedPipeline, Slot } from '../../src/multiplex/multiplexer.ts';
import type { Lease } from '../../src/router/lease.ts';

/** Where the session's requests run at the moment. */
interface CancelTarget extends Slot {
  readonly lease: Lease | undefined;
  /** The shared pipeline, if other clients have requests on the backend. */
  readonly shared: SharedPipeline | undefined;
}

/** A cancel request that waits until it can be sent. Further ones that arrive meanwhile are merged into it. */
interface DueCancel {
  /** The batch of requests that it is meant for. */
  readonly batch: number;
  /** Resolves when the server has the cancel request, or when the requests that it was meant for have ended. */
  readonly settled: Promise<void>;
  readonly settle: () => void;
}

/**
 * A session's cancel requests. Each is sent when the server runs the request that it is meant for, and one at a time. A client
 * may send its next request as soon as its cancel connection is closed. So that is not closed before the server has the cancel
 * request, which would otherwise hit the next request.
 * @see https://www.postgresql.org/docs/current/protocol-flow.html#PROTOCOL-FLOW-CANCELING-REQUESTS
 */
export class CancelQueue {
  readonly #target: CancelTarget;
  readonly #replies: ReplyQueue;
  /** Resolves when the cancel request that has been sent for this backend has arrived. */
  underWay: Promise<void> | undefined;
  /** The cancel request that waits. */
  due: DueCancel | undefined;
  /** The client itself has asked to cancel its request in a shared pipeline. */
  isAsked = false;

  constructor(target: CancelTarget, replies: ReplyQueue) {
    this.#target = target;
    this.#replies = replies;
  }

  /** See {@link BackendLink.cancel}. */
  async send(): Promise<void> {
    const { lease, shared } = this.#target;
    if (lease === undefined || this.#replies.onlyOurs) return;
    if (shared !== undefined) this.isAsked = true;
    if (this.#mustWait) await this.#whenDue();
    else if (shared !== undefined) await shared.cancel(this.#target);
    else await this.#sendTo(lease);
  }

  /** Another request is ahead of the client's, or an earlier cancel request is on its way and may be enough. */
  get #mustWait(): boolean {
    const { shared } = this.#target;
    if (shared !== undefined) return !shared.isActive(this.#target);
    return this.underWay !== undefined || this.#replies.answeringOurs;
  }

  #whenDue(): Promise<void> {
    if (this.due === undefined) {
      let settle = () => {};
      const settled = new Promise<void>((resolve) => {
        settle = resolve;
      });
      this.due = { batch: this.#replies.oldestBatch, settled, settle };
    }
    return this.due.settled;
  }

  async #sendTo(lease: Lease): Promise<void> {
    const underWay = lease.cancel();
    this.underWay = underWay;
    await underWay;
    // The session may have another backend by now, with another cancel request on its way.
    if (this.underWay === underWay) this.underWay = undefined;
    this.sendIfDue();
  }

  /** Sends the cancel request that waits, if it has to wait no longer. Drops it if its requests have ended. */
  sendIfDue(): void {
    const due = this.due;
    if (due === undefined) return;
    const isOver = this.#isOver(due);
    if (!isOver && this.#mustWait) return;
    this.due = undefined;
    if (isOver) due.settle();
    else void this.send().then(due.settle);
  }

  /** COPY FROM STDIN ignores a Sync, which the reply queue counts as the end of the batch. */
  #isOver({ batch }: DueCancel): boolean {
    const replies = this.#replies;
    return replies.onlyOurs || (replies.oldestBatch !== batch && !replies.copyIn);
  }

  /** The backend is given back. @returns resolves when the cancel request has arrived: no other session may get the backend before */
  takeUnderWay(): Promise<void> | undefined {
    const { underWay } = this;
    this.underWay = undefined;
    return underWay;
  }

  /** The requests that the cancel requests were meant for have ended. */
  forget(): void {
    this.due?.settle();
    this.due = undefined;
    this.isAsked = false;
  }

  /** The backend runs only this client's requests again. */
  isAlone(): void {
    this.isAsked = false;
  }
}
