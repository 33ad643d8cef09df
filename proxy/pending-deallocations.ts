import { latin1String } from '../src/protocol/body.ts';
import { type FrameScanner, HEADER_BYTES } from '../src/protocol/frame.ts';
import type { TextTraits } from './statement-text.ts';

/**
 * Requests of the client's that may take its named statements away and have not been answered yet: until then nobody knows
 * which of them are there.
 */
export class PendingDeallocations {
  #all = false;
  #names: readonly string[] = NO_NAMES;
  /** The portal that would take all away when it is executed. */
  #portal: string | undefined;

  /** All may be taken away. */
  get all(): boolean {
    return this.#all;
  }

  get any(): boolean {
    return this.#all || this.#names.length > 0;
  }

  mayTake(name: string): boolean {
    return this.#all || this.#names.includes(name);
  }

  /** @param names those that a Query takes away one by one */
  queried(traits: TextTraits, names: readonly string[]): void {
    this.#all ||= traits.deallocatesAll;
    if (names.length > 0) this.#names = [...this.#names, ...names];
  }

  bound(scanner: FrameScanner, traits: TextTraits | undefined): void {
    if (traits?.deallocatesAll === true) this.#portal = portalName(scanner);
    else if (this.#portal !== undefined && this.#portal === portalName(scanner)) this.#portal = undefined;
  }

  executed(scanner: FrameScanner): void {
    this.#all ||= this.#portal !== undefined && this.#portal === portalName(scanner);
  }

  /** Whatever has been asked has been answered. */
  answered(): void {
    this.#all = false;
    this.#names = NO_NAMES;
  }
}

const NO_NAMES: readonly string[] = [];

/** The portal that a Bind or Execute is about, as Latin-1. */
function portalName({ buffer, start, end }: FrameScanner): string {
  return latin1String(buffer, start + HEADER_BYTES, end);
}
