import { ANY_SIZE, type FrameRules, FrameScanner, HEADER_BYTES } from './frame.ts';

/** A whole message. */
export interface Message {
  readonly type: number;
  readonly body: Buffer;
}

/** Reads whole messages, for callers that want values. Bodies are views of what was pushed where they can be. */
export class MessageReader {
  readonly #scanner: FrameScanner;

  /** @param maxBodyBytes bounds what is kept of a message that has not arrived whole */
  constructor(rules: FrameRules, maxBodyBytes = rules.maxBodyBytes) {
    this.#scanner = new FrameScanner({ ...rules, maxBodyBytes, heads: new Int32Array(256).fill(ANY_SIZE) });
  }

  push(chunk: Buffer): void {
    this.#scanner.push(chunk);
  }

  /**
   * @returns undefined when no whole message is left
   * @throws as {@link FrameScanner.next}
   */
  next(): Message | undefined {
    const scanner = this.#scanner;
    if (!scanner.next()) return undefined;
    return { type: scanner.type, body: scanner.buffer.subarray(scanner.start + HEADER_BYTES, scanner.end) };
  }
}
