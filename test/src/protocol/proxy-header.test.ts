import { describe, expect, it } from 'vitest';
import { decodeProxyHeader, ProxyHeaderError } from '../../../src/protocol/proxy-header.ts';
import { SeededRandom } from '../../support/random.ts';

const text = (line: string) => Buffer.from(`${line}\r\n`, 'latin1');
const SIGNATURE = '0d0a0d0a000d0a515549540a';
/** @param rest hexadecimal, after the length */
const binary = (command: string, family: string, rest: string) =>
  Buffer.from(`${SIGNATURE}${command}${family}${(rest.length / 2).toString(16).padStart(4, '0')}${rest}`, 'hex');

const IPV4 = 'c6336407' + '0a000001' + 'dc04' + '3265';
const IPV6 = '20010db8000000000000000000000007' + '20010db8000000000000000000000001' + 'dc04' + '3265';
const MAPPED = '00000000000000000000ffffc6336407' + '00000000000000000000ffff0a000001' + 'dc04' + '3265';
/** What HAProxy 2.6 sent with `send-proxy-v2 proxy-v2-options crc32c,ssl` for a client at 127.0.0.1 without TLS. */
const SEEN = Buffer.from(`${SIGNATURE}2111001b7f0000017f0000019eac329b030004dc10c53e2000050000000000`, 'hex');

describe('a PROXY header', () => {
  it.each([
    ['TCP4', text('PROXY TCP4 198.51.100.7 10.0.0.1 56324 12901'), '198.51.100.7'],
    ['TCP6', text('PROXY TCP6 2001:0db8:0::7 2001:db8::1 56324 12901'), '2001:db8::7'],
    ['an IPv4 address as IPv6', text('PROXY TCP6 ::ffff:198.51.100.7 ::ffff:10.0.0.1 1 2'), '198.51.100.7'],
    ['UNKNOWN', text('PROXY UNKNOWN'), undefined],
    ['UNKNOWN with more', text('PROXY UNKNOWN ffff::1 ffff::2 1 2'), undefined],
    ['the longest line', text(`PROXY UNKNOWN ${'f'.repeat(91)}`), undefined],
    ['LOCAL', binary('20', '00', ''), undefined],
    ['LOCAL with an address, which does not count', binary('20', '11', IPV4), undefined],
    ['LOCAL with anything', binary('20', 'ff', '030004'), undefined],
    ['INET', binary('21', '11', IPV4), '198.51.100.7'],
    ['INET6', binary('21', '21', IPV6), '2001:db8::7'],
    ['INET6 of an IPv4 address', binary('21', '21', MAPPED), '198.51.100.7'],
    ['UNIX', binary('21', '31', '2f'.repeat(216)), undefined],
    ['no family', binary('21', '00', ''), undefined],
    ['datagrams', binary('21', '12', IPV4), undefined],
    ['fields', binary('21', '11', `${IPV4}0100026832${'20000500000000 00'.replaceAll(' ', '')}`), '198.51.100.7'],
    ['2 KiB of fields', binary('21', '11', `${IPV4}eb07d1${'00'.repeat(2_001)}${'040000'.repeat(5)}`), '198.51.100.7'],
  ])('is read: %s', (_name, header, source) => {
    const rest = Buffer.from('the rest');
    expect(decodeProxyHeader(Buffer.concat([header, rest]))).toEqual({ bytes: header.length, source });
    for (let bytes = 0; bytes < header.length; bytes += 1) expect(decodeProxyHeader(header.subarray(0, bytes))).toBeUndefined();
  });

  it.each([
    ['nothing of the kind', Buffer.from('G')],
    ['lower case', Buffer.from('proxy ')],
    ['another signature', Buffer.from(SIGNATURE.replace(/0a$/, '0b'), 'hex')],
    ['two spaces', text('PROXY  TCP4 198.51.100.7 10.0.0.1 1 2')],
    ['a space at the end', text('PROXY TCP4 198.51.100.7 10.0.0.1 1 2 ')],
    ['no ports', text('PROXY TCP4 198.51.100.7 10.0.0.1')],
    ['a port above 65535', text('PROXY TCP4 198.51.100.7 10.0.0.1 1 65536')],
    ['a port with a zero before it', text('PROXY TCP4 198.51.100.7 10.0.0.1 01 2')],
    ['an address of the other version', text('PROXY TCP4 2001:db8::7 10.0.0.1 1 2')],
    ['a destination of the other version', text('PROXY TCP6 2001:db8::7 10.0.0.1 1 2')],
    ['a name', text('PROXY TCP4 db.example 10.0.0.1 1 2')],
    ['a line feed alone', Buffer.from(`PROXY UNKNOWN\n${' '.repeat(107)}`)],
    ['a line that is too long', text(`PROXY UNKNOWN ${'f'.repeat(92)}`)],
    ['no end', Buffer.from(`PROXY UNKNOWN ${'f'.repeat(93)}`)],
    ['version 1 in binary', binary('11', '11', IPV4)],
    ['command 2', binary('22', '11', IPV4)],
    ['an unknown family', binary('21', '41', IPV4)],
    ['an unknown transport', binary('21', '13', IPV4)],
    ['addresses that are too short', binary('21', '11', IPV4.slice(2))],
    ['a field without its length', binary('21', '11', `${IPV4}0400`)],
    ['a field that is longer than the rest', binary('21', '11', `${IPV4}04000500`)],
    ['more than 2 KiB, from its length on', Buffer.from(`${SIGNATURE}211107f1`, 'hex')],
    ['a checksum of three bytes', binary('21', '11', `${IPV4}030003000000`)],
    ['no checksum in its place', binary('21', '11', `${IPV4}03000400000000`)],
  ])('is refused: %s', (_name, bytes) => {
    expect(() => decodeProxyHeader(bytes)).toThrow(ProxyHeaderError);
  });

  it('has its checksum compared, whichever byte was changed', () => {
    expect(decodeProxyHeader(SEEN)).toEqual({ bytes: SEEN.length, source: '127.0.0.1' });
    for (let at = 16; at < SEEN.length; at += 1) {
      const damaged = Buffer.from(SEEN);
      damaged.writeUInt8(damaged.readUInt8(at) ^ 1, at);
      // The type of the field decides whether it is a checksum.
      if (at !== 28) expect(() => decodeProxyHeader(damaged), `byte ${at}`).toThrow(ProxyHeaderError);
    }
  });

  it('made of anything is read, refused, or waited for, never beyond 2 KiB and the same however it arrives', () => {
    const random = new SeededRandom(20_261_127);
    const beginnings = [SEEN, text('PROXY TCP6 2001:db8::7 2001:db8::1 56324 12901'), binary('21', '21', IPV6), Buffer.alloc(0)];
    const outcome = (bytes: Buffer) => {
      try {
        return decodeProxyHeader(bytes);
      } catch (error) {
        if (!(error instanceof ProxyHeaderError)) throw error;
        return 'refused';
      }
    };
    for (let round = 0; round < 20_000; round += 1) {
      const beginning = beginnings[random.below(beginnings.length)] ?? Buffer.alloc(0);
      const bytes = Buffer.concat([beginning, random.bytes(random.below(40))]);
      for (let changes = random.below(3); changes > 0 && bytes.length > 0; changes -= 1)
        bytes[random.below(bytes.length)] = random.below(256);
      const whole = outcome(bytes);
      if (whole === undefined) expect(outcome(Buffer.concat([bytes, Buffer.alloc(2_048)]))).toBeDefined();
      const cut = random.below(bytes.length + 1);
      const part = outcome(bytes.subarray(0, cut));
      if (part !== undefined) expect(part).toEqual(whole);
    }
  });
});
