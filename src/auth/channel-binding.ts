import { createHash } from 'node:crypto';

/**
 * tls-server-end-point: binds a login to the certificate that the client sees, so that a server with another certificate
 * cannot relay the login. It is a hash of the certificate, by the hash function of its signature; SHA-256 where that is MD5 or SHA-1.
 * @param certificate in DER
 * @returns undefined where the RFC defines none: the signature uses no hash or several (Ed25519); or where the hash is unknown here
 * @see https://www.rfc-editor.org/rfc/rfc5929#section-4.1
 */
export function tlsServerEndPoint(certificate: Buffer): Buffer | undefined {
  const hash = signatureHash(certificate);
  if (hash === undefined) return undefined;
  return createHash(hash === 'md5' || hash === 'sha1' ? 'sha256' : hash)
    .update(certificate)
    .digest();
}

/** Signature algorithms with a fixed hash: RFC 8017 appendix A.2, RFC 5758. */
const SIGNATURE_HASHES: ReadonlyMap<string, string> = new Map([
  ['1.2.840.113549.1.1.4', 'md5'],
  ['1.2.840.113549.1.1.5', 'sha1'],
  ['1.2.840.113549.1.1.11', 'sha256'],
  ['1.2.840.113549.1.1.12', 'sha384'],
  ['1.2.840.113549.1.1.13', 'sha512'],
  ['1.2.840.113549.1.1.14', 'sha224'],
  ['1.2.840.10045.4.1', 'sha1'],
  ['1.2.840.10045.4.3.1', 'sha224'],
  ['1.2.840.10045.4.3.2', 'sha256'],
  ['1.2.840.10045.4.3.3', 'sha384'],
  ['1.2.840.10045.4.3.4', 'sha512'],
]);

/** RSASSA-PSS has its hash in its parameters. */
const RSASSA_PSS = '1.2.840.113549.1.1.10';
const HASHES: ReadonlyMap<string, string> = new Map([
  ['1.3.14.3.2.26', 'sha1'],
  ['2.16.840.1.101.3.4.2.1', 'sha256'],
  ['2.16.840.1.101.3.4.2.2', 'sha384'],
  ['2.16.840.1.101.3.4.2.3', 'sha512'],
  ['2.16.840.1.101.3.4.2.4', 'sha224'],
]);

/** `Certificate ::= SEQUENCE { tbsCertificate, signatureAlgorithm, signatureValue }` (RFC 5280 section 4.1). */
function signatureHash(certificate: Buffer): string | undefined {
  const [, signatureAlgorithm] = inside(elements(certificate)[0]);
  const [algorithm, parameters] = inside(signatureAlgorithm);
  const name = objectIdentifier(algorithm);
  return name === RSASSA_PSS ? pssHash(parameters) : SIGNATURE_HASHES.get(name);
}

/** `RSASSA-PSS-params ::= SEQUENCE { [0] hashAlgorithm DEFAULT sha1, ... }` (RFC 8017 appendix A.2.3). */
function pssHash(parameters: Element | undefined): string | undefined {
  const hashAlgorithm = inside(parameters).find(({ tag }) => tag === CONTEXT_0);
  if (hashAlgorithm === undefined) return 'sha1';
  const [name] = inside(inside(hashAlgorithm)[0]);
  return HASHES.get(objectIdentifier(name));
}

/** One value of DER (ITU-T X.690): its tag and its content. */
interface Element {
  readonly tag: number;
  readonly content: Buffer;
}

const OBJECT_IDENTIFIER = 0x06;
const CONTEXT_0 = 0xa0;

function inside(element: Element | undefined): Element[] {
  return element === undefined ? [] : elements(element.content);
}

/** @returns the values that follow each other, up to the first that is cut off or longer than 4 GB */
function elements(der: Buffer): Element[] {
  const found: Element[] = [];
  let at = 0;
  while (at + 2 <= der.length) {
    const tag = der.readUInt8(at);
    let length = der.readUInt8(at + 1);
    at += 2;
    if (length >= 0x80) {
      const lengthBytes = length - 0x80;
      if (lengthBytes < 1 || lengthBytes > 4 || at + lengthBytes > der.length) break;
      length = der.readUIntBE(at, lengthBytes);
      at += lengthBytes;
    }
    if (at + length > der.length) break;
    found.push({ tag, content: der.subarray(at, at + length) });
    at += length;
  }
  return found;
}

/** @returns e.g. `1.2.840.113549.1.1.11`; '' when the element is no object identifier */
function objectIdentifier(element: Element | undefined): string {
  if (element?.tag !== OBJECT_IDENTIFIER) return '';
  const arcs: number[] = [];
  let arc = 0;
  for (const byte of element.content) {
    arc = arc * 128 + (byte & 0x7f);
    if (byte >= 0x80) continue;
    arcs.push(arc);
    arc = 0;
  }
  // The first two arcs share a number: 40 times the first, which is at most 2, and the second.
  const [joint = 0, ...rest] = arcs;
  const first = Math.min(Math.trunc(joint / 40), 2);
  return [first, joint - 40 * first, ...rest].join('.');
}
