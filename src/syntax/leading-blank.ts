import { Code } from './characters.ts';

/** Read for each of millions of characters. */
const { Space, Tab, Newline, Return, Star, Minus, Slash } = Code;

/**
 * Finds where SQL text begins behind white space and comments, which nest, in pieces cut anywhere. A text may hide
 * behind megabytes of them: each character is looked at once.
 */
export class LeadingBlank {
  /** How many block comments are open. */
  #depth = 0;
  #isInLine = false;
  /** The character before, where it may begin something of two. */
  #before = 0;
  #hasEnded = false;

  /** @returns where the code begins in this piece, which is its start if it has begun before; -1 where all of it is blank */
  endIn(piece: string): number {
    for (let at = 0; at < piece.length && !this.#hasEnded; at += 1) {
      const code = piece.charCodeAt(at);
      if (this.#isInLine) this.#isInLine = code !== Newline && code !== Return;
      else if (this.#depth > 0) this.#inBlock(code);
      else if (this.#begins(code)) return Math.max(0, this.#before === 0 ? at : at - 1);
    }
    return this.#hasEnded ? 0 : -1;
  }

  #inBlock(code: number): void {
    const [opens, closes] = [this.#before === Slash && code === Star, this.#before === Star && code === Slash];
    if (opens) this.#depth += 1;
    if (closes) this.#depth -= 1;
    // Neither character of a pair is half of the next one.
    this.#before = opens || closes ? 0 : code;
    if (this.#depth === 0) this.#before = 0;
  }

  /** Outside of comments. @returns whether the code has begun, with this character or the one before it */
  #begins(code: number): boolean {
    if (this.#before === Slash && code === Star) this.#depth = 1;
    else if (this.#before === Minus && code === Minus) this.#isInLine = true;
    else if (this.#before !== 0) this.#hasEnded = true;
    else if (code === Slash || code === Minus) {
      this.#before = code;
      return false;
    } else this.#hasEnded = code !== Space && (code < Tab || code > Return);
    if (!this.#hasEnded) this.#before = 0;
    return this.#hasEnded;
  }
}
