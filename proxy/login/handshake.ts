import { ServiceError } from '../../src/errors.ts';
import { encodeBackendMessage } from '../../src/protocol/backend.ts';
import {
  decodeStartupPacket,
  NEWEST_MINOR_VERSION,
  type StartupMessage,
  type StartupPacket,
  unsupportedProtocol,
} from '../../src/protocol/startup.ts';
import type { ClientConnection } from '../client-connection.ts';
import { protocolViolation } from '../errors.ts';
import { ClientGone } from './login-message-reader.ts';
import type { TlsIdentity } from './tls-certificate.ts';

/** Whether and how the wire door uses TLS. */
export interface TlsPolicy {
  readonly mode: 'off' | 'prefer' | 'require';
  /** Undefined: no certificate, so no TLS. Called for each handshake, so that a new certificate is used at once. */
  readonly identity: () => TlsIdentity | undefined;
}

export type StartupOrCancel = StartupMessage | Extract<StartupPacket, { readonly name: 'CancelRequest' }>;

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
