import type { Settings } from '../../src/backend/session-state.ts';
import type { SharingLimits } from '../../src/multiplex/shareable-sql.ts';
import { LatencyTable } from './latency-table.ts';
import type { ShareableRequest } from './shareable-request.ts';
import type { SharedPipeline } from './shared-pipeline.ts';

/**
 * What is shared: where all backends are busy, anything short; where there are enough at work, what is quick, so that those
 * that work need not take turns with more.
 */
export type ShareMode = 'short' | 'quick';

/** Who has a backend, and may have others on it. */
export interface SharedBackend {
  /** Its backend has something to do, and is not only kept. */
  readonly isAtWork: boolean;
  /** How many requests are in its backend's pipeline. */
  readonly load: number;
  /** Whether one more might get on now. */
  hasRoom(now: number): boolean;
  /** @returns where to get on, if it is possible now, for a request that runs with these settings */
  share(request: ShareableRequest, settings: Settings, now: number, mode: ShareMode): SharedPipeline | undefined;
}

/** A client whose request waits for a backend. */
export interface WaitingClient {
  /** @returns whether it has got on with that one */
  join(backend: SharedBackend, now: number): boolean;
}

/** So many of those that have got their backend last are asked. */
const ASKED_MAX = 8;
/** So many of those that have waited longest are asked whether they come along. */
const ADMITTED_MAX = 8;
/** Backends are contended as long as a session has found all of them, or enough of them, busy within this time. */
const CONTENDED_MS = 1_000;

/** What the wire sessions of one organization do about having to share backends. */
export class Multiplexer {
  readonly depth: number;
  readonly latencies = new LatencyTable();
  /** Those that have a backend, in the order in which they got it. */
  readonly #backends: SharedBackend[] = [];
  /** First come, first served. */
  readonly #waiting: WaitingClient[] = [];
  readonly #spread: number;
  #contendedAt = Number.NEGATIVE_INFINITY;

  constructor({ depth, spread }: SharingLimits) {
    this.depth = depth;
    this.#spread = spread;
  }

  /** Enough backends are at work. */
  get isSpread(): boolean {
    let atWork = 0;
    for (let i = this.#backends.length - 1; i >= 0 && atWork < this.#spread; i -= 1) if (this.#backends[i]?.isAtWork) atWork += 1;
    return atWork >= this.#spread;
  }

  /** Whether it is worth looking at how long statements take. */
  isContended(now: number): boolean {
    return this.depth > 1 && now - this.#contendedAt < CONTENDED_MS;
  }

  /** @returns a pipeline that the request may enter; of several, the shortest */
  find(request: ShareableRequest, settings: Settings, now: number, mode: ShareMode): SharedPipeline | undefined {
    const backends = this.#backends;
    let load = 0;
    let shared: SharedPipeline | undefined;
    for (let i = backends.length - 1; i >= Math.max(0, backends.length - ASKED_MAX); i -= 1) {
      const backend = backends[i];
      if (backend === undefined || (shared !== undefined && backend.load >= load)) continue;
      const found = backend.share(request, settings, now, mode);
      if (found === undefined) continue;
      shared = found;
      ({ load } = backend);
    }
    return shared;
  }

  /** Has waiting clients come along with one that has just got its backend, as many as there is room for. */
  admitWaiting(backend: SharedBackend, now: number): void {
    for (const waiting of this.#waiting.slice(0, ADMITTED_MAX)) {
      if (!backend.hasRoom(now)) return;
      if (waiting.join(backend, now)) this.stopWaiting(waiting);
    }
  }

  wait(waiting: WaitingClient): void {
    if (this.depth > 1) this.#waiting.push(waiting);
  }

  stopWaiting(waiting: WaitingClient): void {
    remove(this.#waiting, this.#waiting.indexOf(waiting));
  }

  contended(now: number): void {
    this.#contendedAt = now;
  }

  add(backend: SharedBackend): void {
    if (this.depth > 1) this.#backends.push(backend);
  }

  delete(backend: SharedBackend): void {
    remove(this.#backends, this.#backends.lastIndexOf(backend));
  }
}

function remove<T>(from: T[], at: number): void {
  if (at < 0) return;
  if (at === from.length - 1) from.pop();
  else from.splice(at, 1);
}
