import { ANY_SIZE, type FrameRules, FrameScanner, HEADER_BYTES } from '../../src/protocol/framing.ts';

/** A whole message. */
export interface Message {
  readonly type: number;
  readonly body: Buffer;
}

/** Reads whole messages, for callers that want values. Where possible a body is a view of the pushed chunk. */
export class MessageReader {
  readonly #scanner: FrameScanner;

  constructor(rules: FrameRules) {
    this.#scanner = new FrameScanner({ ...rules, heads: new Int32Array(256).fill(ANY_SIZE) });
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
