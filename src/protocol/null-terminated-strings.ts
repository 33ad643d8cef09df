/** Up to this many bytes, a loop is faster than a call into the runtime. */
const NEAR_BYTES = 64;

/**
 * Finds the zero byte that ends the string beginning at `from`.
 * @returns its offset in `buffer`, or -1 when there is none before `to`
 */
export function stringEnd(buffer: Uint8Array, from: number, to: number): number {
  const limit = Math.min(to, buffer.length);
  const near = Math.min(limit, from + NEAR_BYTES);
  for (let i = from; i < near; i++) if (buffer[i] === 0) return i;
  if (near === limit) return -1;
  const found = buffer.subarray(near, limit).indexOf(0);
  return found < 0 ? -1 : near + found;
}

/** The string beginning at `from`, as Latin-1; without a zero byte, everything before `to`. */
export function latin1String(buffer: Buffer, from: number, to: number): string {
  const end = stringEnd(buffer, from, to);
  return buffer.toString('latin1', from, end < 0 ? to : end);
}
