import { randomInt } from 'node:crypto';

const ALPHABET = 'abcdefghijklmnopqrstuvwxyz0123456789';
const LENGTH = 12;

/** `org_` and 12 of `[a-z0-9]` (62 bits). It needs no quotes in SQL and reveals nothing about the organization. */
export function newOrganizationId(): string {
  return `org_${random()}`;
}

/** `key_` and 12 of `[a-z0-9]`. */
export function newKeyId(): string {
  return `key_${random()}`;
}

function random(): string {
  return Array.from({ length: LENGTH }, () => ALPHABET[randomInt(ALPHABET.length)]).join('');
}
