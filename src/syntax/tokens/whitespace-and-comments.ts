import { Code } from './characters.ts';

/** Offset of the next character at or after `offset` that is neither white space nor comment. */
export function skipWhitespace(text: string, offset: number): number {
  const at = skipSpace(text, offset, text.length);
  return opensComment(text, at) ? new Whitespace().skip(text, at, text.length) : at;
}

/** Skips white space and comments in parts. A comment may continue in the next part. */
export class Whitespace {
  #depth = 0;

  get isInComment(): boolean {
    return this.#depth > 0;
  }

  /**
   * @param offset the end of the previous part
   * @param until the end of this part; a line comment is read to its end all the same
   * @returns as {@link skipWhitespace}
   */
  skip(text: string, offset: number, until: number): number {
    let at = this.#comment(text, offset, until);
    while (this.#depth === 0 && at < until) {
      at = skipSpace(text, at, until);
      if (!opensComment(text, at)) break;
      this.#depth = 1;
      at = this.#comment(text, at + 2, until);
    }
    return at;
  }

  /** Offset after the block comment that begins at `start`. */
  skipComment(text: string, start: number): number {
    this.#depth = 1;
    return this.#comment(text, start + 2, text.length);
  }

  /** Block comments nest, unlike in C. */
  #comment(text: string, offset: number, until: number): number {
    let depth = this.#depth;
    let at = offset;
    for (; at < until && depth > 0; ) {
      const code = text.charCodeAt(at++);
      if (code === Code.Star && text.charCodeAt(at) === Code.Slash) {
        depth--;
        at++;
      } else if (code === Code.Slash && text.charCodeAt(at) === Code.Star) {
        depth++;
        at++;
      }
    }
    this.#depth = depth;
    return at;
  }
}

function opensComment(text: string, at: number): boolean {
  return text.charCodeAt(at) === Code.Slash && text.charCodeAt(at + 1) === Code.Star;
}

/** Offset after the comment that begins at `at`; `at` itself if none begins there. */
export function commentEnd(text: string, at: number): number {
  if (opensComment(text, at)) return new Whitespace().skipComment(text, at);
  return text.charCodeAt(at) === Code.Minus && text.charCodeAt(at + 1) === Code.Minus ? lineEnd(text, at + 2) : at;
}

/** Skips white space and line comments. */
function skipSpace(text: string, offset: number, until: number): number {
  let at = offset;
  for (; at < until; ) {
    const code = text.charCodeAt(at);
    if (isSpace(code)) at++;
    else if (code === Code.Minus && text.charCodeAt(at + 1) === Code.Minus) at = lineEnd(text, at + 2);
    else break;
  }
  return at;
}

/** Does without the table of classes, because there may be millions of these characters. */
export function isSpace(code: number): boolean {
  return code === Code.Space || (code >= Code.Tab && code <= Code.Return);
}

export function lineEnd(text: string, offset: number): number {
  let at = offset;
  for (; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code === Code.Newline || code === Code.Return) break;
  }
  return at;
}
