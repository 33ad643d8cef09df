import type { Lease } from '../src/router/lease.ts';
import type { Relay } from './relay.ts';
import type { SharedPipeline, Turn } from './shared-pipeline.ts';

/** Where a session's requests run at the moment. */
interface Place extends Turn {
  readonly lease: Lease | undefined;
  /** Where others' requests are in the backend's pipeline too. */
  readonly shared: SharedPipeline | undefined;
}

/** A session's cancel requests: each is sent when it meets what it is meant for, and one at a time. */
export class Cancels {
  readonly #place: Place;
  readonly #replies: Relay['replies'];
  #underWay: Promise<void> | undefined;
  /** One is to be sent as soon as the backend is at work for the client itself. */
  #isDue = false;
  #isAsked = false;

  constructor(place: Place, replies: Relay['replies']) {
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

  /** Cancels what the backend runs for the client. Resolves when the server has taken the request. */
  async send(): Promise<void> {
    const { lease, shared } = this.#place;
    const { queue } = this.#replies;
    if (lease === undefined || queue.length === 0) return;
    if (shared !== undefined) {
      this.#isAsked = true;
      if (shared.isTurnOf(this.#place)) await shared.cancel(this.#place);
      else this.#isDue = true;
      return;
    }
    // A request of ours is running: the client's own is behind it.
    if (queue.answeringOurs && this.#underWay === undefined) {
      this.#isDue = true;
      return;
    }
    this.#underWay ??= lease.cancel();
    const underWay = this.#underWay;
    await underWay;
    // By now it may be another backend that is being canceled.
    if (this.#underWay === underWay) this.#underWay = undefined;
  }

  /** Once the server answers the client's own request again, and not one of ours ahead of it. */
  sendIfDue(): void {
    if (!this.#isDue || this.#replies.queue.answeringOurs) return;
    this.#isDue = false;
    void this.send();
  }

  /** The backend goes to somebody else. @returns what it has to wait for */
  letGo(): Promise<void> | undefined {
    const underWay = this.#underWay;
    this.#underWay = undefined;
    return underWay;
  }

  /** The request that they were for is over. */
  forget(): void {
    this.#isDue = false;
    this.#isAsked = false;
  }

  /** The backend is the client's alone again. */
  isAlone(): void {
    this.#isAsked = false;
  }
}
