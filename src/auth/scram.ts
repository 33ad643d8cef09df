import crypto, { pbkdf2, randomBytes, timingSafeEqual } from 'node:crypto';
import { promisify } from 'node:util';
import { ServiceError } from '../errors.ts';

/** How many former passwords of a user are recognized. */
export const SCRAM_FORMER_MAX = 5;
export type ScramMechanism = 'SCRAM-SHA-256' | 'SCRAM-SHA-256-PLUS';

/** One login attempt, before the client's first message. */
export interface ScramOffer {
  /** The mechanism that the client selected. */
  readonly mechanism: ScramMechanism;
  /** Of each password of the user; all have the same salt and iterations, which are sent before the client's proof. At least one. */
  readonly verifiers: readonly [ScramVerifier, ...ScramVerifier[]];
  /** Stored keys of former passwords, with the same salt and iterations. A client that proves to know one is rejected with an error that says so. */
  readonly former?: readonly Buffer[];
  /** The server's half of the nonce: printable ASCII without a comma, e.g. 18 random bytes as base64. */
  readonly nonce: string;
  /** This connection's tls-server-end-point data (RFC 5929); present exactly when SCRAM-SHA-256-PLUS was offered. */
  readonly channelBinding?: Uint8Array | undefined;
}

/** gs2-cbind-flag: `p` the client uses channel binding, `y` it supports it but thinks the server does not, `n` it does not support it. */
type BindingFlag = 'p' | 'y' | 'n';

interface AwaitingClientFinal {
  readonly name: 'awaitingClientFinal';
  readonly offer: ScramOffer;
  readonly flag: BindingFlag;
  /** The client's and the server's nonce together. */
  readonly nonce: string;
  /** client-first-message-bare and server-first-message: the beginning of AuthMessage, which both sides sign. */
  readonly transcript: string;
}

/** @see https://www.rfc-editor.org/rfc/rfc5802#section-5 */
export type ScramState =
  | { readonly name: 'awaitingClientFirst'; readonly offer: ScramOffer }
  | AwaitingClientFinal
  /** `storedKey`: that of the verifier with which the client's password agrees. */
  | { readonly name: 'authenticated'; readonly storedKey: Buffer }
  /** `former`: the stored key of the former password that the client proved to know. */
  | { readonly name: 'rejected'; readonly former?: Buffer };

interface ScramStep {
  readonly state: ScramState;
  /** For AuthenticationSASLContinue when the exchange goes on, for AuthenticationSASLFinal when authenticated; undefined when rejected. */
  readonly reply: Buffer | undefined;
}

/** The state that awaits the client's first message. */
export function beginScram(offer: ScramOffer): ScramState {
  return { name: 'awaitingClientFirst', offer };
}

/**
 * Processes one SASL message of the client. A wrong password leads to the state `rejected` and throws nothing.
 * @throws ServiceError for malformed messages: protocol_violation (08P01), or 28000 and 0A000 where Postgres uses these
 */
export function stepScram(state: ScramState, input: Buffer): ScramStep {
  if (input.length === 0) throw malformed('The message is empty.');
  if (input.includes(0)) throw malformed('Message length does not match input length.');
  switch (state.name) {
    case 'awaitingClientFirst':
      return takeClientFirst(state.offer, input.toString('latin1'));
    case 'awaitingClientFinal':
      return takeClientFinal(state, input.toString('latin1'));
    case 'authenticated':
    case 'rejected':
      throw violation('unexpected SASL response: the exchange is over');
  }
}

/** @see https://github.com/postgres/postgres/blob/master/src/backend/libpq/auth-scram.c read_client_first_message */
function takeClientFirst(offer: ScramOffer, text: string): ScramStep {
  const message = new AttributeReader(text);
  const flag = takeBindingFlag(offer, message);
  if (message.peek() === 'a') throw unsupported('client uses authorization identity, but it is not supported');
  if (message.peek() !== ',') throw malformed(`Unexpected attribute ${quote(message.peek())} in client-first-message.`);
  message.skip();
  const bare = message.rest();
  if (message.peek() === 'm') throw unsupported('client requires an unsupported SCRAM extension');
  // The user is the one of the startup message; this one is ignored, as in Postgres.
  message.take('n');
  const clientNonce = message.take('r');
  if (!/^[\x21-\x7e]*$/.test(clientNonce)) throw violation('non-printable characters in SCRAM nonce');
  while (message.peek() !== '') message.takeAny();

  const [{ salt, iterations }] = offer.verifiers;
  const nonce = clientNonce + offer.nonce;
  const serverFirst = `r=${nonce},s=${salt.toString('base64')},i=${iterations}`;
  const state = { name: 'awaitingClientFinal', offer, flag, nonce, transcript: `${bare},${serverFirst}` } as const;
  return { state, reply: Buffer.from(serverFirst, 'latin1') };
}

/** @see https://github.com/postgres/postgres/blob/master/src/backend/libpq/auth-scram.c read_client_final_message */
function takeClientFinal(state: AwaitingClientFinal, text: string): ScramStep {
  const message = new AttributeReader(text);
  checkChannelBinding(state, message.take('c'));
  const nonce = message.take('r');
  const [unproved, proof] = takeProof(message);
  if (nonce !== state.nonce) throw violation('invalid SCRAM response', 'Nonce does not match.');

  const { verifiers, former = [] } = state.offer;
  const signed = Buffer.from(`${state.transcript},${unproved}`, 'latin1');
  const storedKey = provenKey([...verifiers.map((verifier) => verifier.storedKey), ...former], proof, signed);
  const verifier = verifiers.find((one) => one.storedKey === storedKey);
  if (storedKey === undefined) return { state: { name: 'rejected' }, reply: undefined };
  if (verifier === undefined) return { state: { name: 'rejected', former: storedKey }, reply: undefined };
  const reply = Buffer.from(`v=${hmacSha256(verifier.serverKey, signed).toString('base64')}`, 'latin1');
  return { state: { name: 'authenticated', storedKey }, reply };
}

/**
 * All keys are compared, and the last one again until there are 1, 2, 4, 8 …: the time does not tell which password was right, and tells
 * of their number only in which of these ranges it lies. It does not tell whether a user exists, see {@link mockVerifiers}.
 * @returns the one of these stored keys whose password the client knows
 */
function provenKey(storedKeys: readonly Buffer[], proof: Buffer, signed: Buffer): Buffer | undefined {
  const compared = 2 ** Math.ceil(Math.log2(storedKeys.length));
  let found: Buffer | undefined;
  for (let i = 0; i < compared; i++) {
    const storedKey = storedKeys[Math.min(i, storedKeys.length - 1)];
    if (storedKey !== undefined && matches(proof, storedKey, signed)) found ??= storedKey;
  }
  return found;
}

function matches(proof: Buffer, storedKey: Buffer, signed: Buffer): boolean {
  const clientKey = xor(proof, hmacSha256(storedKey, signed));
  return timingSafeEqual(sha256(clientKey), storedKey);
}

/** Reads the gs2-cbind-flag and its comma. @throws ServiceError when it contradicts the selected mechanism or the offer */
function takeBindingFlag(offer: ScramOffer, message: AttributeReader): BindingFlag {
  const flag = message.peek();
  const bound = offer.mechanism === 'SCRAM-SHA-256-PLUS';
  if (flag === 'p') {
    if (!bound)
      throw malformed('The client selected SCRAM-SHA-256 without channel binding, but the SCRAM message includes channel binding data.');
    const type = message.take('p');
    if (type !== 'tls-server-end-point') throw violation(`unsupported SCRAM channel-binding type "${printable(type)}"`);
    return flag;
  }
  if (flag !== 'n' && flag !== 'y') throw malformed(`Unexpected channel-binding flag ${quote(flag)}.`);
  if (bound) throw malformed('The client selected SCRAM-SHA-256-PLUS, but the SCRAM message does not include channel binding data.');
  if (flag === 'y' && offer.channelBinding !== undefined) throw strippedOffer();
  message.skip();
  if (message.peek() !== ',') throw malformed(`Comma expected, but found character ${quote(message.peek())}.`);
  message.skip();
  return flag;
}

/** `c=` repeats the gs2 header, followed by the channel binding data if there is any (RFC 5802 section 7). */
function checkChannelBinding({ flag, offer }: AwaitingClientFinal, given: string): void {
  if (flag !== 'p') {
    if (given === UNBOUND_HEADERS[flag]) return;
    throw violation('unexpected SCRAM channel-binding attribute in client-final-message');
  }
  const data = offer.channelBinding;
  if (data !== undefined && given === Buffer.concat([Buffer.from('p=tls-server-end-point,,'), data]).toString('base64')) return;
  throw new ServiceError('not_allowed', 'SCRAM channel binding check failed');
}

/** `n,,` and `y,,` in base64. */
const UNBOUND_HEADERS = { n: 'biws', y: 'eSws' };

/** The proof, which must come last, and the message before it. */
function takeProof(message: AttributeReader): [unproved: string, proof: Buffer] {
  for (;;) {
    const unproved = message.consumed();
    const [attribute, value] = message.takeAny();
    if (attribute !== 'p') continue;
    const proof = Buffer.from(value, 'base64');
    if (proof.length !== 32 || proof.toString('base64') !== value) throw malformed('Malformed proof in client-final-message.');
    if (message.peek() !== '') throw malformed('Garbage found at the end of client-final-message.');
    return [unproved, proof];
  }
}

/** Reads `a=value,b=value` from left to right, with Postgres' error texts. */
class AttributeReader {
  readonly #text: string;
  #position = 0;

  constructor(text: string) {
    this.#text = text;
  }

  /** The next character; '' at the end. */
  peek(): string {
    return this.#text.charAt(this.#position);
  }

  skip(): void {
    this.#position++;
  }

  rest(): string {
    return this.#text.slice(this.#position);
  }

  /** What was read so far, without the comma at its end. */
  consumed(): string {
    return this.#text.slice(0, this.#position - 1);
  }

  take(attribute: string): string {
    if (this.peek() !== attribute) throw malformed(`Expected attribute "${attribute}" but found ${quote(this.peek())}.`);
    return this.#value(attribute);
  }

  takeAny(): [attribute: string, value: string] {
    const attribute = this.peek();
    if (attribute === '') throw malformed('Attribute expected, but found end of string.');
    if (!/[A-Za-z]/.test(attribute)) throw malformed(`Attribute expected, but found invalid character ${quote(attribute)}.`);
    return [attribute, this.#value(attribute)];
  }

  #value(attribute: string): string {
    this.skip();
    if (this.peek() !== '=') throw malformed(`Expected character "=" for attribute "${attribute}".`);
    this.skip();
    const comma = this.#text.indexOf(',', this.#position);
    const end = comma === -1 ? this.#text.length : comma;
    const value = this.#text.slice(this.#position, end);
    this.#position = comma === -1 ? end : comma + 1;
    return value;
  }
}

function strippedOffer(): ServiceError {
  return new ServiceError('not_allowed', 'SCRAM channel binding negotiation error', {
    detail: 'The client supports SCRAM channel binding but thinks the server does not.  However, this server does support channel binding.',
  });
}

function malformed(detail: string): ServiceError {
  return violation('malformed SCRAM message', detail);
}

function violation(message: string, detail?: string): ServiceError {
  return new ServiceError('protocol_violation', message, detail === undefined ? {} : { detail });
}

function unsupported(message: string): ServiceError {
  return new ServiceError('unsupported_protocol', message);
}

/** A character from the client, made safe for an error message (Postgres' sanitize_char). */
function quote(character: string): string {
  const code = character === '' ? 0 : character.charCodeAt(0);
  return code > 0x20 && code < 0x7f ? `"'${character}'"` : `"0x${code.toString(16).padStart(2, '0')}"`;
}

/** A value from the client, made safe for an error message (Postgres' sanitize_str). */
function printable(text: string): string {
  return text.slice(0, 29).replace(/[^\x21-\x7e]/g, '?');
}

function xor(a: Buffer, b: Buffer): Buffer {
  const both = Buffer.allocUnsafe(a.length);
  for (let i = 0; i < a.length; i++) both[i] = (a[i] ?? 0) ^ (b[i] ?? 0);
  return both;
}

/**
 * What a server stores to verify a password without knowing it (RFC 5802 section 3).
 * @see https://www.postgresql.org/docs/current/sasl-authentication.html#SASL-SCRAM-SHA-256
 */
export interface ScramVerifier {
  readonly iterations: number;
  readonly salt: Buffer;
  /** SHA-256 of the client's key; 32 bytes. */
  readonly storedKey: Buffer;
  /** Makes the ServerSignature, which proves to the client that the server has the verifier; 32 bytes. */
  readonly serverKey: Buffer;
}

/** Every verifier here is made with these, as in Postgres: mock verifiers must look like real ones. */
export const SCRAM_ITERATIONS = 4096;
export const SCRAM_SALT_BYTES = 16;

/** A user who does not exist seems to have at most so many passwords. */
const MOCK_VERIFIERS_MAX = 8;
/** A digest of nothing: no client can prove that it knows the key. */
const MOCK_KEY = randomBytes(32);

/**
 * @param salt {@link SCRAM_SALT_BYTES} random bytes
 * @param iterations {@link SCRAM_ITERATIONS}, unless there is a reason
 */
export async function deriveVerifier(password: string, salt: Buffer, iterations: number): Promise<ScramVerifier> {
  const saltedPassword = await promisify(pbkdf2)(saslprep(password), salt, iterations, 32, 'sha256');
  const storedKey = sha256(hmacSha256(saltedPassword, Buffer.from('Client Key')));
  return { iterations, salt, storedKey, serverKey: hmacSha256(saltedPassword, Buffer.from('Server Key')) };
}

/** The format of `pg_authid.rolpassword`; `CREATE ROLE … PASSWORD` accepts it in the place of a cleartext password. */
export function formatVerifier(verifier: ScramVerifier): string {
  const [salt, storedKey, serverKey] = [verifier.salt, verifier.storedKey, verifier.serverKey].map((part) => part.toString('base64'));
  return `SCRAM-SHA-256$${verifier.iterations}:${salt}$${storedKey}:${serverKey}`;
}

/**
 * Verifiers for a user who does not exist. No password matches them. Their salt and their number are the same at every attempt, as a
 * real user's are: half of these users seem to have one password, a quarter two, and so on.
 * @param secret known to this service alone: with it anybody could compute the salts and find out which users exist
 */
export function mockVerifiers(user: string, secret: Buffer): readonly [ScramVerifier, ...ScramVerifier[]] {
  const digest = hmacSha256(secret, Buffer.from(`scram mock salt\0${user}`));
  const salt = digest.subarray(0, SCRAM_SALT_BYTES);
  const mock = { iterations: SCRAM_ITERATIONS, salt, storedKey: MOCK_KEY, serverKey: MOCK_KEY };
  const count = Math.min(2 ** Math.clz32(digest.readUInt32BE(SCRAM_SALT_BYTES)), MOCK_VERIFIERS_MAX);
  return [mock, ...Array<ScramVerifier>(count - 1).fill(mock)];
}

/** Non-ASCII spaces (RFC 3454 C.1.2) become a space. */
const SPACES = /[\u00A0\u1680\u2000-\u200B\u202F\u205F\u3000]/gu;
/** Commonly mapped to nothing (RFC 3454 B.1). */
const IGNORED = /\u00AD|\u034F|\u1806|[\u180B-\u180D]|\u200C|\u200D|\u2060|[\uFE00-\uFE0F]|\uFEFF/gu;
/** RFC 3454 C.2.1 to C.9: control characters, private use, non-characters, surrogates, characters that change how text is shown, tags. */
const PROHIBITED = new RegExp(
  [
    '[\\p{Cc}\\p{Co}\\p{Cs}\\p{Noncharacter_Code_Point}]',
    '[\\u0340\\u0341\\u06DD\\u070F\\u180E\\u200E\\u200F\\u2028-\\u202E\\u2061-\\u2063\\u206A-\\u206F\\u2FF0-\\u2FFB\\uFFF9-\\uFFFD]',
    '[\\u{1D173}-\\u{1D17A}\\u{E0001}\\u{E0020}-\\u{E007F}]',
  ].join('|'),
  'u',
);
/** RFC 3454 A.1, but by the Unicode version of Node instead of 3.2. */
const UNASSIGNED = /\p{Cn}/u;
/** Letters written from right to left (RFC 3454 D.1), by script; then every other letter (D.2). */
const RIGHT_TO_LEFT = /(?=\p{L})[\p{Script=Hebrew}\p{Script=Arabic}\p{Script=Syriac}\p{Script=Thaana}]/u;
const LEFT_TO_RIGHT = /(?![\p{Script=Hebrew}\p{Script=Arabic}\p{Script=Syriac}\p{Script=Thaana}])\p{L}/u;

/**
 * SASLprep (RFC 4013) as Postgres applies it to passwords: plain ASCII stays as it is, and a password that SASLprep would
 * refuse is used unchanged instead.
 * @see https://github.com/postgres/postgres/blob/master/src/common/saslprep.c
 */
export function saslprep(password: string): string {
  if (isAscii(password)) return password;
  const mapped = password.replace(SPACES, ' ').replace(IGNORED, '');
  if (mapped === '' || PROHIBITED.test(mapped) || UNASSIGNED.test(mapped) || mixesDirections(mapped)) return password;
  return mapped.normalize('NFKC');
}

function isAscii(text: string): boolean {
  return Buffer.byteLength(text) === text.length;
}

/** RFC 3454 section 6: text with a right-to-left letter has no left-to-right one, and begins and ends with right-to-left. */
function mixesDirections(text: string): boolean {
  if (!RIGHT_TO_LEFT.test(text)) return false;
  const characters = Array.from(text);
  const ends = [characters[0] ?? '', characters.at(-1) ?? ''];
  return LEFT_TO_RIGHT.test(text) || !ends.every((character) => RIGHT_TO_LEFT.test(character));
}

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
