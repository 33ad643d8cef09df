/** What is held in memory for callers, in bytes. */
export interface RoomBounds {
  readonly perTenantBytes: number;
  readonly allBytes: number;
}

/** Memory that all organizations share: none has more than its part, nor ever more than is left for the others. */
export class Room {
  readonly #perTenantBytes: number;
  readonly #ofTenants = new Map<string, number>();
  #free: number;
  readonly #waiting = new Set<Waiter>();
  #willLook = false;

  constructor({ perTenantBytes, allBytes }: RoomBounds) {
    this.#perTenantBytes = perTenantBytes;
    this.#free = allBytes;
  }

  /** @returns by whose things there is no room for so many bytes more of that organization's, if there is none */
  fullOf(organizationId: string, bytes: number): Fullness | undefined {
    const taken = (this.#ofTenants.get(organizationId) ?? 0) + bytes;
    if (taken > this.#perTenantBytes) return 'its own';
    // Nobody gets more than what is left then: a few cannot take all, however much they want.
    return taken > this.#free - bytes ? 'all' : undefined;
  }

  /** Counts what is there, whether there is room or not. @param bytes negative: it has gone */
  add(organizationId: string, bytes: number): void {
    const taken = (this.#ofTenants.get(organizationId) ?? 0) + bytes;
    if (taken > 0) this.#ofTenants.set(organizationId, taken);
    else this.#ofTenants.delete(organizationId);
    this.#free -= bytes;
    if (bytes < 0) this.#lookSoon();
  }

  /** @param free called when there is room for so many bytes more; who wants them has to take them then @returns gives it up */
  wait(organizationId: string, bytes: number, free: () => void): () => void {
    const waiter = { organizationId, bytes, free };
    this.#waiting.add(waiter);
    return () => this.#waiting.delete(waiter);
  }

  /** Not at once: who gives something back may want to take it again as something else. */
  #lookSoon(): void {
    if (this.#willLook || this.#waiting.size === 0) return;
    this.#willLook = true;
    setImmediate(() => {
      this.#willLook = false;
      for (const waiter of this.#waiting) {
        if (this.fullOf(waiter.organizationId, waiter.bytes) !== undefined) continue;
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

/** By whose things a room is full: those of the organization that wants more, or those of all. */
export type Fullness = 'its own' | 'all';

/** Who holds no more than that is not counted. */
export const SMALL_BYTES = 65_536;

/** One holder's part of a room. */
export class Share {
  readonly #room: Room;
  readonly #organizationId: string;
  #counted = 0;

  constructor(room: Room, organizationId: string) {
    this.#room = room;
    this.#organizationId = organizationId;
  }

  get counted(): number {
    return this.#counted;
  }

  /** @returns by whose things there is no room for so many bytes more, if there is none */
  fullFor(bytes: number): Fullness | undefined {
    return this.#room.fullOf(this.#organizationId, bytes);
  }

  /** As {@link Room.wait}. */
  wait(bytes: number, free: () => void): () => void {
    return this.#room.wait(this.#organizationId, bytes, free);
  }

  /** So many bytes are held now, whether there is room or not. */
  are(bytes: number): void {
    const counted = bytes > SMALL_BYTES ? bytes : 0;
    if (counted === this.#counted) return;
    this.#room.add(this.#organizationId, counted - this.#counted);
    this.#counted = counted;
  }
}
