import * as crypto from 'node:crypto';
import { randomBytes } from 'node:crypto';
import { isIP } from 'node:net';
import ipaddr from 'ipaddr.js';

const ALPHABET = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
const SECRET_CHARACTERS = 30;
const CHECKSUM_CHARACTERS = 6;
const AFTER_PREFIX = /^[0-9A-Za-z]{36}$/;

/**
 * A new secret: the prefix, 30 random base62 characters (178 bits), and the CRC-32 of both as 6 base62 characters. With the checksum
 * a typo is recognized without a look-up, and secret scanners find tokens without false positives.
 */
function generateToken(prefix: string, random: (bytes: number) => Uint8Array): string {
  return withChecksum(prefix + randomCharacters(random));
}

/** Whether `text` has the form of a token with this prefix, and a correct checksum. The token need not exist. */
function isWellFormedToken(prefix: string, text: string): boolean {
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

const KEY_PREFIX = 'pst_';

/** A new key: a token that begins with `pst_`, see {@link generateToken}. */
export function generateApiKey(random: (bytes: number) => Uint8Array = crypto.randomBytes): string {
  return generateToken(KEY_PREFIX, random);
}

/** Whether `text` has the form of a key and a correct checksum. The key need not exist. */
export function isWellFormedApiKey(text: string): boolean {
  return isWellFormedToken(KEY_PREFIX, text);
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
  return key.slice(0, KEY_PREFIX.length + 6);
}

const INVITATION_PREFIX = 'inv_';

/** An invitation to sign up is made like a key, and stored as a digest too. */
export function generateInvitation(): string {
  return generateToken(INVITATION_PREFIX, randomBytes);
}

export function isWellFormedInvitation(text: string): boolean {
  return isWellFormedToken(INVITATION_PREFIX, text);
}

export type IpAddress = ReturnType<typeof ipaddr.process>;

/** Whether an address is in one of some networks. */
type InNetworks = (address: IpAddress) => boolean;

/** @param networks CIDR ranges or single addresses, each as {@link normalNetwork} accepts them */
export function inNetworks(networks: readonly string[]): InNetworks {
  const ranges = networks.map((network) => ipaddr.parseCIDR(withPrefixLength(network)));
  return (address) => ranges.some(([network, bits]) => network.kind() === address.kind() && address.match(network, bits));
}

/** The same for addresses as text. What is no address is in none. */
export function isFrom(networks: readonly string[]): (address: string) => boolean {
  const isInside = inNetworks(networks);
  return (text) => {
    const address = parseAddress(text);
    return address !== undefined && isInside(address);
  };
}

/** @returns undefined for a text that is no address, such as the path of a Unix socket; IPv4-mapped IPv6 becomes IPv4 */
export function parseAddress(text: string): IpAddress | undefined {
  return isIP(text) === 0 ? undefined : ipaddr.process(text);
}

/** What counts as one address: an IPv4 address, even if written as IPv6; for IPv6 the /64, which usually belongs to one client. */
export function rateLimitAddress(sourceIp: string): string {
  if (isIP(sourceIp) === 4 || !ipaddr.isValid(sourceIp)) return sourceIp;
  const address = ipaddr.process(sourceIp);
  if (!(address instanceof ipaddr.IPv6)) return address.toString();
  return `${new ipaddr.IPv6([...address.parts.slice(0, 4), 0, 0, 0, 0]).toString()}/64`;
}

/** @returns the network with its prefix length and without host bits, e.g. `10.0.0.0/8`; undefined if it is none */
export function normalNetwork(text: string): string | undefined {
  const [, address = '', bits] = /^([^/]+)(?:\/(\d{1,3}))?$/.exec(text) ?? [];
  const version = isIP(address);
  // A zone names an interface of one machine.
  if (version === 0 || address.includes('%') || Number(bits ?? 0) > (version === 6 ? 128 : 32)) return undefined;
  return version === 6 ? networkOfIPv6(withPrefixLength(text)) : networkOfIPv4(withPrefixLength(text));
}

/** Clients with such an address are known by their IPv4 address. */
const MAPPED_BITS = 96;

function networkOfIPv6(network: string): string {
  const [address, bits] = ipaddr.IPv6.parseCIDR(network);
  if (address.isIPv4MappedAddress() && bits >= MAPPED_BITS) return networkOfIPv4(`${address.toIPv4Address()}/${bits - MAPPED_BITS}`);
  return `${ipaddr.IPv6.networkAddressFromCIDR(network)}/${bits}`;
}

function networkOfIPv4(network: string): string {
  return `${ipaddr.IPv4.networkAddressFromCIDR(network)}/${ipaddr.IPv4.parseCIDR(network)[1]}`;
}

function withPrefixLength(network: string): string {
  return network.includes('/') ? network : `${network}/${isIP(network) === 6 ? 128 : 32}`;
}
