/** What can be in a crowd, in one at a time. */
export interface Member {
  /** Where it stands in its crowd, which is the crowd's business; -1: in none. */
  place: number;
}

/**
 * A set without order, for members that come and go all the time. A `Set` moves into a new table every so many additions, and
 * the old table leads to the new one: once the engine has taken one for long-lived, so are all that follow, and with them
 * all that was in them when it moved, until the whole heap is searched.
 */
export class Crowd<T extends Member> {
  readonly #members: T[] = [];

  get size(): number {
    return this.#members.length;
  }

  /** @param place from 0; whoever comes or goes may change who it is */
  at(place: number): T | undefined {
    return this.#members[place];
  }

  add(member: T): void {
    if (member.place >= 0) return;
    member.place = this.#members.push(member) - 1;
  }

  /** The last one takes its place. @returns whether it was in */
  delete(member: T): boolean {
    const { place } = member;
    if (place < 0) return false;
    const last = this.#members.pop();
    if (last !== undefined && last !== member) {
      this.#members[place] = last;
      last.place = place;
    }
    member.place = -1;
    return true;
  }

  /** Those who are in at the moment, whoever comes or goes meanwhile. */
  all(): readonly T[] {
    return [...this.#members];
  }
}
