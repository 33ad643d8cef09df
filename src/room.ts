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

  constructor({ perTenantBytes, allBytes }: RoomBounds) {
    this.#perTenantBytes = perTenantBytes;
    this.#free = allBytes;
  }

  /** @returns by whose things there is no room for so many bytes more of that organization's, if there is none */
  fullOf(organizationId: string, bytes: number): 'its own' | 'all' | undefined {
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
  }
}
