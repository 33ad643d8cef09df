import type { BackendConnection } from '../backend/connection.ts';
import type { StatementLatency } from '../backend/session-state.ts';
import type { Organization } from '../catalog/organization.ts';
import type { SharedPipeline } from './shared-pipeline.ts';
import { registryOf, type StatementRegistry } from './statement-registry.ts';

export interface SharingLimits {
  /** How many requests may be in one backend's pipeline; with 1 none is shared. */
  readonly depth: number;
  /** When so many backends are at work, quick requests share them. */
  readonly spread: number;
}

/**
 * Which requests share a backend. `quick`: enough backends are at work, and more would only compete for the processors, so quick
 * requests share them. `short`: all backends are busy, so short requests share them too.
 */
export type ShareMode = 'short' | 'quick';

/** A request that only reads, is a transaction of its own, and leaves nothing in the session. */
export interface ShareableRequest {
  readonly latency: StatementLatency | undefined;
  /** Whether the backend would run it as one of its own: with the same settings, and the statement prepared. */
  fits(backend: BackendConnection): boolean;
}

/** The user of a backend, which may let others enter its pipeline. */
export interface SharedBackend {
  /** Its backend runs something, and is not only kept. */
  readonly isAtWork: boolean;
  /** How many requests are in its backend's pipeline, and how many have ever been. */
  readonly load: number;
  readonly entered: number;
  /** @returns the pipeline, if the request may enter it now */
  pipelineFor(request: ShareableRequest, now: number, mode: ShareMode): SharedPipeline | undefined;
}

/** A client whose request waits for a backend. */
export interface WaitingClient {
  /** @returns whether its request has entered the backend's pipeline */
  join(backend: SharedBackend, now: number): boolean;
}

/** How many backends are considered: those that were taken last. */
const MAX_CONSIDERED = 16;
/** How many waiting clients may enter the pipeline of a backend that another client has just got: those that have waited longest. */
const MAX_ADMITTED = 8;
/** A backend with more bytes than this to be written is not shared. */
const MAX_PENDING_BYTES = 65_536;
/** Backends are contended as long as a session has found too few of them free within this time. */
const CONTENDED_MS = 1_000;

/** The multiplexers of all organizations. */
export class Multiplexers {
  readonly #limits: SharingLimits;
  /** Each is kept as long as the organization's credential is. */
  readonly #multiplexers = new WeakMap<Organization, Multiplexer>();

  constructor(limits: SharingLimits) {
    this.#limits = limits;
  }

  /** Whether any requests share backends. */
  get mayShare(): boolean {
    return this.#limits.depth > 1;
  }

  of(organization: Organization): Multiplexer {
    let multiplexer = this.#multiplexers.get(organization);
    if (multiplexer === undefined) {
      multiplexer = new Multiplexer(this.#limits, registryOf(organization));
      this.#multiplexers.set(organization, multiplexer);
    }
    return multiplexer;
  }
}

/** Decides, for one organization at both doors, whether a quick request enters the pipeline of a backend that is at work. */
export class Multiplexer {
  readonly depth: number;
  readonly registry: StatementRegistry;
  readonly #spread: number;
  /** In the order in which they have got their backends. */
  readonly #backends: SharedBackend[] = [];
  /** Those that have waited longest come first. */
  readonly #waiting: WaitingClient[] = [];
  /** Until then latencies are worth measuring; on performance.now()'s clock. Only this class sets it. */
  contendedUntil = Number.NEGATIVE_INFINITY;

  constructor({ depth, spread }: SharingLimits, registry: StatementRegistry) {
    this.depth = depth;
    this.#spread = spread;
    this.registry = registry;
  }

  get baseline(): StatementRegistry['baseline'] {
    return this.registry.baseline;
  }

  /** Whether so many backends are at work that one more would only compete for the processors. */
  get isSpread(): boolean {
    let atWork = 0;
    for (let i = this.#backends.length - 1; i >= 0 && atWork < this.#spread; i -= 1) if (this.#backends[i]?.isAtWork) atWork += 1;
    return atWork >= this.#spread;
  }

  contended(now: number): void {
    if (this.depth > 1) this.contendedUntil = now + CONTENDED_MS;
  }

  /**
   * @param isAwaited a client waits for a backend: each pipeline takes few more requests, so that its backend becomes free soon
   * @returns a pipeline that the request may enter; the shortest of several
   */
  find(request: ShareableRequest, now: number, mode: ShareMode, isAwaited: boolean): SharedPipeline | undefined {
    const backends = this.#backends;
    let load = this.depth;
    let shared: SharedPipeline | undefined;
    for (let i = backends.length - 1; i >= Math.max(0, backends.length - MAX_CONSIDERED); i -= 1) {
      const backend = backends[i];
      if (backend === undefined || backend.load >= load || (isAwaited && backend.entered >= this.depth)) continue;
      if (mode === 'quick' && !request.latency?.mayFollow(backend.load)) continue;
      const found = backend.pipelineFor(request, now, mode);
      if (found === undefined) continue;
      shared = found;
      ({ load } = backend);
    }
    return shared;
  }

  add(backend: SharedBackend): void {
    if (this.depth > 1) this.#backends.push(backend);
  }

  delete(backend: SharedBackend): void {
    remove(this.#backends, this.#backends.lastIndexOf(backend));
  }

  /** Has waiting clients' requests enter the pipeline of a backend that another has just got, as many as there is room for. */
  admitWaiting(backend: SharedBackend, now: number): void {
    for (const waiting of this.#waiting.slice(0, MAX_ADMITTED)) {
      if (backend.load >= this.depth) return;
      if (waiting.join(backend, now)) this.stopWaiting(waiting);
    }
  }

  wait(waiting: WaitingClient): void {
    if (this.depth > 1) this.#waiting.push(waiting);
  }

  stopWaiting(waiting: WaitingClient): void {
    remove(this.#waiting, this.#waiting.indexOf(waiting));
  }
}

function remove<T>(from: T[], at: number): void {
  if (at < 0) return;
  if (at === from.length - 1) from.pop();
  else from.splice(at, 1);
}

/** Whether requests of such a latency share backends. */
export function suits(latency: StatementLatency | undefined, mode: ShareMode): boolean {
  return (mode === 'quick' ? latency?.isQuick : latency?.isShort) === true;
}

/** Whether a backend's session can take another request into its pipeline. */
export function mayTake(backend: BackendConnection, request: ShareableRequest): boolean {
  const { session, pendingBytes } = backend;
  return !session.retired && session.staleNames.size === 0 && pendingBytes <= MAX_PENDING_BYTES && request.fits(backend);
}
