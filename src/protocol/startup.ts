import { ServiceError } from '../errors.ts';
import { BodyReader, stringEnd, violation } from './framing.ts';

/** @see https://www.postgresql.org/docs/current/protocol-message-formats.html#PROTOCOL-MESSAGE-FORMATS-STARTUPMESSAGE */
export interface StartupMessage {
  readonly name: 'StartupMessage';
  /** The minor version of protocol 3 that the client requests; it may be newer than {@link NEWEST_MINOR_VERSION}. */
  readonly minorVersion: number;
  /** Settings, and `user`, `database`, `options`, `replication`, in the order sent. Of a repeated name the last value counts. */
  readonly parameters: ReadonlyMap<string, string>;
  /** Names of the protocol options sent, with their prefix `_pq_.`. */
  readonly protocolOptions: readonly string[];
}

/** The packets that may come first on a connection. They have no type byte. */
export type StartupPacket =
  | StartupMessage
  | { readonly name: 'SSLRequest' }
  | { readonly name: 'GSSENCRequest' }
  | { readonly name: 'CancelRequest'; readonly processId: number; readonly secretKey: Buffer };

/** Postern supports protocol 3.2, of Postgres 18. */
export const NEWEST_MINOR_VERSION = 2;

/** Postgres' MAX_STARTUP_PACKET_LENGTH; the length word itself is not counted. */
const MAX_PACKET_BYTES = 10_000;
/** Request codes in the place of a protocol version: major version 1234, which is reserved for them. */
const CANCEL_REQUEST = 80_877_102;
const SSL_REQUEST = 80_877_103;
const GSSENC_REQUEST = 80_877_104;

/**
 * @param packet without its length word
 * @throws ServiceError unsupported_protocol for another major version, protocol_violation for a wrong layout
 * @see https://github.com/postgres/postgres/blob/master/src/backend/tcop/backend_startup.c ProcessStartupPacket
 */
export function decodeStartupPacket(packet: Buffer): StartupPacket {
  if (packet.length < 4 || packet.length > MAX_PACKET_BYTES) throw violation('frontend', 'invalid length of startup packet');
  const reader = new BodyReader(packet, 'frontend');
  const code = reader.uint32();
  if (code === SSL_REQUEST) return { name: 'SSLRequest' };
  if (code === GSSENC_REQUEST) return { name: 'GSSENCRequest' };
  if (code === CANCEL_REQUEST) return decodeCancelRequest(reader);
  const [major, minor] = [code >>> 16, code & 0xffff];
  if (major !== 3) throw unsupportedProtocol(major, minor);
  return { name: 'StartupMessage', minorVersion: minor, ...decodeParameters(packet.subarray(4)) };
}

/** Postgres sends this also for an SSLRequest or GSSENCRequest that is not allowed: it reads the code as version 1234.5679. */
export function unsupportedProtocol(major: number, minor: number): ServiceError {
  const message = `unsupported frontend protocol ${major}.${minor}: server supports 3.0 to 3.${NEWEST_MINOR_VERSION}`;
  return new ServiceError('unsupported_protocol', message);
}

/** The key has 4 bytes in protocol 3.0, and up to 256 since 3.2. */
function decodeCancelRequest(reader: BodyReader): StartupPacket {
  const processId = reader.int32();
  const secretKey = reader.rest();
  if (secretKey.length < 4 || secretKey.length > 256) throw violation('frontend', 'invalid length of query cancel key');
  return { name: 'CancelRequest', processId, secretKey };
}

/** Pairs of strings. They end with an empty name, which must be the last byte. */
function decodeParameters(bytes: Buffer): Pick<StartupMessage, 'parameters' | 'protocolOptions'> {
  const parameters = new Map<string, string>();
  const protocolOptions: string[] = [];
  let start = 0;
  while (start < bytes.length && bytes[start] !== 0) {
    const nameEnd = stringEnd(bytes, start, bytes.length);
    const valueEnd = nameEnd === -1 ? -1 : stringEnd(bytes, nameEnd + 1, bytes.length);
    if (valueEnd === -1) throw layoutError();
    const name = bytes.toString('utf8', start, nameEnd);
    if (name.startsWith('_pq_.')) protocolOptions.push(name);
    else parameters.set(name, bytes.toString('utf8', nameEnd + 1, valueEnd));
    start = valueEnd + 1;
  }
  if (start !== bytes.length - 1) throw layoutError();
  return { parameters, protocolOptions };
}

function layoutError(): ServiceError {
  return violation('frontend', 'invalid startup packet layout: expected terminator as last byte');
}

/** A setting's name and value, as text. */
export type Setting = readonly [name: string, value: string];

/**
 * The settings made by those switches of `postgres` that a client may use. The others set what a client may not.
 * Undefined: the switch does not accept the value.
 */
const SWITCHES: ReadonlyMap<string, (value: string) => Setting | undefined> = new Map([
  ['c', (value: string) => assignment('-c ', value)],
  ['-', (value: string) => assignment('--', value)],
  ['S', (value: string): Setting => ['work_mem', value]],
  ['f', disabledPlan],
]);

const PLANS: ReadonlyMap<string, string> = new Map([
  ['s', 'enable_seqscan'],
  ['i', 'enable_indexscan'],
  ['o', 'enable_indexonlyscan'],
  ['b', 'enable_bitmapscan'],
  ['t', 'enable_tidscan'],
  ['n', 'enable_nestloop'],
  ['m', 'enable_mergejoin'],
  ['h', 'enable_hashjoin'],
]);

/**
 * The settings in the startup parameter `options`, in order: `-c name=value`, `-cname=value`, `--name=value`, and the
 * switches `-S`, `-f` and `-e`. Words end at white space that no backslash precedes.
 * @throws ServiceError with SQLSTATE 42601 for anything else
 * @see https://github.com/postgres/postgres/blob/master/src/backend/tcop/postgres.c process_postgres_switches
 */
export function parseOptions(options: string): Setting[] {
  const words = splitWords(options);
  const settings: Setting[] = [];
  for (let word = words.shift(); word !== undefined; word = words.shift()) {
    if (word !== '--') settings.push(...parseSwitches(word, words));
    else if (words[0] !== undefined) throw invalidArgument(words[0]);
  }
  return settings;
}

/** One word of switches, as getopt reads them: `-eS64` is `-e -S 64`. @param following the next words; a value that stands apart is taken from them */
function parseSwitches(word: string, following: string[]): Setting[] {
  if (!/^-./s.test(word)) throw invalidArgument(word);
  const settings: Setting[] = [];
  for (let i = 1; i < word.length; i++) {
    if (word.charAt(i) === 'e') {
      settings.push(['datestyle', 'euro']);
      continue;
    }
    const value = i + 1 < word.length ? word.slice(i + 1) : following.shift();
    const setting = value === undefined ? undefined : SWITCHES.get(word.charAt(i))?.(value);
    if (setting === undefined) throw invalidArgument(word);
    return [...settings, setting];
  }
  return settings;
}

/** @see https://github.com/postgres/postgres/blob/master/src/backend/utils/init/postinit.c pg_split_opts */
function splitWords(options: string): string[] {
  const words = options.match(/(?:\\.?|[^ \t\n\v\f\r\\])+/gs) ?? [];
  return words.map((word) => word.replace(/\\(.?)/gs, '$1'));
}

/** `name=value`; a `-` in the name means `_`. */
function assignment(prefix: string, text: string): Setting {
  const equals = text.indexOf('=');
  if (equals === -1) throw syntaxError(`${prefix}${text} requires a value`);
  return [text.slice(0, equals).replaceAll('-', '_'), text.slice(equals + 1)];
}

function disabledPlan(letter: string): Setting | undefined {
  const plan = PLANS.get(letter.charAt(0));
  return plan === undefined ? undefined : [plan, 'false'];
}

function invalidArgument(word: string): ServiceError {
  return syntaxError(`invalid command-line argument for server process: ${word}`, 'Try "postgres --help" for more information.');
}

function syntaxError(message: string, hint?: string): ServiceError {
  return new ServiceError('invalid_request', message, { sqlstate: '42601', ...(hint === undefined ? {} : { hint }) });
}
