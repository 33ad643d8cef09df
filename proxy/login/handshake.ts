import { ServiceError } from '../../src/errors.ts';
import { encodeBackendMessage } from '../../src/protocol/backend.ts';
import {
  decodeStartupPacket,
  NEWEST_MINOR_VERSION,
  type StartupMessage,
  type StartupPacket,
  unsupportedProtocol,
} from '../../src/protocol/startup.ts';
import { protocolViolation } from '../errors.ts';
import { type ClientConnection, ClientGone } from './client-connection.ts';
import type { TlsIdentity } from './tls.ts';

/** Whether and how the wire door speaks TLS. */
export interface TlsPolicy {
  readonly mode: 'off' | 'prefer' | 'require';
  /** Absent: no certificate, so no TLS. Asked for at each handshake, so that a new certificate counts from then on. */
  readonly identity: () => TlsIdentity | undefined;
}

export type Opening = StartupMessage | Extract<StartupPacket, { readonly name: 'CancelRequest' }>;

/** ContentType handshake(22) of a TLS record (RFC 8446 section 5.1): a client that begins TLS without asking. */
const TLS_HANDSHAKE = 0x16;
const CANCEL_REQUEST_CODE = 80_877_102;
/** With a key of 4 bytes, or of up to 256 since protocol 3.2; others are closed without a word. */
const CANCEL_REQUEST_BYTES = Array.from({ length: 253 }, (_, i) => i + 12);
const MIN_STARTUP_BYTES = 8;
const MAX_STARTUP_BYTES = 10_000;

/**
 * Reads what a connection opens with, after whatever encryption was asked for, and answers what must be answered.
 * @throws ServiceError to be told as FATAL; ClientGone when there is nobody to tell
 * @see https://www.postgresql.org/docs/current/protocol-flow.html#PROTOCOL-FLOW-START-UP
 */
export async function handshake(client: ClientConnection, tls: TlsPolicy): Promise<Opening> {
  if ((await client.firstByte()) === TLS_HANDSHAKE) await acceptDirectTls(client, tls);
  const first = decodePacket(client, await readPacket(client));
  const packet = isEncryptionRequest(first) ? await negotiateEncryption(client, tls, first) : first;
  if (packet.name === 'CancelRequest') return packet;
  if (tls.mode === 'require' && !client.encrypted) {
    throw new ServiceError('not_allowed', 'this server accepts only encrypted connections', { hint: 'Connect with sslmode=require.' });
  }
  negotiateVersion(client, packet);
  return packet;
}

/** A client may begin with TLS at once (PostgreSQL 17's `sslnegotiation=direct`). */
async function acceptDirectTls(client: ClientConnection, tls: TlsPolicy): Promise<void> {
  const identity = identityFor(tls);
  if (identity === undefined) throw new ClientGone();
  const secure = await client.upgrade(identity);
  // Without ALPN this may be a request that was meant for a server of another protocol (the ALPACA attack).
  if (secure.alpnProtocol === false) throw new ClientGone();
}

type EncryptionRequest = Extract<StartupPacket, { readonly name: 'SSLRequest' | 'GSSENCRequest' }>;

function isEncryptionRequest(packet: StartupPacket): packet is EncryptionRequest {
  return packet.name === 'SSLRequest' || packet.name === 'GSSENCRequest';
}

/** Answers each kind of request at most once, and none on what is encrypted after one. @returns the packet after them */
async function negotiateEncryption(client: ClientConnection, tls: TlsPolicy, first: EncryptionRequest): Promise<Opening> {
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

/** Nobody sends on before the answer, but somebody in between might (CVE-2021-23214). After `S` the TLS handshake would fail of it. */
function refuseUnasked(client: ClientConnection, request: 'SSLRequest' | 'GSSENCRequest'): void {
  if (!client.hasUnread) return;
  throw protocolViolation(`received unencrypted data after ${request === 'SSLRequest' ? 'SSL' : 'GSSAPI encryption'} request`, {
    detail: 'This could be either a client-software bug or evidence of an attempted man-in-the-middle attack.',
  });
}

/** As Postgres: who does not speak the protocol gets no answer in it. */
function readPacket(client: ClientConnection): Promise<Buffer> {
  return client.readPacket(MIN_STARTUP_BYTES, MAX_STARTUP_BYTES);
}

function decodePacket(client: ClientConnection, packet: Buffer): StartupPacket {
  if (packet.readUInt32BE(0) === CANCEL_REQUEST_CODE && !CANCEL_REQUEST_BYTES.includes(packet.length)) throw new ClientGone();
  if (packet.readUInt16BE(0) < 3) refuseOldProtocol(client, packet);
  return decodeStartupPacket(packet);
}

/** Clients that speak version 2 or 1 understand errors only in the form of those days. */
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
