import { Buffer } from 'node:buffer';
import { randomBytes, randomFillSync } from 'node:crypto';

/** Up to this, copying in a loop is quicker than a call into the runtime. */
const LOOP_MAX_BYTES = 96;

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

/** The system call for random bytes costs the same for 4 kB as for 4 bytes. */
const POOL_BYTES = 4_096;
const pool = Buffer.allocUnsafeSlow(POOL_BYTES);
let used = POOL_BYTES;

/** Random bytes for secrets. Each byte of the pool is used once and then overwritten. */
export function randomSecretBytes(size: number): Buffer {
  if (size > POOL_BYTES) return randomFillSync(Buffer.allocUnsafeSlow(size));
  if (used + size > POOL_BYTES) {
    randomFillSync(pool);
    used = 0;
  }
  const bytes = Buffer.from(pool.subarray(used, used + size));
  pool.fill(0, used, used + size);
  used += size;
  return bytes;
}

const DIGITS_BYTES = 3_072;
let digits = '';

/** Random hexadecimal digits for ids. They are kept in memory, so they must not be used for secrets. */
export function randomDigits(count: number): string {
  if (digits.length < count) digits = randomBytes(DIGITS_BYTES).toString('hex');
  const taken = digits.slice(-count);
  digits = digits.slice(0, -count);
  return taken;
}

/**
 * A UUID that begins with the time, so that those made together are neighbours in an index.
 * @see https://www.rfc-editor.org/rfc/rfc9562#section-5.7
 */
export function timeOrderedUuid(now = Date.now()): string {
  if (now !== lastMoment.ms) lastMoment = { ms: now, uuidStart: uuidStartOf(now) };
  const random = randomDigits(18);
  return `${lastMoment.uuidStart}${random.slice(0, 3)}-8${random.slice(3, 6)}-${random.slice(6)}`;
}

/** Kept because many UUIDs are made in one millisecond. */
let lastMoment = { ms: 0, uuidStart: uuidStartOf(0) };

/** The time as 12 digits, and the version. */
function uuidStartOf(ms: number): string {
  const time = ms.toString(16).padStart(12, '0');
  return `${time.slice(0, 8)}-${time.slice(8)}-7`;
}
