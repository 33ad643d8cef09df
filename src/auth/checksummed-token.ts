const ALPHABET = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
const SECRET_CHARACTERS = 30;
const CHECKSUM_CHARACTERS = 6;
const AFTER_PREFIX = /^[0-9A-Za-z]{36}$/;

/**
 * A new secret: the prefix, 30 random base62 characters (178 bits), and the CRC-32 of both as 6 base62 characters. With the checksum
 * a typo is recognized without a look-up, and secret scanners find tokens without false positives.
 */
export function generateToken(prefix: string, random: (bytes: number) => Uint8Array): string {
  return withChecksum(prefix + randomCharacters(random));
}

/** Whether `text` has the form of a token with this prefix, and a correct checksum. The token need not exist. */
export function isWellFormedToken(prefix: string, text: string): boolean {
  return text.startsWith(prefix) && AFTER_PREFIX.test(text.slice(prefix.length)) && hasChecksum(text);
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
