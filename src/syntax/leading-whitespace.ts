import { Code } from './tokens/characters.ts';

/** These are compared with each of millions of characters: a local constant is faster than a property. */
const { Space, Tab, Newline, Return, Star, Minus, Slash } = Code;

/**
 * Finds where the first token of an SQL text begins, after white space and comments. The text arrives in pieces that may be
 * cut anywhere. Megabytes of comments may precede the first token, so each character is read only once.
 */
export class LeadingWhitespace {
  /** The number of open block comments. They nest. */
  #depth = 0;
  #isInLineComment = false;
  /** The previous character, if it may be the first of a pair such as `--` or `/*`; else 0. */
  #previous = 0;
  #hasCode = false;

  /** @returns the offset in this piece of the first token; 0 if an earlier piece had it; -1 if this piece has none either */
  codeStart(piece: string): number {
    for (let at = 0; at < piece.length && !this.#hasCode; at += 1) {
      const code = piece.charCodeAt(at);
      if (this.#isInLineComment) this.#isInLineComment = code !== Newline && code !== Return;
      else if (this.#depth > 0) this.#readBlockComment(code);
      else if (this.#startsCode(code)) return Math.max(0, this.#previous === 0 ? at : at - 1);
    }
    return this.#hasCode ? 0 : -1;
  }

  #readBlockComment(code: number): void {
    const [opens, closes] = [this.#previous === Slash && code === Star, this.#previous === Star && code === Slash];
    if (opens) this.#depth += 1;
    if (closes) this.#depth -= 1;
    // A character of one pair cannot be part of the next pair.
    this.#previous = opens || closes ? 0 : code;
    if (this.#depth === 0) this.#previous = 0;
  }

  /** Reads a character outside comments. @returns whether the first token begins at this character or at the previous one */
  #startsCode(code: number): boolean {
    if (this.#previous === Slash && code === Star) this.#depth = 1;
    else if (this.#previous === Minus && code === Minus) this.#isInLineComment = true;
    else if (this.#previous !== 0) this.#hasCode = true;
    else if (code === Slash || code === Minus) {
      this.#previous = code;
      return false;
    } else this.#hasCode = code !== Space && (code < Tab || code > Return);
    if (!this.#hasCode) this.#previous = 0;
    return this.#hasCode;
  }
}
