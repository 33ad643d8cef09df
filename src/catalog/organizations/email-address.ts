import { domainToASCII, domainToUnicode } from 'node:url';

/** @see https://www.rfc-editor.org/rfc/rfc5321#section-4.5.3.1.3 */
export const EMAIL_MAX_BYTES = 254;
const DOMAIN_MAX_CHARACTERS = 253;

/** Visible characters: the mailbox is read by people. */
const LOCAL_PART = /^(?:[A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]|(?![\p{ASCII}\p{Default_Ignorable_Code_Point}\u2800])[^\p{C}\p{Z}])+$/u;
/** The joiners and the middle dots occur in words of some languages; the full stops are those of East Asia. */
const DOMAIN = /^(?:[A-Za-z0-9.-]|(?!\p{ASCII})[\p{L}\p{M}\p{N}\u200c-\u200d\u00b7\u30fb\u3002\uff0e\uff61])+$/u;
const ASCII_DOMAIN = /^(?:[a-z0-9][a-z0-9-]{0,62}\.)+(?:[a-z]{2,63}|xn--[a-z0-9-]{1,59})$/;

/**
 * Reads an e-mail address; it may be an internationalized one.
 * @returns the address in NFC with its domain in lower case; undefined if it is none
 * @see https://www.rfc-editor.org/rfc/rfc6531#section-3.3
 */
export function parseEmail(text: string): string | undefined {
  if (text.length > EMAIL_MAX_BYTES) return undefined;
  const address = text.normalize('NFC');
  const at = address.lastIndexOf('@');
  const local = address.slice(0, Math.max(0, at));
  const domain = canonicalDomain(address.slice(at + 1));
  if (domain === undefined || !LOCAL_PART.test(local) || local.split('.').includes('')) return undefined;
  const email = `${local}@${domain}`;
  return Buffer.byteLength(email) > EMAIL_MAX_BYTES ? undefined : email;
}

/** By which addresses are the same: whatever the case of their letters, and however the domain is written. */
export function emailKey(email: string): string {
  const at = email.lastIndexOf('@');
  return `${email.slice(0, at).normalize('NFC').toLowerCase().normalize('NFC')}@${domainToASCII(email.slice(at + 1))}`;
}

/** @see https://www.unicode.org/reports/tr46/ */
function canonicalDomain(text: string): string | undefined {
  const ascii = DOMAIN.test(text) ? domainToASCII(text) : '';
  if (ascii.length > DOMAIN_MAX_CHARACTERS || !ASCII_DOMAIN.test(ascii)) return undefined;
  return text.toLowerCase() === ascii ? ascii : domainToUnicode(ascii);
}
