import { randomBytes, randomFillSync } from 'node:crypto';

/** Asking the system for random bytes costs the same for 4 kB as for 4. */
const POOL_BYTES = 4_096;
const pool = Buffer.allocUnsafeSlow(POOL_BYTES);
let used = POOL_BYTES;

/** As many random bytes as asked for, fit for secrets: every byte is given out once, and then kept nowhere else. */
export function freshBytes(size: number): Buffer {
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

/** So many random hexadecimal digits, for ids: they wait in memory, so nothing secret is to be made of them. */
export function randomDigits(count: number): string {
  if (digits.length < count) digits = randomBytes(DIGITS_BYTES).toString('hex');
  const taken = digits.slice(-count);
  digits = digits.slice(0, -count);
  return taken;
}

/**
 * A UUID that begins with the time, so that an index has those of one moment side by side.
 * @see https://www.rfc-editor.org/rfc/rfc9562#section-5.7
 */
export function timeOrderedUuid(now = Date.now()): string {
  if (now !== lastMoment.ms) lastMoment = { ms: now, uuidStart: uuidStartOf(now) };
  const chance = randomDigits(18);
  return `${lastMoment.uuidStart}${chance.slice(0, 3)}-8${chance.slice(3, 6)}-${chance.slice(6)}`;
}

/** Many are made in one millisecond. */
let lastMoment = { ms: 0, uuidStart: uuidStartOf(0) };

/** The time as 12 digits, and the version. */
function uuidStartOf(ms: number): string {
  const time = ms.toString(16).padStart(12, '0');
  return `${time.slice(0, 8)}-${time.slice(8)}-7`;
}
