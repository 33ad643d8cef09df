import type { Settings } from '../src/backend/session-state.ts';
import type { SharingLimits } from '../src/sql/sharing-rules.ts';
import type { Errand } from './errand.ts';
import { Paces } from './paces.ts';
import type { SharedPipeline } from './shared-pipeline.ts';

/**
 * What is shared: where all backends are busy, anything short; where there are enough at work, what is quick, so that those
 * that work need not take turns with more.
 */
export type Company = 'short' | 'quick';

/** Who has a backend, and may have others on it. */
export interface Sharer {
  /** Its backend has something to do, and is not only kept. */
  readonly isAtWork: boolean;
  /** How many requests are in its backend's pipeline. */
  readonly load: number;
  /** Whether one more might get on now. */
  hasRoom(now: number): boolean;
  /** @returns where to get on, if it is possible now, with an errand that runs with certain settings */
  share(errand: Errand, settings: Settings, now: number, company: Company): SharedPipeline | undefined;
}

/** A client whose errand waits for a backend. */
export interface Waiting {
  /** @returns whether it has got on with that one */
  join(sharer: Sharer, now: number): boolean;
}

/** So many of those that have got their backend last are asked. */
const ASKED = 8;
/** So many of those that have waited longest are asked whether they come along. */
const INVITED = 8;
/** It is crowded as long as somebody has found all backends, or enough of them, busy within this time. */
const CROWDED_MS = 1_000;

/** What the wire sessions of one organization do about having to share backends. */
export class Sharing {
  readonly depth: number;
  readonly paces = new Paces();
  /** Those that have a backend, in the order in which they got it. */
  readonly #sharers: Sharer[] = [];
  /** First come, first served. */
  readonly #waiting: Waiting[] = [];
  readonly #spread: number;
  #crowdedAt = Number.NEGATIVE_INFINITY;

  constructor({ depth, spread }: SharingLimits) {
    this.depth = depth;
    this.#spread = spread;
  }

  /** Enough backends are at work. */
  get isSpread(): boolean {
    let atWork = 0;
    for (let i = this.#sharers.length - 1; i >= 0 && atWork < this.#spread; i -= 1) if (this.#sharers[i]?.isAtWork) atWork += 1;
    return atWork >= this.#spread;
  }

  /** Whether it is worth looking at how long statements take. */
  isCrowded(now: number): boolean {
    return this.depth > 1 && now - this.#crowdedAt < CROWDED_MS;
  }

  /** @returns where an errand may get on; where there are several, with the fewest others */
  find(errand: Errand, settings: Settings, now: number, company: Company): SharedPipeline | undefined {
    const sharers = this.#sharers;
    let load = 0;
    let shared: SharedPipeline | undefined;
    for (let i = sharers.length - 1; i >= Math.max(0, sharers.length - ASKED); i -= 1) {
      const sharer = sharers[i];
      if (sharer === undefined || (shared !== undefined && sharer.load >= load)) continue;
      const found = sharer.share(errand, settings, now, company);
      if (found === undefined) continue;
      shared = found;
      ({ load } = sharer);
    }
    return shared;
  }

  /** Has waiting clients come along with one that has just got its backend, as many as there is room for. */
  invite(sharer: Sharer, now: number): void {
    for (const waiting of this.#waiting.slice(0, INVITED)) {
      if (!sharer.hasRoom(now)) return;
      if (waiting.join(sharer, now)) this.stopWaiting(waiting);
    }
  }

  wait(waiting: Waiting): void {
    if (this.depth > 1) this.#waiting.push(waiting);
  }

  stopWaiting(waiting: Waiting): void {
    remove(this.#waiting, this.#waiting.indexOf(waiting));
  }

  crowded(now: number): void {
    this.#crowdedAt = now;
  }

  add(sharer: Sharer): void {
    if (this.depth > 1) this.#sharers.push(sharer);
  }

  delete(sharer: Sharer): void {
    remove(this.#sharers, this.#sharers.lastIndexOf(sharer));
  }
}

function remove<T>(from: T[], at: number): void {
  if (at < 0) return;
  if (at === from.length - 1) from.pop();
  else from.splice(at, 1);
}
