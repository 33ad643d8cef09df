import * as crypto from 'node:crypto';
import { generateToken, isWellFormedToken } from './checksummed-token.ts';

const PREFIX = 'pst_';

/** A new key: a token that begins with `pst_`, see {@link generateToken}. */
export function generateApiKey(random: (bytes: number) => Uint8Array = crypto.randomBytes): string {
  return generateToken(PREFIX, random);
}

/** Whether `text` has the form of a key and a correct checksum. The key need not exist. */
export function isWellFormedApiKey(text: string): boolean {
  return isWellFormedToken(PREFIX, text);
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
