import { randomFillSync } from 'node:crypto';

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
