import * as crypto from 'node:crypto';

const PREFIX = 'pst_';
const ALPHABET = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
const SECRET_CHARACTERS = 30;
const CHECKSUM_CHARACTERS = 6;
const SHAPE = /^pst_[0-9A-Za-z]{36}$/;

/**
 * A new key: `pst_`, 30 random base62 characters (178 bits), and the CRC-32 of all that as 6 base62 characters, so that a
 * typo or a secret scanner's find is told from a key without asking anyone.
 */
export function generateApiKey(random: (bytes: number) => Uint8Array = crypto.randomBytes): string {
  const unchecked = PREFIX + randomCharacters(random);
  return unchecked + checksum(unchecked);
}

/** Whether `text` has a key's form and its checksum is right; says nothing about whether the key exists. */
export function isWellFormedApiKey(text: string): boolean {
  if (!SHAPE.test(text)) return false;
  return checksum(text.slice(0, -CHECKSUM_CHARACTERS)) === text.slice(-CHECKSUM_CHARACTERS);
}

/** SHA-256: a key has 178 random bits, so nothing slower is needed to keep it from being guessed. */
export function digestApiKey(key: string): Buffer {
  return Buffer.from(digestText(key), 'latin1');
}

/** The same digest with a character for each byte, as the name that a key is known by in memory. */
export const digestText: (key: string) => string =
  // At once is twice as fast, and there from Node 20.12 on.
  typeof crypto.hash === 'function'
    ? (key) => crypto.hash('sha256', key, 'binary')
    : (key) => crypto.createHash('sha256').update(key).digest('binary');

/** `pst_` and the first 6 characters: enough for people to tell their keys apart. */
export function apiKeyPrefix(key: string): string {
  return key.slice(0, PREFIX.length + 6);
}

/** Bytes from 248 up are drawn again: 248 is the largest multiple of 62 in a byte, and so every character is equally likely. */
function randomCharacters(random: (bytes: number) => Uint8Array): string {
  let text = '';
  while (text.length < SECRET_CHARACTERS) {
    for (const byte of random(SECRET_CHARACTERS - text.length)) {
      if (byte < 248) text += ALPHABET.charAt(byte % 62);
    }
  }
  return text;
}

function checksum(text: string): string {
  let rest = crc32(text);
  let digits = '';
  for (let i = 0; i < CHECKSUM_CHARACTERS; i++) {
    digits = ALPHABET.charAt(rest % 62) + digits;
    rest = Math.floor(rest / 62);
  }
  return digits;
}

/** CRC-32 as in zip and Ethernet (polynomial 0xEDB88320). node:zlib has one only from Node 20.15 on. */
function crc32(text: string): number {
  let crc = 0xffffffff;
  for (const byte of Buffer.from(text)) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return ~crc >>> 0;
}
