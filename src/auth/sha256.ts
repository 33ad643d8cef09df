import crypto from 'node:crypto';

/** Node 20.12 and later digest in one call; a `Hash` object costs several times as much as the digest itself. */
const digestOnce = crypto.hash as typeof crypto.hash | undefined;

export function sha256(data: Uint8Array): Buffer {
  if (digestOnce === undefined) return crypto.createHash('sha256').update(data).digest();
  return Buffer.from(digestOnce('sha256', data, 'binary'), 'latin1');
}

const BLOCK_BYTES = 64;
const DIGEST_BYTES = 32;
const SHORT_BYTES = 4_096;
/** The inputs of an HMAC's two digests, each beginning with the key. They are overwritten by every call. */
const inner = Buffer.allocUnsafeSlow(BLOCK_BYTES + SHORT_BYTES);
const outer = Buffer.allocUnsafeSlow(BLOCK_BYTES + DIGEST_BYTES);

/** HMAC-SHA-256. For short data and a key of at most one block it allocates no `Hmac` object. @see https://www.rfc-editor.org/rfc/rfc2104#section-2 */
export function hmacSha256(key: Uint8Array, data: Uint8Array): Buffer {
  if (digestOnce === undefined || key.length > BLOCK_BYTES || data.length > SHORT_BYTES) {
    return crypto.createHmac('sha256', key).update(data).digest();
  }
  for (let i = 0; i < BLOCK_BYTES; i++) {
    inner[i] = (key[i] ?? 0) ^ 0x36;
    outer[i] = (key[i] ?? 0) ^ 0x5c;
  }
  inner.set(data, BLOCK_BYTES);
  outer.write(digestOnce('sha256', inner.subarray(0, BLOCK_BYTES + data.length), 'binary'), BLOCK_BYTES, 'latin1');
  return sha256(outer);
}
