/** About what goes to the caller in one piece: as soon as so much is written. */
export const CHUNK_BYTES = 65_536;
/** With room for the row that goes beyond it. */
const CAPACITY_BYTES = 81_920;
/** Less comes from memory that Node has at hand (`Buffer.poolSize`). */
const SMALL_BYTES = 4_096;
const SPARE_MAX = 64;

/** The last one given back comes first: it is still in the processor's cache. */
const spare: Buffer[] = [];

/**
 * Memory for so many bytes at least. What is larger than a few bytes lies outside the engine's heap, and the more of it comes
 * and goes the more often all of the heap is searched for what can go: so what has been sent is used again.
 */
export function takeMemory(bytes: number): Buffer {
  return bytes < SMALL_BYTES || bytes > CAPACITY_BYTES ? Buffer.allocUnsafe(bytes) : takeChunk();
}

/** Memory for a chunk of a reply. */
export function takeChunk(): Buffer {
  return spare.pop() ?? Buffer.allocUnsafeSlow(CAPACITY_BYTES);
}

/** What was written into such memory is not needed any more, by anybody. It need not be given back. */
export function giveBack({ buffer }: Buffer): void {
  if (buffer.byteLength === CAPACITY_BYTES && spare.length < SPARE_MAX) spare.push(Buffer.from(buffer));
}
