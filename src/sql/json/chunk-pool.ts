/** A chunk is sent as soon as about this much is written. */
export const CHUNK_BYTES = 65_536;
/** A chunk has additional space for the row that exceeds it. */
const CAPACITY_BYTES = 81_920;
/** Smaller buffers come from Node's pool (`Buffer.poolSize`). */
const SMALL_BYTES = 4_096;
const SPARE_MAX = 64;

/** The chunk released last is used first, because it is still in the processor's cache. */
const spare: Buffer[] = [];

/**
 * Returns memory for at least so many bytes. Larger buffers are outside V8's heap, and allocating many of them makes full
 * garbage collections more frequent. So chunks that have been sent are used again.
 */
export function takeMemory(bytes: number): Buffer {
  return bytes < SMALL_BYTES || bytes > CAPACITY_BYTES ? Buffer.allocUnsafe(bytes) : takeChunk();
}

/** Memory for a chunk of a reply. */
export function takeChunk(): Buffer {
  return spare.pop() ?? Buffer.allocUnsafeSlow(CAPACITY_BYTES);
}

/** Releases memory whose content is not needed any more. Calling this is optional. */
export function giveBack({ buffer }: Buffer): void {
  if (buffer.byteLength === CAPACITY_BYTES && spare.length < SPARE_MAX) spare.push(Buffer.from(buffer));
}
