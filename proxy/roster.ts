/**
 * Members that come and go by the thousand each second. A `Set` would do but for memory: V8 moves an old one to a new table
 * now and then, and until the next full collection the table that it leaves keeps alive whoever was in it, with all that
 * is theirs. Here nobody who has left is kept.
 */
export class Roster<Member> {
  readonly #places: (Member | undefined)[] = [];
  readonly #free: number[] = [];

  get size(): number {
    return this.#places.length - this.#free.length;
  }

  /** @returns the member's place, which {@link delete} takes once */
  add(member: Member): number {
    const place = this.#free.pop() ?? this.#places.length;
    this.#places[place] = member;
    return place;
  }

  delete(place: number): void {
    this.#places[place] = undefined;
    this.#free.push(place);
  }

  *[Symbol.iterator](): Generator<Member> {
    for (const member of this.#places) if (member !== undefined) yield member;
  }
}
