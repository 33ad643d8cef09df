import { describe, expect, test } from 'vitest';
import {
  type BackendMessage,
  decodeCommandComplete,
  decodeErrorFields,
  decodeNotification,
  decodeParameterDescription,
  decodeParameterStatus,
  decodeReadyForQuery,
  decodeRowDescription,
  type ErrorFields,
  ErrorFieldsReader,
  encodeBackendMessage,
  PostgresError,
} from '../../../src/protocol/backend.ts';
import { SeededRandom } from '../../support/random.ts';

/** Text in which every character is a byte. */
function bytes(text: string): Buffer {
  return Buffer.from(text, 'latin1');
}

const ALL_FIELDS: ErrorFields = {
  severity: 'ERROR',
  code: '23505',
  message: 'duplicate',
  detail: 'a detail',
  hint: 'a hint',
  position: 7,
  internalPosition: 8,
  internalQuery: 'SELECT 2',
  where: 'a place',
  schema: 'public',
  table: 't',
  column: 'c',
  dataType: 'int4',
  constraint: 't_pkey',
  file: 'nbtinsert.c',
  line: 666,
  routine: '_bt_check_unique',
};
const ALL_FIELDS_BODY =
  'SERROR\0VERROR\0C23505\0Mduplicate\0Da detail\0Ha hint\0Wa place\0spublic\0tt\0cc\0dint4\0nt_pkey\0P7\0p8\0qSELECT 2\0Fnbtinsert.c\0L666\0R_bt_check_unique\0\0';

describe('encodeBackendMessage', () => {
  const examples: [BackendMessage, string][] = [
    [{ name: 'AuthenticationOk' }, 'R\0\0\0\x08\0\0\0\0'],
    [{ name: 'AuthenticationCleartextPassword' }, 'R\0\0\0\x08\0\0\0\x03'],
    [
      { name: 'AuthenticationSASL', mechanisms: ['SCRAM-SHA-256-PLUS', 'SCRAM-SHA-256'] },
      'R\0\0\0\x2a\0\0\0\x0aSCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0',
    ],
    [{ name: 'AuthenticationSASLContinue', data: bytes('r=x') }, 'R\0\0\0\x0b\0\0\0\x0br=x'],
    [{ name: 'AuthenticationSASLFinal', data: bytes('v=x') }, 'R\0\0\0\x0b\0\0\0\x0cv=x'],
    [{ name: 'ParameterStatus', parameter: 'TimeZone', value: 'UTC' }, 'S\0\0\0\x11TimeZone\0UTC\0'],
    [{ name: 'BackendKeyData', processId: 258, secretKey: Buffer.of(255, 0, 1, 2) }, 'K\0\0\0\x0c\0\0\x01\x02\xff\0\x01\x02'],
    [
      { name: 'NegotiateProtocolVersion', minorVersion: 2, unsupportedOptions: ['_pq_.a', '_pq_.b'] },
      'v\0\0\0\x1a\0\x03\0\x02\0\0\0\x02_pq_.a\0_pq_.b\0',
    ],
    [{ name: 'ReadyForQuery', status: 'T' }, 'Z\0\0\0\x05T'],
    [{ name: 'ErrorResponse', fields: { severity: 'FATAL', code: '28P01', message: 'no' } }, 'E\0\0\0\x1eSFATAL\0VFATAL\0C28P01\0Mno\0\0'],
    [
      { name: 'NoticeResponse', fields: { severity: 'NOTICE', code: '00000', message: 'so', hint: 'x' } },
      'N\0\0\0\x23SNOTICE\0VNOTICE\0C00000\0Mso\0Hx\0\0',
    ],
    [{ name: 'CommandComplete', tag: 'SELECT 1' }, 'C\0\0\0\x0dSELECT 1\0'],
    [{ name: 'EmptyQueryResponse' }, 'I\0\0\0\x04'],
    [{ name: 'ParseComplete' }, '1\0\0\0\x04'],
    [{ name: 'BindComplete' }, '2\0\0\0\x04'],
    [{ name: 'CloseComplete' }, '3\0\0\0\x04'],
    [{ name: 'NoData' }, 'n\0\0\0\x04'],
    [{ name: 'PortalSuspended' }, 's\0\0\0\x04'],
  ];

  test.each(examples)('%o', (message, expected) => {
    expect(encodeBackendMessage(message).toString('latin1')).toBe(expected);
  });

  test('sends every field of an error, in the order of Postgres', () => {
    const encoded = encodeBackendMessage({ name: 'ErrorResponse', fields: ALL_FIELDS });
    expect(encoded.toString('latin1')).toBe(`E\0\0\0\x90${ALL_FIELDS_BODY}`);
  });

  test('is UTF-8, and lets no zero byte make other fields', () => {
    const fields = { severity: 'ERROR', code: '42601', message: 'ž\0Cxxxxx\0' };
    expect(encodeBackendMessage({ name: 'ErrorResponse', fields }).toString()).toBe('E\0\0\0\x24SERROR\0VERROR\0C42601\0MžCxxxxx\0\0');
  });
});

describe('decodeErrorFields', () => {
  test('knows every field', () => {
    expect(decodeErrorFields(bytes(ALL_FIELDS_BODY))).toEqual(ALL_FIELDS);
  });

  test('prefers the severity that is not localized, and ignores what it does not know', () => {
    expect(decodeErrorFields(bytes('SFEHLER\0VERROR\0C42P01\0Mnein\0?what\0\0'))).toEqual({
      severity: 'ERROR',
      code: '42P01',
      message: 'nein',
    });
  });

  test('can do without any field', () => {
    expect(decodeErrorFields(bytes('\0'))).toEqual({ severity: 'ERROR', code: 'XX000', message: '' });
  });

  test.each(['', 'SERROR', 'SERROR\0', 'SERROR\0M', '\0x'])('refuses %j', (body) => {
    expect(() => decodeErrorFields(bytes(body))).toThrow(expect.objectContaining({ kind: 'backend_lost', sqlstate: '08006' }));
  });

  test('keeps the beginning of each field, as whole characters, however the message is cut', () => {
    const body = Buffer.from(`SERROR\0C22000\0M${'é€😀'.repeat(3)}\0Dshort\0W${'x'.repeat(100)}\0R\0\0`);
    for (let size = 1; size <= body.length; size += 1) {
      const reader = new ErrorFieldsReader(10);
      for (let round = 0; round < 2; round += 1) {
        for (let at = 0; at < body.length; at += size) reader.push(body, at, Math.min(at + size, body.length));
        expect(reader.end()).toEqual({
          severity: 'ERROR',
          code: '22000',
          message: 'é€😀… (cut: 10 of 27 bytes)',
          detail: 'short',
          where: `${'x'.repeat(10)}… (cut: 10 of 100 bytes)`,
          routine: '',
        });
      }
    }
  });

  test('makes an Error that can be thrown', () => {
    const error = new PostgresError(ALL_FIELDS);
    expect(error).toBeInstanceOf(Error);
    expect([error.message, error.fields]).toEqual(['duplicate', ALL_FIELDS]);
  });
});

test('RowDescription', () => {
  const body = bytes(
    '\0\x02id\0\0\0\x40\x01\0\x01\0\0\0\x14\0\x08\xff\xff\xff\xff\0\x01?column?\0\0\0\0\0\0\0\xff\xff\xff\xfe\xff\xff\0\0\0\x07\0\0',
  );
  expect(decodeRowDescription(body)).toEqual([
    { name: 'id', tableOid: 16_385, columnNumber: 1, dataTypeOid: 20, dataTypeSize: 8, typeModifier: -1, format: 1 },
    { name: '?column?', tableOid: 0, columnNumber: 0, dataTypeOid: 4_294_967_294, dataTypeSize: -1, typeModifier: 7, format: 0 },
  ]);
  expect(decodeRowDescription(bytes('\0\0'))).toEqual([]);
  for (let length = 0; length < body.length; length++)
    expect(() => decodeRowDescription(body.subarray(0, length))).toThrow('could not be understood');
});

test('ParameterDescription', () => {
  expect(decodeParameterDescription(bytes('\0\x02\0\0\0\x17\xff\xff\xff\xff'))).toEqual([23, 4_294_967_295]);
  expect(() => decodeParameterDescription(bytes('\0\x02\0\0\0\x17'))).toThrow('insufficient data left in message');
  expect(() => decodeParameterDescription(bytes('\0\x01\0\0\0\x17\0\0\0\x17'))).toThrow('invalid message format');
  // More than can be counted.
  expect(decodeParameterDescription(bytes(`\0\x02${'\0\0\0\x17'.repeat(65_538)}`))).toEqual(Array(65_538).fill(23));
});

test.each([
  ['SELECT 42', 'SELECT', 42],
  ['INSERT 0 3', 'INSERT', 3],
  ['INSERT 16384 1', 'INSERT', 1],
  ['COPY 0', 'COPY', 0],
  ['SELECT 4294967296', 'SELECT', 4_294_967_296],
  ['CREATE TABLE', 'CREATE TABLE', undefined],
  ['CREATE TABLE AS', 'CREATE TABLE AS', undefined],
  ['COMMIT', 'COMMIT', undefined],
  ['', '', undefined],
])('CommandComplete %j', (tag, command, rowCount) => {
  expect(decodeCommandComplete(bytes(`${tag}\0`))).toEqual({ tag, command, rowCount });
});

test('ReadyForQuery', () => {
  expect(['I', 'T', 'E'].map((status) => decodeReadyForQuery(bytes(status)))).toEqual(['I', 'T', 'E']);
  for (const body of ['', 'X', 'II'])
    expect(() => decodeReadyForQuery(bytes(body))).toThrow(expect.objectContaining({ kind: 'backend_lost' }));
});

test('ParameterStatus', () => {
  expect(decodeParameterStatus(bytes('TimeZone\0UTC\0'))).toEqual({ parameter: 'TimeZone', value: 'UTC' });
  expect(() => decodeParameterStatus(bytes('TimeZone\0UTC'))).toThrow('invalid string in message');
});

test('NotificationResponse', () => {
  expect(decodeNotification(bytes('\0\0\x04\xd2jobs\0{}\0'))).toEqual({ processId: 1_234, channel: 'jobs', payload: '{}' });
});

test('random bodies are understood or refused with a ServiceError', () => {
  const decoders = [
    decodeErrorFields,
    decodeRowDescription,
    decodeParameterDescription,
    decodeCommandComplete,
    decodeReadyForQuery,
    decodeParameterStatus,
    decodeNotification,
  ];
  const random = new SeededRandom(6);
  for (let round = 0; round < 10_000; round++) {
    const body = random.bytes(random.below(40)).map((byte) => (byte < 150 ? byte % 4 : byte));
    try {
      decoders[random.below(decoders.length)]?.(Buffer.from(body));
    } catch (error) {
      expect(error).toMatchObject({ name: 'ServiceError', kind: 'backend_lost' });
    }
  }
});
