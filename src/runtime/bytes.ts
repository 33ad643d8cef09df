import { Buffer } from 'node:buffer';

/** Up to this, copying in a loop is quicker than a call into the runtime. */
const LOOP_MAX_BYTES = 48;

/** Copies `from[start..end)` to `to[at..)`. */
export function copyBytes(from: Uint8Array, start: number, end: number, to: Uint8Array, at: number): void {
  if (end - start > LOOP_MAX_BYTES) to.set(from.subarray(start, end), at);
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

/** Longer pieces are not worth a copy. */
const JOINED_MAX_BYTES = 65_536;

/** Joins neighbours into one write each, except for long ones. */
export function joinShort(pieces: readonly Uint8Array[]): readonly Uint8Array[] {
  if (pieces.length === 1) return pieces;
  const writes: Uint8Array[] = [];
  let short: Uint8Array[] = [];
  let bytes = 0;
  const join = () => {
    if (short.length > 0) writes.push(joined(short, bytes));
    short = [];
    bytes = 0;
  };
  for (const piece of pieces) {
    if (piece.length > JOINED_MAX_BYTES) {
      join();
      writes.push(piece);
    } else {
      short.push(piece);
      bytes += piece.length;
    }
  }
  join();
  return writes;
}
