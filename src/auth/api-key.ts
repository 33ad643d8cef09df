import * as crypto from 'node:crypto';

const PREFIX = 'pst_';
const INVITATION_PREFIX = 'inv_';
const ALPHABET = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
const SECRET_CHARACTERS = 30;
const CHECKSUM_CHARACTERS = 6;
const SHAPE = /^pst_[0-9A-Za-z]{36}$/;
const INVITATION_SHAPE = /^inv_[0-9A-Za-z]{36}$/;

/**
 * A new key: `pst_`, 30 random base62 characters (178 bits), and the CRC-32 of both as 6 base62 characters. With the checksum
 * a typo is recognized without a look-up, and secret scanners find keys without false positives.
 */
export function generateApiKey(random: (bytes: number) => Uint8Array = crypto.randomBytes): string {
  return withChecksum(PREFIX + randomCharacters(random));
}

/** An invitation to sign up is made like a key, and stored as a digest too. */
export function generateInvitation(): string {
  return withChecksum(INVITATION_PREFIX + randomCharacters(crypto.randomBytes));
}

/** Whether `text` has the form of a key and a correct checksum. The key need not exist. */
export function isWellFormedApiKey(text: string): boolean {
  return SHAPE.test(text) && hasChecksum(text);
}

export function isWellFormedInvitation(text: string): boolean {
  return INVITATION_SHAPE.test(text) && hasChecksum(text);
}

/** SHA-256. A key has 178 random bits, so it needs no slower hash against guessing. */
export function digestApiKey(key: string): Buffer {
  return Buffer.from(digestText(key), 'latin1');
}

/** The same digest as a string with one character for each byte, for use as a key of maps. */
export const digestText: (key: string) => string =
  // `crypto.hash` is twice as fast; Node has it from 20.12 on.
  typeof crypto.hash === 'function'
    ? (key) => crypto.hash('sha256', key, 'binary')
    : (key) => crypto.createHash('sha256').update(key).digest('binary');

/** `pst_` and the next 6 characters: enough for people to distinguish their keys. */
export function apiKeyPrefix(key: string): string {
  return key.slice(0, PREFIX.length + 6);
}

function withChecksum(unchecked: string): string {
  return unchecked + checksum(unchecked);
}

function hasChecksum(text: string): boolean {
  return text === withChecksum(text.slice(0, -CHECKSUM_CHARACTERS));
}

/** Bytes from 248 up are drawn again, so that every character is equally likely: 248 is the largest multiple of 62 in a byte. */
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

/** CRC-32 as in zip and Ethernet (polynomial 0xEDB88320). node:zlib has it only from Node 20.15 on. */
function crc32(text: string): number {
  let crc = 0xffffffff;
  for (const byte of Buffer.from(text)) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return ~crc >>> 0;
}
