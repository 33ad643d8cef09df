/** Random numbers that are the same in every run (mulberry32), so that a failure found once can be found again. */
export class SeededRandom {
  #state: number;

  constructor(seed: number) {
    this.#state = seed;
  }

  /** A whole number from 0 up to, not including, `limit`. */
  below(limit: number): number {
    this.#state = (this.#state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), 1 | this.#state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return Math.floor((((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296) * limit);
  }

  bytes(length: number): Buffer {
    return Buffer.from(Array.from({ length }, () => this.below(256)));
  }

  /** `bytes` cut into chunks of random sizes from 1 to `largest`. */
  cut(bytes: Buffer, largest: number): Buffer[] {
    const chunks: Buffer[] = [];
    for (let start = 0; start < bytes.length; start += chunks.at(-1)?.length ?? 0) {
      chunks.push(bytes.subarray(start, start + 1 + this.below(largest)));
    }
    return chunks;
  }
}
