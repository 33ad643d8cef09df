import { timingSafeEqual } from 'node:crypto';
import { ServiceError } from '../errors.ts';
import type { ScramVerifier } from './scram-verifier.ts';
import { hmacSha256, sha256 } from './sha256.ts';

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

export interface ScramStep {
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
