import { Buffer } from 'node:buffer';

/** Below this, calling into the runtime takes longer than copying in a loop. */
const MIN_RUNTIME_COPY_BYTES = 96;

/** Copies `from[start..end)` to `to[at..)`. */
export function copyBytes(from: Uint8Array, start: number, end: number, to: Uint8Array, at: number): void {
  if (end - start >= MIN_RUNTIME_COPY_BYTES) to.set(from.subarray(start, end), at);
  else for (let i = start, j = at; i < end; i += 1, j += 1) to[j] = from[i] as number;
}

/** `Buffer.concat` for a few bytes. @param bytes the length of all pieces together */
export function joined(pieces: readonly Uint8Array[], bytes: number): Buffer {
  const whole = Buffer.allocUnsafe(bytes);
  let at = 0;
  for (const piece of pieces) {
    copyBytes(piece, 0, piece.length, whole, at);
    at += piece.length;
  }
  return whole;
}
