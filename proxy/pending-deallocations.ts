import { latin1String } from '../src/protocol/body.ts';
import { type FrameScanner, HEADER_BYTES } from '../src/protocol/frame.ts';
import type { TextTraits } from './statement-text.ts';

/**
 * Extended requests of the client's that may take all its named statements away and have not been answered yet: until then
 * nobody knows whether they are there.
 */
export class PendingDeallocations {
  #all = false;
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

  executed(scanner: FrameScanner): void {
    this.#all ||= this.#portal !== undefined && this.#portal === portalName(scanner);
  }

  /** Whatever has been asked has been answered. */
  answered(): void {
    this.#all = false;
  }
}

/** The portal that a Bind or Execute is about, as Latin-1. */
function portalName({ buffer, start, end }: FrameScanner): string {
  return latin1String(buffer, start + HEADER_BYTES, end);
}
