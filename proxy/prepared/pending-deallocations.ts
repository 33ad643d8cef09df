/**
 * Extended requests of the client's that may take all its named statements away and have not been answered yet: until then
 * nobody knows whether they are there.
 */
export class PendingDeallocations {
  #all = false;
  /** In which batch they are, once what is ahead in it has been done. */
  #batch = -1;
  /** Names given again since, as Latin-1. Most sessions never have any. */
  #given: Set<string> | undefined;

  /** All may be taken away. */
  get all(): boolean {
    return this.#all;
  }

  /** @param batch in which what takes all away is executed */
  executed(batch: number): void {
    this.#all = true;
    this.#batch = batch;
    this.#given = undefined;
  }

  /** A statement is given a name. */
  gives(name: string): void {
    if (!this.#all) return;
    this.#given ??= new Set();
    this.#given.add(name);
  }

  /** What comes next in a batch does not find that name: either all have been taken away, or it is thrown away itself. */
  hasTaken(name: string, batch: number): boolean {
    return this.#all && this.#batch === batch && this.#given?.has(name) !== true;
  }

  /** Whatever has been asked has been answered. */
  answered(): void {
    this.#all = false;
    this.#given = undefined;
  }
}
