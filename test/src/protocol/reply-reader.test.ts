import { describe, expect, test } from 'vitest';
import { backendFrames, MIN_HEAD_BYTES } from '../../../src/protocol/framing.ts';
import { type ReplyHandler, ReplyReader, replyFrames } from '../../../src/protocol/reply-reader.ts';
import { SeededRandom } from '../../support/random.ts';

function message(type: string, body: string): Buffer {
  const bytes = Buffer.from(`${type}\0\0\0\0${body}`, 'latin1');
  bytes.writeInt32BE(bytes.length - 1, 1);
  return bytes;
}

/** An extended query; one without rows; a COPY in each direction; a failure. */
const REPLIES = Buffer.concat([
  message('1', ''),
  message('t', '\0\x01\0\0\0\x17'),
  message('T', '\0\x01a\0\0\0\0\0\0\0\0\0\0\x17\0\x04\xff\xff\xff\xff\0\0'),
  message('2', ''),
  message('D', '\0\x01\0\0\0\x017'),
  message('D', '\0\x01\xff\xff\xff\xff'),
  message('C', 'SELECT 2\0'),
  message('N', 'SWARNING\0C01000\0Mw\0\0'),
  message('Z', 'T'),
  message('n', ''),
  message('I', ''),
  message('S', 'a\0b\0'),
  message('G', '\0\0\0'),
  message('H', '\0\0\0'),
  message('d', 'x'),
  message('c', ''),
  message('A', '\0\0\0\x01c\0p\0'),
  message('E', 'SERROR\0C42601\0Moh\0\0'),
  message('Z', 'E'),
]);

const READ = [
  'parameters 23',
  'fields a',
  'row 1:7',
  'row 1:null',
  'completed SELECT 2',
  'noticed WARNING 01000 w',
  'ready T',
  'fields ',
  'parameterStatus a=b',
  'copyIn',
  'copyOut',
  'failed ERROR 42601 oh',
  'ready E',
];

/** Writes down all that it is told. */
function recorder(): { readonly seen: string[]; readonly handler: ReplyHandler } {
  const seen: string[] = [];
  const handler: ReplyHandler = {
    parameters: (types) => seen.push(`parameters ${types.join()}`),
    fields: (fields) => seen.push(`fields ${fields.map(({ name }) => name).join()}`),
    row: (source, start, end) => {
      const length = source.readInt32BE(start + 2);
      seen.push(`row ${source.readInt16BE(start)}:${length < 0 ? null : source.toString('latin1', start + 6, end)}`);
    },
    completed: ({ tag }) => seen.push(`completed ${tag}`),
    ready: (status) => seen.push(`ready ${status}`),
    failed: ({ severity, code, message: text }) => seen.push(`failed ${severity} ${code} ${text}`),
    noticed: ({ severity, code, message: text }) => seen.push(`noticed ${severity} ${code} ${text}`),
    parameterStatus: ({ parameter, value }) => seen.push(`parameterStatus ${parameter}=${value}`),
    copyIn: () => seen.push('copyIn'),
    copyOut: () => seen.push('copyOut'),
    refused: (bytes, isRow) => seen.push(`refused ${bytes} ${isRow}`),
  };
  return { seen, handler };
}

/** Reads the chunks, each of which is overwritten when its messages have been read. */
function read(reader: ReplyReader, chunks: readonly Buffer[]): void {
  for (const chunk of chunks) {
    const reused = Buffer.from(chunk);
    reader.push(reused);
    while (reader.next());
    reused.fill(0xee);
  }
}

function readAll(chunks: readonly Buffer[], frames = replyFrames()): string[] {
  const { seen, handler } = recorder();
  read(new ReplyReader(frames, handler), chunks);
  return seen;
}

describe('ReplyReader', () => {
  test('reads the messages of replies in their order, wherever the stream is cut', () => {
    for (let at = 0; at <= REPLIES.length; at++) {
      expect(readAll([REPLIES.subarray(0, at), REPLIES.subarray(at)])).toEqual(READ);
    }
    const random = new SeededRandom(27);
    for (let round = 0; round < 200; round++) expect(readAll(random.cut(REPLIES, 7))).toEqual(READ);
  });

  test('what the handler has no method for is not decoded', () => {
    const statuses: string[] = [];
    const reader = new ReplyReader(replyFrames(), { ready: (status) => statuses.push(status) });
    read(reader, [message('C', 'no end'), message('E', 'neither'), message('T', ''), message('Z', 'I')]);
    expect(statuses).toEqual(['I']);
  });

  test('with frames that show heads only, nothing is held but ReadyForQuery', () => {
    const statuses: string[] = [];
    const reader = new ReplyReader(backendFrames({ Z: 1 }), { ready: (status) => statuses.push(status) });
    const row = message('D', 'x'.repeat(1_000));
    read(reader, [row.subarray(0, 10), row.subarray(10), Buffer.from('Z\0\0\0\x05', 'latin1'), Buffer.from('T')]);
    expect(statuses).toEqual(['T']);
  });

  test('long fields of an error are cut, however long it is', () => {
    const { seen, handler } = recorder();
    const reader = new ReplyReader(replyFrames(), handler);
    const error = message('E', `SERROR\0C22000\0M${'x'.repeat(40_000)}\0\0`);
    read(reader, [error.subarray(0, 20_000), error.subarray(20_000)]);
    expect(seen).toEqual([`failed ERROR 22000 ${'x'.repeat(16_384)}… (cut: 16384 of 40000 bytes)`]);
  });

  test('a message beyond the limit is an error', () => {
    const frames = replyFrames(1_000);
    expect(readAll([message('D', `\0\x01\0\0\x03\xe2${'x'.repeat(994)}`)], frames)).toHaveLength(1);
    expect(() => readAll([message('D', 'x'.repeat(1_001))], frames)).toThrow('message exceeds the limit of 1000 bytes');
  });

  test('a message for which there is no memory is told once, and the next one is read', () => {
    const { seen, handler } = recorder();
    const reader = new ReplyReader(replyFrames(), handler, { mayGrow: () => false });
    const length = MIN_HEAD_BYTES * 3;
    const row = message('D', 'x'.repeat(length));
    read(reader, [row.subarray(0, length / 2), row.subarray(length / 2, length - 1), row.subarray(length - 1), message('Z', 'I')]);
    expect(seen).toEqual([`refused ${length} true`, 'ready I']);
  });

  test('a handler can take what follows a message', () => {
    const statuses: string[] = [];
    let rest = '';
    const reader: ReplyReader = new ReplyReader(replyFrames(), {
      ready: (status) => {
        statuses.push(status);
        rest = reader.takeRest().toString('latin1');
      },
    });
    read(reader, [Buffer.concat([message('Z', 'I'), message('Z', 'T')])]);
    expect(statuses).toEqual(['I']);
    expect(rest).toBe('Z\0\0\0\x05T');
  });
});
