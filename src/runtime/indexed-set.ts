/** What can be a member of one {@link IndexedSet} at a time. */
export interface Indexed {
  /** Its position in the set, which the set keeps; -1: it is in none. */
  index: number;
}

/**
 * A set without order, for members that are added and deleted all the time. A `Set` moves into a new table every so many
 * additions, and the old table refers to the new one: once V8 has promoted one table to the old generation, it promotes all that
 * follow, with all their members, and frees none of them before a full garbage collection.
 */
export class IndexedSet<T extends Indexed> {
  readonly #members: T[] = [];

  get size(): number {
    return this.#members.length;
  }

  /** @param index from 0; the member there changes when others are deleted */
  at(index: number): T | undefined {
    return this.#members[index];
  }

  add(member: T): void {
    if (member.index >= 0) return;
    member.index = this.#members.push(member) - 1;
  }

  /** Moves the last member to its index. @returns whether it was in the set */
  delete(member: T): boolean {
    const { index } = member;
    if (index < 0) return false;
    const last = this.#members.pop();
    if (last !== undefined && last !== member) {
      this.#members[index] = last;
      last.index = index;
    }
    member.index = -1;
    return true;
  }

  /** A copy: members may be added and deleted while it is read. */
  all(): readonly T[] {
    return [...this.#members];
  }
}
