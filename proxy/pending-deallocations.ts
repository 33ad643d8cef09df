import { latin1String } from '../src/protocol/body.ts';
import { type FrameScanner, HEADER_BYTES } from '../src/protocol/frame.ts';
import type { TextTraits } from './statement-text.ts';

/**
 * Extended requests of the client's that may take all its named statements away and have not been answered yet: until then
 * nobody knows whether they are there.
 */
export class PendingDeallocations {
  #all = false;
  /** In which batch they are, once what is ahead in it has been done. */
  #batch = -1;
  /** Names given again since, as Latin-1. */
  readonly #given = new Set<string>();
  /** The portal that would take all away when it is executed. */
  #portal: string | undefined;

  /** All may be taken away. */
  get all(): boolean {
    return this.#all;
  }

  bound(scanner: FrameScanner, traits: TextTraits | undefined): void {
    if (traits?.deallocatesAll === true) this.#portal = portalName(scanner);
    else if (this.#portal !== undefined && this.#portal === portalName(scanner)) this.#portal = undefined;
  }

  /** @param batch in which it is executed */
  executed(scanner: FrameScanner, batch: number): void {
    if (this.#portal === undefined || this.#portal !== portalName(scanner)) return;
    this.#all = true;
    this.#batch = batch;
    this.#given.clear();
  }

  /** A statement is given a name. */
  gives(name: string): void {
    if (this.#all) this.#given.add(name);
  }

  /** What comes next in a batch does not find that name: either all have been taken away, or it is thrown away itself. */
  hasTaken(name: string, batch: number): boolean {
    return this.#all && this.#batch === batch && !this.#given.has(name);
  }

  /** Whatever has been asked has been answered. */
  answered(): void {
    this.#all = false;
    this.#given.clear();
  }
}

/** The portal that a Bind or Execute is about, as Latin-1. */
function portalName({ buffer, start, end }: FrameScanner): string {
  return latin1String(buffer, start + HEADER_BYTES, end);
}
