import { Buffer } from 'node:buffer';

/** For less, a call into the runtime takes longer than the copying. */
const LEAST_FOR_RUNTIME = 96;

/** Copies `from[start..end)` to `to[at..)`. */
export function copyBytes(from: Uint8Array, start: number, end: number, to: Uint8Array, at: number): void {
  if (end - start >= LEAST_FOR_RUNTIME) to.set(from.subarray(start, end), at);
  else for (let i = start, j = at; i < end; i += 1, j += 1) to[j] = from[i] as number;
}

/** As Buffer.concat, for a few bytes. @param bytes what the pieces have together */
export function joined(pieces: readonly Uint8Array[], bytes: number): Buffer {
  const whole = Buffer.allocUnsafe(bytes);
  let at = 0;
  for (const piece of pieces) {
    copyBytes(piece, 0, piece.length, whole, at);
    at += piece.length;
  }
  return whole;
}
