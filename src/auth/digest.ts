import crypto from 'node:crypto';

/** Node 20.12 and later digest in one call; objects made for a single digest cost several times what it does itself. */
const digestOnce = crypto.hash as typeof crypto.hash | undefined;

export function sha256(data: Uint8Array): Buffer {
  if (digestOnce === undefined) return crypto.createHash('sha256').update(data).digest();
  return Buffer.from(digestOnce('sha256', data, 'binary'), 'latin1');
}

const BLOCK_BYTES = 64;
const DIGEST_BYTES = 32;

/** HMAC-SHA-256. @param key of at most {@link BLOCK_BYTES} bytes @see https://www.rfc-editor.org/rfc/rfc2104#section-2 */
export function hmacSha256(key: Uint8Array, data: Uint8Array): Buffer {
  if (digestOnce === undefined || key.length > BLOCK_BYTES) return crypto.createHmac('sha256', key).update(data).digest();
  const inner = Buffer.allocUnsafe(BLOCK_BYTES + data.length);
  const outer = Buffer.allocUnsafe(BLOCK_BYTES + DIGEST_BYTES);
  for (let i = 0; i < BLOCK_BYTES; i++) {
    inner[i] = (key[i] ?? 0) ^ 0x36;
    outer[i] = (key[i] ?? 0) ^ 0x5c;
  }
  inner.set(data, BLOCK_BYTES);
  outer.set(sha256(inner), BLOCK_BYTES);
  return sha256(outer);
}
