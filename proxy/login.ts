import { beginScram, type ScramMechanism, type ScramOffer, type ScramState, stepScram } from '../src/auth/scram.ts';
import { ServiceError } from '../src/errors.ts';
import type { Origin } from '../src/observation.ts';
import { encodeBackendMessage } from '../src/protocol/backend.ts';
import { decodePasswordMessage, decodeSaslInitialResponse } from '../src/protocol/frontend.ts';
import {
  decodeStartupPacket,
  NEWEST_MINOR_VERSION,
  type StartupMessage,
  type StartupPacket,
  unsupportedProtocol,
} from '../src/protocol/startup.ts';
import type { Authenticator } from '../src/router/authenticator.ts';
import { requireDatabase, type Tenant } from '../src/router/lease.ts';
import { randomSecretBytes } from '../src/runtime/bytes.ts';
import { type ClientConnection, ClientGone, type TlsIdentity } from './client-connection.ts';
import { protocolViolation } from './errors.ts';

const MAX_NAME_BYTES = 63;

/** An authenticated client. */
export interface AuthenticatedClient {
  readonly tenant: Tenant;
  readonly startup: StartupMessage;
  readonly origin: Origin;
}

/**
 * Authenticates a client by its startup message, and checks what else that asks for.
 * @throws ServiceError to be sent as FATAL, ClientGone
 */
export async function logIn(
  client: ClientConnection,
  startup: StartupMessage,
  method: LoginMethod['method'],
  authenticator: Authenticator,
): Promise<AuthenticatedClient> {
  const user = requiredUser(startup);
  const replication = wantsReplication(startup);
  const origin = originOf(client, startup);
  const tenant = await authenticate(client, user, authenticator, { method, channelBinding: client.channelBinding }, origin);
  if (replication) throw new ServiceError('unsupported_protocol', 'replication connections are not supported');
  requireDatabase(tenant, startup.parameters.get('database') || user);
  return { tenant, startup, origin };
}

/**
 * Has the client prove that it is an operator.
 * @returns where it comes from
 * @throws ServiceError to be sent as FATAL, ClientGone
 */
export async function logInOperator(client: ClientConnection, startup: StartupMessage, authenticator: Authenticator): Promise<Origin> {
  const user = requiredUser(startup);
  const replication = wantsReplication(startup);
  const origin = originOf(client, startup);
  const { channelBinding } = client;
  await authenticator.authenticateOperator((verifiers, former) => scramExchange(client, user, verifiers, former, channelBinding), origin);
  if (replication) throw new ServiceError('unsupported_protocol', 'replication connections are not supported');
  return { ...origin, surface: 'admin' };
}

/** As in Postgres, longer names are truncated. */
function requiredUser({ parameters }: StartupMessage): string {
  const given = parameters.get('user') ?? '';
  const user = Buffer.byteLength(given) <= MAX_NAME_BYTES ? given : Buffer.from(given).subarray(0, MAX_NAME_BYTES).toString();
  if (user === '') throw new ServiceError('not_allowed', 'no PostgreSQL user name specified in startup packet');
  return user;
}

/** @returns whether the client requests a replication connection */
function wantsReplication({ parameters }: StartupMessage): boolean {
  const value = parameters.get('replication') ?? 'false';
  if (/^(?:f|fa|fal|fals|false|n|no|of|off|0)$/i.test(value)) return false;
  if (/^(?:t|tr|tru|true|y|ye|yes|on|1|database)$/i.test(value)) return true;
  throw new ServiceError('invalid_request', `invalid value for parameter "replication": "${value}"`, {
    hint: 'Valid values are: "false", 0, "true", 1, "database".',
  });
}

function originOf(client: ClientConnection, { parameters }: StartupMessage): Origin {
  const applicationName = parameters.get('application_name');
  return { surface: 'wire', sourceIp: client.remoteAddress, ...(applicationName === undefined ? {} : { applicationName }) };
}

/** The authentication method. `cleartext` is used only where something else encrypts the connection. */
export interface LoginMethod {
  readonly method: 'scram' | 'cleartext';
  /** tls-server-end-point data of this connection (RFC 5929); present if SCRAM-SHA-256-PLUS is offered. */
  readonly channelBinding?: Uint8Array | undefined;
}

const PASSWORD_MESSAGE = 0x70;
const NONCE_BYTES = 18;
const NO_DATA = Buffer.alloc(0);

/** All clients with the same kind of connection get the same offer. */
const [PLAIN, BOUND] = [offer('SCRAM-SHA-256'), offer('SCRAM-SHA-256-PLUS', 'SCRAM-SHA-256')];

function offer(...mechanisms: readonly ScramMechanism[]) {
  return { mechanisms, message: encodeBackendMessage({ name: 'AuthenticationSASL', mechanisms }) };
}

/**
 * Asks the client for its key and has it checked. After success the caller sends the next messages, together with the
 * final message of the exchange.
 * @throws ServiceError to be sent as FATAL, ClientGone
 */
function authenticate(
  client: ClientConnection,
  user: string,
  authenticator: Authenticator,
  login: LoginMethod,
  origin: Origin,
): Promise<Tenant> {
  if (login.method === 'cleartext') return authenticateByPassword(client, user, authenticator, origin);
  return authenticator.authenticate(
    { kind: 'scram', user, exchange: (verifiers, former) => scramExchange(client, user, verifiers, former, login.channelBinding) },
    origin,
  );
}

async function authenticateByPassword(
  client: ClientConnection,
  user: string,
  authenticator: Authenticator,
  origin: Origin,
): Promise<Tenant> {
  client.write(encodeBackendMessage({ name: 'AuthenticationCleartextPassword' }));
  const apiKey = decodePasswordMessage(await readResponse(client, user, 'password'));
  return authenticator.authenticate({ kind: 'password', user, apiKey }, origin);
}

/**
 * @returns the stored key of the key, or of the former one, that the client proved to know
 * @see https://www.postgresql.org/docs/current/sasl-authentication.html
 */
async function scramExchange(
  client: ClientConnection,
  user: string,
  verifiers: ScramOffer['verifiers'],
  former: readonly Buffer[],
  channelBinding: Uint8Array | undefined,
): Promise<Buffer | undefined> {
  const { mechanisms, message } = channelBinding === undefined ? PLAIN : BOUND;
  client.write(message);
  const initial = decodeSaslInitialResponse(await readResponse(client, user, 'SASL'));
  const mechanism = mechanisms.find((offered) => offered === initial.mechanism);
  if (mechanism === undefined) throw protocolViolation('client selected an invalid SASL authentication mechanism');
  const nonce = randomSecretBytes(NONCE_BYTES).toString('base64');
  let state: ScramState = beginScram({ mechanism, verifiers, former, nonce, channelBinding });
  let input = initial.data;
  if (input === undefined) {
    // If the client has left out its first message, an empty challenge asks for it.
    client.write(encodeBackendMessage({ name: 'AuthenticationSASLContinue', data: NO_DATA }));
    input = await readResponse(client, user, 'SASL');
  }
  for (;;) {
    const { state: next, reply } = stepScram(state, input);
    if (next.name === 'rejected') return next.former;
    if (next.name === 'authenticated') {
      client.hold(encodeBackendMessage({ name: 'AuthenticationSASLFinal', data: reply ?? NO_DATA }));
      return next.storedKey;
    }
    client.write(encodeBackendMessage({ name: 'AuthenticationSASLContinue', data: reply ?? NO_DATA }));
    state = next;
    input = await readResponse(client, user, 'SASL');
  }
}

/** Postgres' limits (PG_MAX_SASL_MESSAGE_LENGTH, PG_MAX_AUTH_TOKEN_LENGTH). */
const MAX_RESPONSE_BYTES = { SASL: 1_024, password: 65_535 };

function readResponse(client: ClientConnection, user: string, expected: 'password' | 'SASL'): Promise<Buffer> {
  const tooLong = () => new ServiceError('unauthorized', `password authentication failed for user "${user}"`);
  return client.login.readMessage(PASSWORD_MESSAGE, expected, MAX_RESPONSE_BYTES[expected], tooLong);
}

/** Whether and how the wire door uses TLS. */
export interface TlsPolicy {
  readonly mode: 'off' | 'prefer' | 'require';
  /** Undefined: no certificate, so no TLS. Called for each handshake, so that a new certificate is used at once. */
  readonly identity: () => TlsIdentity | undefined;
}

type StartupOrCancel = StartupMessage | Extract<StartupPacket, { readonly name: 'CancelRequest' }>;

/** ContentType handshake(22) of a TLS record (RFC 8446 section 5.1): the client starts TLS without an SSLRequest. */
const TLS_HANDSHAKE = 0x16;
const CANCEL_REQUEST_CODE = 80_877_102;
/** CancelRequests with a key of 4 bytes, or of up to 256 since protocol 3.2; others are closed without a reply. */
const CANCEL_REQUEST_BYTES = Array.from({ length: 253 }, (_, i) => i + 12);
const MIN_STARTUP_BYTES = 8;
const MAX_STARTUP_BYTES = 10_000;

/**
 * Reads the startup packet of a connection. It answers requests for encryption before that, and starts TLS.
 * @throws ServiceError to be sent as FATAL; ClientGone when nothing can be sent
 * @see https://www.postgresql.org/docs/current/protocol-flow.html#PROTOCOL-FLOW-START-UP
 */
export async function handshake(client: ClientConnection, tls: TlsPolicy): Promise<StartupOrCancel> {
  if ((await client.login.firstByte()) === TLS_HANDSHAKE) await acceptDirectTls(client, tls);
  const first = decodePacket(client, await readPacket(client));
  const packet = isEncryptionRequest(first) ? await negotiateEncryption(client, tls, first) : first;
  if (packet.name === 'CancelRequest') return packet;
  if (tls.mode === 'require' && !client.encrypted) {
    throw new ServiceError('not_allowed', 'this server accepts only encrypted connections', { hint: 'Connect with sslmode=require.' });
  }
  negotiateVersion(client, packet);
  return packet;
}

/** A client may start TLS at once (PostgreSQL 17's `sslnegotiation=direct`). */
async function acceptDirectTls(client: ClientConnection, tls: TlsPolicy): Promise<void> {
  const identity = identityFor(tls);
  if (identity === undefined) throw new ClientGone();
  const secure = await client.upgrade(identity);
  // Without ALPN this may be a connection that was meant for a server of another protocol (the ALPACA attack).
  if (secure.alpnProtocol === false) throw new ClientGone();
}

type EncryptionRequest = Extract<StartupPacket, { readonly name: 'SSLRequest' | 'GSSENCRequest' }>;

function isEncryptionRequest(packet: StartupPacket): packet is EncryptionRequest {
  return packet.name === 'SSLRequest' || packet.name === 'GSSENCRequest';
}

/** Answers each kind of encryption request at most once, and none on an encrypted connection. @returns the next packet */
async function negotiateEncryption(client: ClientConnection, tls: TlsPolicy, first: EncryptionRequest): Promise<StartupOrCancel> {
  const answered = new Set<string>();
  for (let packet: StartupPacket = first; ; packet = decodePacket(client, await readPacket(client))) {
    if (!isEncryptionRequest(packet)) return packet;
    if (answered.has(packet.name)) throw unsupportedProtocol(1234, packet.name === 'SSLRequest' ? 5679 : 5680);
    answered.add(packet.name);
    const identity = packet.name === 'SSLRequest' && !client.encrypted ? identityFor(tls) : undefined;
    if (identity !== undefined) {
      answered.add('GSSENCRequest');
      client.write(Buffer.from('S'));
      await client.upgrade(identity);
    } else {
      client.write(Buffer.from('N'));
      refuseUnasked(client, packet.name);
    }
  }
}

function identityFor({ mode, identity }: TlsPolicy): TlsIdentity | undefined {
  return mode === 'off' ? undefined : identity();
}

/** Clients send nothing before the answer, but an attacker might inject bytes (CVE-2021-23214). After `S` they make the TLS handshake fail. */
function refuseUnasked(client: ClientConnection, request: 'SSLRequest' | 'GSSENCRequest'): void {
  if (!client.login.hasUnread) return;
  throw protocolViolation(`received unencrypted data after ${request === 'SSLRequest' ? 'SSL' : 'GSSAPI encryption'} request`, {
    detail: 'This could be either a client-software bug or evidence of an attempted man-in-the-middle attack.',
  });
}

/** As in Postgres, a client that does not use the protocol gets no reply. */
function readPacket(client: ClientConnection): Promise<Buffer> {
  return client.login.readPacket(MIN_STARTUP_BYTES, MAX_STARTUP_BYTES);
}

function decodePacket(client: ClientConnection, packet: Buffer): StartupPacket {
  if (packet.readUInt32BE(0) === CANCEL_REQUEST_CODE && !CANCEL_REQUEST_BYTES.includes(packet.length)) throw new ClientGone();
  if (packet.readUInt16BE(0) < 3) refuseOldProtocol(client, packet);
  return decodeStartupPacket(packet);
}

/** Clients of protocol version 1 or 2 understand only the old form of errors. */
function refuseOldProtocol(client: ClientConnection, packet: Buffer): never {
  const { message } = unsupportedProtocol(packet.readUInt16BE(0), packet.readUInt16BE(2));
  client.end(Buffer.from(`EFATAL:  ${message}\n\0`));
  throw new ClientGone();
}

/** @see https://www.postgresql.org/docs/current/protocol-message-formats.html NegotiateProtocolVersion */
function negotiateVersion(client: ClientConnection, { minorVersion, protocolOptions }: StartupMessage): void {
  if (minorVersion <= NEWEST_MINOR_VERSION && protocolOptions.length === 0) return;
  client.write(
    encodeBackendMessage({
      name: 'NegotiateProtocolVersion',
      minorVersion: Math.min(minorVersion, NEWEST_MINOR_VERSION),
      unsupportedOptions: protocolOptions,
    }),
  );
}
