import { isIP } from 'node:net';
import ipaddr from 'ipaddr.js';

/** What a proxy sends before the client's own bytes. */
export interface ProxyHeader {
  /** Its length; the client's bytes follow. */
  readonly bytes: number;
  /** The client's address; undefined if the proxy itself connects (LOCAL, as health checks do) or does not know it: then the socket's counts. */
  readonly source: string | undefined;
}

/** These bytes are no PROXY header; the message says why, without any of them. */
export class ProxyHeaderError extends Error {
  override readonly name = 'ProxyHeaderError';
}

const SIGNATURE = Buffer.from('\r\n\r\n\0\r\nQUIT\n', 'latin1');
const TEXT_BEGINNING = Buffer.from('PROXY ', 'latin1');
/** With its line end. */
const TEXT_MAX_BYTES = 107;
/** Of version 2: HAProxy's TLVs, a client certificate's name among them, take a few hundred. */
const MAX_BYTES = 2_048;
const FIXED_BYTES = 16;

/**
 * @param received all bytes of the connection so far
 * @returns undefined: more are needed
 * @throws ProxyHeaderError as soon as they cannot begin a header of version 1 or 2 that is accepted
 * @see https://www.haproxy.org/download/3.2/doc/proxy-protocol.txt
 */
export function decodeProxyHeader(received: Buffer): ProxyHeader | undefined {
  if (begins(received, SIGNATURE)) return received.length < FIXED_BYTES ? undefined : decodeBinary(received);
  if (begins(received, TEXT_BEGINNING)) return decodeText(received);
  throw new ProxyHeaderError('there is none');
}

/** Whether the bytes begin with the others, as far as there are any. */
function begins(bytes: Buffer, others: Buffer): boolean {
  const length = Math.min(bytes.length, others.length);
  return bytes.compare(others, 0, length, 0, length) === 0;
}

const TEXT = /^PROXY (?:UNKNOWN(?: [ -~]*)?|TCP([46]) ([\da-fA-F:.]+) ([\da-fA-F:.]+) (0|[1-9]\d{0,4}) (0|[1-9]\d{0,4}))$/;

function decodeText(received: Buffer): ProxyHeader | undefined {
  const end = received.subarray(0, TEXT_MAX_BYTES).indexOf('\r\n');
  if (end === -1 && received.length < TEXT_MAX_BYTES) return undefined;
  const [line, version, source = '', destination = '', ...ports] = TEXT.exec(received.toString('latin1', 0, Math.max(end, 0))) ?? [];
  if (line === undefined) throw new ProxyHeaderError('the line is not valid');
  const bytes = end + 2;
  if (version === undefined) return { bytes, source: undefined };
  const isValid =
    [source, destination].every((address) => isIP(address) === Number(version)) && ports.every((port) => Number(port) <= 65_535);
  if (!isValid) throw new ProxyHeaderError('an address or a port is not valid');
  return { bytes, source: ipaddr.process(source).toString() };
}

/** How many bytes the addresses of each family take, with their ports. */
const ADDRESS_BYTES = [0, 12, 36, 216] as const;
/** How long the source's own address is; a Unix socket has none that counts. */
const SOURCE_BYTES = [0, 4, 16, 0] as const;
const [LOCAL, PROXY] = [0x20, 0x21];
const STREAM = 1;
const TRANSPORTS = 3;

function decodeBinary(received: Buffer): ProxyHeader | undefined {
  const [command, family, transport] = [received.readUInt8(12), received.readUInt8(13) >> 4, received.readUInt8(13) & 0xf];
  const bytes = FIXED_BYTES + received.readUInt16BE(14);
  if (command !== LOCAL && command !== PROXY) throw new ProxyHeaderError('it has another version or command');
  if (bytes > MAX_BYTES) throw new ProxyHeaderError(`it is longer than ${MAX_BYTES} bytes`);
  const addressBytes = ADDRESS_BYTES[family];
  if (command === PROXY && (addressBytes === undefined || transport >= TRANSPORTS)) throw new ProxyHeaderError('its family is unknown');
  if (received.length < bytes) return undefined;
  // What follows LOCAL is to be ignored.
  if (command === LOCAL || addressBytes === undefined) return { bytes, source: undefined };
  const header = received.subarray(0, bytes);
  checkTlvs(header, FIXED_BYTES + addressBytes);
  const source = transport === STREAM ? header.subarray(FIXED_BYTES, FIXED_BYTES + (SOURCE_BYTES[family] ?? 0)) : header.subarray(0, 0);
  return { bytes, source: source.length === 0 ? undefined : ipaddr.process(ipaddr.fromByteArray([...source]).toString()).toString() };
}

const CRC32C = 0x03;
const TLV_HEAD_BYTES = 3;

/** Of the TLVs only the checksum counts. @param start where the first is */
function checkTlvs(header: Buffer, start: number): void {
  let at = start;
  while (at + TLV_HEAD_BYTES <= header.length) {
    const value = header.subarray(at + TLV_HEAD_BYTES, at + TLV_HEAD_BYTES + header.readUInt16BE(at + 1));
    if (header[at] === CRC32C && !hasChecksum(header, at + TLV_HEAD_BYTES, value)) throw new ProxyHeaderError('its checksum is another');
    at += TLV_HEAD_BYTES + header.readUInt16BE(at + 1);
  }
  if (at !== header.length) throw new ProxyHeaderError('it ends within a field');
}

/** Whether the value is that of the whole header with zeroes in its place. */
function hasChecksum(header: Buffer, at: number, value: Buffer): boolean {
  if (value.length !== 4) return false;
  const blanked = Buffer.from(header).fill(0, at, at + 4);
  return crc32c(blanked) === value.readUInt32BE(0);
}

/** The polynomial 0x1EDC6F41, reflected. @see https://www.rfc-editor.org/rfc/rfc3720#appendix-B.4 */
const POLYNOMIAL = 0x82f63b78;

/** Bit by bit: a header is short, and there is one for each connection. */
function crc32c(bytes: Buffer): number {
  let crc = 0xffffffff;
  for (const byte of bytes) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit += 1) crc = (crc & 1) === 1 ? (crc >>> 1) ^ POLYNOMIAL : crc >>> 1;
  }
  return (crc ^ 0xffffffff) >>> 0;
}
