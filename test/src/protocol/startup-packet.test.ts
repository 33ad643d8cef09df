import { describe, expect, test } from 'vitest';
import { decodeStartupPacket, type StartupPacket, unsupportedProtocol } from '../../../src/protocol/startup.ts';
import { SeededRandom } from '../../support/random.ts';

/** A packet without its length word, from text in which every character is a byte. */
function decode(text: string): StartupPacket {
  return decodeStartupPacket(Buffer.from(text, 'latin1'));
}

function parametersOf(packet: StartupPacket): [string, string][] {
  expect(packet.name).toBe('StartupMessage');
  return packet.name === 'StartupMessage' ? [...packet.parameters] : [];
}

describe('StartupMessage', () => {
  test('has parameters in the order sent', () => {
    expect(decode('\0\x03\0\0user\0org_a\0database\0org_b\0TimeZone\0UTC\0\0')).toEqual({
      name: 'StartupMessage',
      minorVersion: 0,
      parameters: new Map([
        ['user', 'org_a'],
        ['database', 'org_b'],
        ['TimeZone', 'UTC'],
      ]),
      protocolOptions: [],
    });
  });

  test.each([0, 1, 2, 3, 9_999])('may be of any minor version: 3.%i', (minor) => {
    const version = String.fromCharCode(minor >> 8, minor & 0xff);
    expect(decode(`\0\x03${version}user\0a\0\0`)).toMatchObject({ name: 'StartupMessage', minorVersion: minor });
  });

  test('tells protocol options from settings', () => {
    const packet = decode('\0\x03\0\x02_pq_.foo\x001\0user\0a\0_pq_.\0\0_pq_x\0y\0\0');
    expect(packet).toMatchObject({ protocolOptions: ['_pq_.foo', '_pq_.'] });
    expect(parametersOf(packet)).toEqual([
      ['user', 'a'],
      ['_pq_x', 'y'],
    ]);
  });

  test('may have empty values and none at all, and keeps the last of a repeated one', () => {
    expect(parametersOf(decode('\0\x03\0\0user\0\0application_name\0\0\0'))).toEqual([
      ['user', ''],
      ['application_name', ''],
    ]);
    expect(parametersOf(decode('\0\x03\0\0\0'))).toEqual([]);
    expect(parametersOf(decode('\0\x03\0\0user\0a\0user\0b\0\0'))).toEqual([['user', 'b']]);
  });

  test('is UTF-8', () => {
    const packet = decodeStartupPacket(Buffer.concat([Buffer.from('\0\x03\0\0user\0', 'latin1'), Buffer.from('žluť\0\0')]));
    expect(parametersOf(packet)).toEqual([['user', 'žluť']]);
  });

  test('may have 10,000 bytes and no more', () => {
    const packet = (value: number) => decode(`\0\x03\0\0options\0${'x'.repeat(value)}\0\0`);
    expect(parametersOf(packet(9_986))[0]?.[1]).toHaveLength(9_986);
    expect(() => packet(9_987)).toThrow('invalid length of startup packet');
  });

  test.each([
    ['no final zero', 'user\0a\0'],
    ['a value without its zero', 'user\0a'],
    ['a name without its zero', 'user'],
    ['a name without a value', 'user\0'],
    ['a name without a value, then the end', 'user\0a\0database\0\0'],
    ['bytes behind the end', 'user\0a\0\0x'],
    ['an end behind the end', '\0\0'],
    ['nothing', ''],
  ])('refuses %s', (_, parameters) => {
    expect(() => decode(`\0\x03\0\0${parameters}`)).toThrow(
      expect.objectContaining({
        kind: 'protocol_violation',
        message: 'invalid startup packet layout: expected terminator as last byte',
      }),
    );
  });

  test.each([
    ['\0\x02\0\0', '2.0'],
    ['\0\x04\0\0', '4.0'],
    ['\0\0\0\0', '0.0'],
    ['\xff\xff\xff\xff', '65535.65535'],
    ['\x04\xd2\x16\x31', '1234.5681'],
  ])('refuses other protocols: %j', (version, name) => {
    expect(() => decode(`${version}user\0a\0\0`)).toThrow(
      expect.objectContaining({ sqlstate: '0A000', message: `unsupported frontend protocol ${name}: server supports 3.0 to 3.2` }),
    );
  });
});

describe('requests', () => {
  test('for encryption', () => {
    expect(decode('\x04\xd2\x16\x2f')).toEqual({ name: 'SSLRequest' });
    expect(decode('\x04\xd2\x16\x30')).toEqual({ name: 'GSSENCRequest' });
    expect(unsupportedProtocol(1234, 5679).message).toBe('unsupported frontend protocol 1234.5679: server supports 3.0 to 3.2');
  });

  test.each([4, 5, 32, 256])('to cancel, with a key of %i bytes', (length) => {
    expect(decode(`\x04\xd2\x16\x2e\0\0\x04\xd2${'k'.repeat(length)}`)).toEqual({
      name: 'CancelRequest',
      processId: 1234,
      secretKey: Buffer.from('k'.repeat(length)),
    });
  });

  test.each([0, 3, 257, 9_000])('to cancel, with a key that cannot be: %i bytes', (length) => {
    expect(() => decode(`\x04\xd2\x16\x2e\0\0\x04\xd2${'k'.repeat(length)}`)).toThrow('invalid length of query cancel key');
  });

  test('to cancel nothing', () => {
    expect(() => decode('\x04\xd2\x16\x2e\0\0\x04')).toThrow('insufficient data left in message');
  });

  test('too short for a version', () => {
    expect(() => decode('\0\x03\0')).toThrow('invalid length of startup packet');
  });
});

test('random packets are understood or refused with a ServiceError', () => {
  const random = new SeededRandom(4);
  const starts = ['\0\x03\0\0', '\0\x03\0\x02', '\x04\xd2\x16\x2e', '\x04\xd2\x16\x2f', ''];
  for (let round = 0; round < 5_000; round++) {
    const bytes = random.bytes(random.below(40)).map((byte) => (byte < 90 ? 0 : byte));
    try {
      decodeStartupPacket(Buffer.concat([Buffer.from(starts[random.below(5)] ?? '', 'latin1'), bytes]));
    } catch (error) {
      expect(error).toMatchObject({ name: 'ServiceError', kind: expect.stringMatching(/^(protocol_violation|unsupported_protocol)$/) });
    }
  }
});
