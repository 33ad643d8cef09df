import { UNTIL_ENDED_MS } from '../catalog/pauses.ts';

/** A request for a backend of an organization that is paused. */
export interface PausedRequest {
  /** Called when the pause has ended. */
  resume(): void;
}

interface Pause {
  /** Undefined: it does not end by itself. */
  timer: NodeJS.Timeout | undefined;
  readonly requests: Set<PausedRequest>;
}

/** The organizations that are paused, and the requests that wait for the end of their pauses. */
export class Pauses {
  /** How many organizations are paused. Read before each lease, so it is a plain property. */
  count = 0;
  readonly #pauses = new Map<string, Pause>();

  isPaused(organizationId: string): boolean {
    return this.#pauses.has(organizationId);
  }

  /** Begins a pause, or changes when it ends. @returns whether the organization was not paused before */
  set(organizationId: string, forMs: number): boolean {
    const known = this.#pauses.get(organizationId);
    const timer = forMs < UNTIL_ENDED_MS ? setTimeout(() => this.end(organizationId), forMs).unref() : undefined;
    if (known === undefined) {
      this.#pauses.set(organizationId, { timer, requests: new Set() });
      this.count += 1;
      return true;
    }
    clearTimeout(known.timer);
    known.timer = timer;
    return false;
  }

  end(organizationId: string): void {
    const pause = this.#pauses.get(organizationId);
    if (pause === undefined) return;
    clearTimeout(pause.timer);
    this.#pauses.delete(organizationId);
    this.count -= 1;
    for (const request of pause.requests) request.resume();
  }

  /** Has a request wait. @returns false if the organization is not paused */
  add(organizationId: string, request: PausedRequest): boolean {
    return this.#pauses.get(organizationId)?.requests.add(request) !== undefined;
  }

  /** @returns whether the request was waiting */
  delete(organizationId: string, request: PausedRequest): boolean {
    return this.#pauses.get(organizationId)?.requests.delete(request) === true;
  }
}
