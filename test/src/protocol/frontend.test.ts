import { describe, expect, test } from 'vitest';
import { stringEnd } from '../../../src/protocol/framing.ts';
import {
  decodeFrontendMessage,
  decodePasswordMessage,
  decodeSaslInitialResponse,
  type FrontendMessage,
  statementNameStart,
  withStatementName,
} from '../../../src/protocol/frontend.ts';
import { SeededRandom } from '../../support/random.ts';

/** Text in which every character is a byte. */
function bytes(text: string): Buffer {
  return Buffer.from(text, 'latin1');
}

function decode(type: string, body: string): FrontendMessage {
  return decodeFrontendMessage(type.charCodeAt(0), bytes(body));
}

/** One message of each kind, and what it says. */
const EXAMPLES: [type: string, body: string, message: FrontendMessage][] = [
  ['Q', 'SELECT 1\0', { name: 'Query', sql: 'SELECT 1' }],
  ['Q', '\0', { name: 'Query', sql: '' }],
  [
    'P',
    's1\0SELECT $1, $2\0\0\x02\0\0\0\x17\xff\xff\xff\xff',
    { name: 'Parse', statement: 's1', sql: 'SELECT $1, $2', parameterTypes: [23, 4_294_967_295] },
  ],
  [
    'B',
    'p1\0s1\0\0\x02\0\0\0\x01\0\x03\0\0\0\x0242\xff\xff\xff\xff\0\0\0\0\0\x01\0\x01',
    {
      name: 'Bind',
      portal: 'p1',
      statement: 's1',
      parameterFormats: [0, 1],
      parameters: [Buffer.from('42'), null, Buffer.from('')],
      resultFormats: [1],
    },
  ],
  ['D', 'Ss1\0', { name: 'Describe', kind: 'statement', target: 's1' }],
  ['D', 'P\0', { name: 'Describe', kind: 'portal', target: '' }],
  ['C', 'Ss1\0', { name: 'Close', kind: 'statement', target: 's1' }],
  ['C', 'Pp1\0', { name: 'Close', kind: 'portal', target: 'p1' }],
  ['E', 'p1\0\0\0\x03\xe8', { name: 'Execute', portal: 'p1', maxRows: 1_000 }],
  ['E', '\0\xff\xff\xff\xff', { name: 'Execute', portal: '', maxRows: 0 }],
  ['S', '', { name: 'Sync' }],
  ['H', '', { name: 'Flush' }],
  ['X', '', { name: 'Terminate' }],
  ['d', '1\t\0\xff\n', { name: 'CopyData', data: bytes('1\t\0\xff\n') }],
  ['c', '', { name: 'CopyDone' }],
  ['f', 'no more\0', { name: 'CopyFail', reason: 'no more' }],
  [
    'F',
    '\0\0\x03\xc3\0\x01\0\x01\0\x02\0\0\0\x01\x07\xff\xff\xff\xff\0\x01',
    { name: 'FunctionCall', functionOid: 963, argumentFormats: [1], arguments: [Buffer.of(7), null], resultFormat: 1 },
  ],
];

describe('decodeFrontendMessage', () => {
  test.each(EXAMPLES)('%s %j', (type, body, message) => {
    expect(decode(type, body)).toEqual(message);
  });

  test('text is UTF-8', () => {
    expect(decodeFrontendMessage(0x51, Buffer.from("SELECT 'ž'\0"))).toEqual({ name: 'Query', sql: "SELECT 'ž'" });
  });

  test('as many parameters as there can be', () => {
    const body = Buffer.concat([bytes('\0\0\0\0\xff\xff'), Buffer.alloc(65_535 * 4, 0xff), bytes('\0\0')]);
    expect(decodeFrontendMessage(0x42, body)).toMatchObject({ parameters: Array(65_535).fill(null) });
  });

  test.each(EXAMPLES.filter(([type]) => type !== 'd'))('%s %j, but shorter or longer', (type, body) => {
    for (let length = 0; length < body.length; length++) {
      expect(() => decode(type, body.slice(0, length))).toThrow(expect.objectContaining({ kind: 'protocol_violation' }));
    }
    expect(() => decode(type, `${body}x`)).toThrow(/^(invalid message format|insufficient data left in message)$/);
  });

  test.each([
    ['Q', 'SELECT 1', 'invalid string in message'],
    ['Q', 'SELECT 1\0\0', 'invalid message format'],
    ['P', 's1\0SELECT 1\0\xff\xff', 'insufficient data left in message'],
    ['B', '\0\0\0\0\0\x01\xff\xff\xff\xfe', 'insufficient data left in message'],
    ['B', '\0\0\0\0\0\x01\x80\0\0\0', 'insufficient data left in message'],
    ['B', '\0\0\0\0\0\x01\x7f\xff\xff\xff', 'insufficient data left in message'],
    ['D', '', 'no data left in message'],
    ['D', 'X\0', 'invalid DESCRIBE message subtype 88'],
    ['C', '\0\0', 'invalid CLOSE message subtype 0'],
    ['S', '\0', 'invalid message format'],
    ['p', 'secret\0', 'invalid frontend message type 112'],
    ['\0', '', 'invalid frontend message type 0'],
  ])('refuses %j %j', (type, body, message) => {
    expect(() => decode(type, body)).toThrow(expect.objectContaining({ kind: 'protocol_violation', message }));
  });

  test('random bodies are understood or refused with a ServiceError', () => {
    const random = new SeededRandom(5);
    for (let round = 0; round < 10_000; round++) {
      const type = bytes('QPBDCESHXdcfFp!')[random.below(15)] ?? 0;
      const body = random.bytes(random.below(30)).map((byte) => (byte < 150 ? byte % 4 : byte));
      try {
        decodeFrontendMessage(type, Buffer.from(body));
      } catch (error) {
        expect(error).toMatchObject({ name: 'ServiceError', kind: 'protocol_violation' });
      }
    }
  });
});

describe('answers to an authentication request', () => {
  test('a password', () => {
    expect(decodePasswordMessage(bytes('secret\0'))).toBe('secret');
    expect(decodePasswordMessage(bytes(`${'x'.repeat(60_000)}\0`))).toHaveLength(60_000);
  });

  test.each(['', 'secret', 'sec\0ret\0', 'secret\0\0', '\0\0'])('no password: %j', (body) => {
    expect(() => decodePasswordMessage(bytes(body))).toThrow(
      expect.objectContaining({ kind: 'protocol_violation', message: 'invalid password packet size' }),
    );
  });

  test('an empty password', () => {
    expect(() => decodePasswordMessage(bytes('\0'))).toThrow(
      expect.objectContaining({ sqlstate: '28P01', message: 'empty password returned by client' }),
    );
  });

  test('a SASL mechanism, with data, with none, and without', () => {
    const data = bytes('n,,');
    expect(decodeSaslInitialResponse(bytes('SCRAM-SHA-256\0\0\0\0\x03n,,'))).toEqual({ mechanism: 'SCRAM-SHA-256', data });
    expect(decodeSaslInitialResponse(bytes('X\0\0\0\0\0'))).toEqual({ mechanism: 'X', data: Buffer.alloc(0) });
    expect(decodeSaslInitialResponse(bytes('X\0\xff\xff\xff\xff'))).toEqual({ mechanism: 'X', data: undefined });
  });

  test.each([
    ['', 'invalid string in message'],
    ['SCRAM-SHA-256', 'invalid string in message'],
    ['X\0', 'insufficient data left in message'],
    ['X\0\0\0\0', 'insufficient data left in message'],
    ['X\0\0\0\0\x04n,,', 'insufficient data left in message'],
    ['X\0\0\0\0\x02n,,', 'invalid message format'],
    ['X\0\x80\0\0\0n,,', 'insufficient data left in message'],
    ['X\0\xff\xff\xff\xfen,,', 'insufficient data left in message'],
    ['X\0\x7f\xff\xff\xffn,,', 'insufficient data left in message'],
    ['X\0\xff\xff\xff\xffn,,', 'invalid message format'],
  ])('SASL garbage: %j', (body, message) => {
    expect(() => decodeSaslInitialResponse(bytes(body))).toThrow(expect.objectContaining({ kind: 'protocol_violation', message }));
  });
});

describe('looking into a message without decoding it', () => {
  /** Each message stands behind 3 other bytes, and others follow it. */
  const place = (message: string): [Buffer, number, number] => [bytes(`xyz${message}S\0\0\0\x04`), 3, 3 + message.length];
  const nameAt = (start: number, [buffer, , end]: [Buffer, number, number]) =>
    start === -1 ? undefined : buffer.toString('latin1', start, stringEnd(buffer, start, end));

  const PARSE = 'P\0\0\0\x13s1\0SELECT 1\0\0\0';
  const BIND = 'B\0\0\0\x10p1\0s1\0\0\0\0\0\0\0';
  test.each([
    [PARSE, 's1'],
    [BIND, 's1'],
    ['B\0\0\0\x0c\0\0\0\0\0\0\0\0', ''],
    ['D\0\0\0\x08Ss1\0', 's1'],
    ['D\0\0\0\x08Pp1\0', undefined],
    ['C\0\0\0\x08Ss1\0', 's1'],
    ['C\0\0\0\x06P\0', undefined],
    ['E\0\0\0\x0bp1\0\0\0\0\0', undefined],
    ['Q\0\0\0\x07s1\0', undefined],
    ['H\0\0\0\x04', undefined],
    ['D\0\0\0\x04', undefined],
  ])('%j names statement %j', (message, statement) => {
    const placed = place(message);
    expect(nameAt(statementNameStart(...placed), placed)).toBe(statement);
  });

  test('a name that does not end within the message', () => {
    const [buffer, start] = place('B\0\0\0\x0ap1\0s1\0');
    expect(statementNameStart(buffer, start, start + 7)).toBe(-1);
    expect(stringEnd(buffer, statementNameStart(buffer, start, start + 10), start + 10)).toBe(-1);
    expect(() => withStatementName(buffer, start, start + 10, bytes('x'))).toThrow('invalid string in message');
    expect(() => withStatementName(buffer, start, start + 5, bytes('x'))).toThrow('invalid string in message');
  });

  test.each([
    ['Parse', PARSE, 'longer name', 'P\0\0\0\x1clonger name\0SELECT 1\0\0\0'],
    ['Parse', PARSE, '', 'P\0\0\0\x11\0SELECT 1\0\0\0'],
    ['Bind', BIND, 'abc', 'B\0\0\0\x11p1\0abc\0\0\0\0\0\0\0'],
    ['Describe', 'D\0\0\0\x08Ss1\0', 'x', 'D\0\0\0\x07Sx\0'],
    ['Close', 'C\0\0\0\x06S\0', 'xyz', 'C\0\0\0\x09Sxyz\0'],
  ])('%s under another name', (_, message, name, renamed) => {
    expect(withStatementName(...place(message), bytes(name)).toString('latin1')).toBe(renamed);
  });

  test('the head of a message under another name declares the length of the whole', () => {
    const head = bytes('B\x06\0\0\0p1\0s1\0\0\0');
    expect(withStatementName(head, 0, head.length, bytes('abcd')).toString('latin1')).toBe('B\x06\0\0\x02p1\0abcd\0\0\0');
  });

  test('a portal has no statement name to replace', () => {
    expect(() => withStatementName(...place('D\0\0\0\x08Pp1\0'), bytes('x'))).toThrow('invalid string in message');
  });
});
