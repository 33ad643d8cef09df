/** Limits of a {@link MemoryBudget}. */
export interface MemoryBounds {
  readonly perOrganizationBytes: number;
  readonly allBytes: number;
}

/** Memory that all organizations share: none may have more than its limit, nor more than is left for the others. */
export class MemoryBudget {
  readonly #perOrganizationBytes: number;
  readonly #bytesByOrganization = new Map<string, number>();
  #free: number;
  readonly #waiting = new Set<Waiter>();
  #willWake = false;

  constructor({ perOrganizationBytes, allBytes }: MemoryBounds) {
    this.#perOrganizationBytes = perOrganizationBytes;
    this.#free = allBytes;
  }

  /** @returns which limit so many bytes more of that organization's would exceed, if they would exceed one */
  exhaustedBy(organizationId: string, bytes: number): Exhaustion | undefined {
    const taken = (this.#bytesByOrganization.get(organizationId) ?? 0) + bytes;
    if (taken > this.#perOrganizationBytes) return 'its own';
    // No organization may have more than would be left afterwards: a few cannot take all.
    return taken > this.#free - bytes ? 'all' : undefined;
  }

  /** Counts bytes that are held, also beyond the limits. @param bytes negative: they have been released */
  count(organizationId: string, bytes: number): void {
    const taken = (this.#bytesByOrganization.get(organizationId) ?? 0) + bytes;
    if (taken > 0) this.#bytesByOrganization.set(organizationId, taken);
    else this.#bytesByOrganization.delete(organizationId);
    this.#free -= bytes;
    if (bytes < 0) this.#wakeSoon();
  }

  /** @param free called when so many bytes more are within the limits; the callee counts them @returns cancels the wait */
  wait(organizationId: string, bytes: number, free: () => void): () => void {
    const waiter = { organizationId, bytes, free };
    this.#waiting.add(waiter);
    return () => this.#waiting.delete(waiter);
  }

  /** Not at once: who releases bytes may count them again as something else. */
  #wakeSoon(): void {
    if (this.#willWake || this.#waiting.size === 0) return;
    this.#willWake = true;
    setImmediate(() => {
      this.#willWake = false;
      for (const waiter of this.#waiting) {
        if (this.exhaustedBy(waiter.organizationId, waiter.bytes) !== undefined) continue;
        this.#waiting.delete(waiter);
        waiter.free();
      }
    });
  }
}

interface Waiter {
  readonly organizationId: string;
  readonly bytes: number;
  readonly free: () => void;
}

/** Which limit is exceeded: that of the organization, or that of all. */
export type Exhaustion = 'its own' | 'all';

/** A reservation of no more than this is not counted, unless it says otherwise. */
export const SMALL_BYTES = 65_536;

/** One holder's bytes in a {@link MemoryBudget}. */
export class MemoryReservation {
  readonly #budget: MemoryBudget;
  readonly #organizationId: string;
  readonly #uncountedBytes: number;
  #bytes = 0;
  #isOver = false;

  /** @param uncountedBytes as long as it is no larger, it takes nothing of the budget and always has room */
  constructor(budget: MemoryBudget, organizationId: string, uncountedBytes = SMALL_BYTES) {
    this.#budget = budget;
    this.#organizationId = organizationId;
    this.#uncountedBytes = uncountedBytes;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** As {@link MemoryBudget.exhaustedBy}. */
  exhaustedBy(bytes: number): Exhaustion | undefined {
    return this.#budget.exhaustedBy(this.#organizationId, bytes);
  }

  /** As {@link MemoryBudget.wait}. */
  wait(bytes: number, free: () => void): () => void {
    return this.#budget.wait(this.#organizationId, bytes, free);
  }

  /** Sets the number of bytes that are held now, even beyond the limits. */
  resize(bytes: number): void {
    if (this.#isOver) return;
    const more = this.#countedOf(bytes) - this.#countedOf(this.#bytes);
    this.#bytes = bytes;
    if (more !== 0) this.#budget.count(this.#organizationId, more);
  }

  /** As {@link resize}, within the limits. @returns which limit would be exceeded, if one would: nothing has changed then */
  tryResize(bytes: number): Exhaustion | undefined {
    const more = this.#countedOf(bytes) - this.#countedOf(this.#bytes);
    const full = more > 0 ? this.exhaustedBy(more) : undefined;
    if (full === undefined) this.resize(bytes);
    return full;
  }

  /** Nothing is held any more, whatever is said of it from now on. */
  end(): void {
    this.resize(0);
    this.#isOver = true;
  }

  #countedOf(bytes: number): number {
    return bytes > this.#uncountedBytes ? bytes : 0;
  }
}
