import { describe, expect, test } from 'vitest';
import { ServiceError } from '../../../src/errors.ts';
import { backendFrames, type FrameRules, FrameScanner, frontendFrames, MIN_HEAD_BYTES } from '../../../src/protocol/framing.ts';
import { SeededRandom } from '../../support/random.ts';

/** Parse "s1" of "SELECT $1"; Bind; Execute; Sync; Query of 300 characters; Terminate. */
const CONVERSATION = Buffer.concat([
  Buffer.from('P\0\0\0\x17s1\0SELECT $1\0\0\x01\0\0\0\x17', 'latin1'),
  Buffer.from('B\0\0\0\x14\0s1\0\0\0\0\x01\0\0\0\x0242\0\0', 'latin1'),
  Buffer.from('E\0\0\0\x09\0\0\0\0\0', 'latin1'),
  Buffer.from('S\0\0\0\x04', 'latin1'),
  Buffer.from(`Q\0\0\x01\x31${'x'.repeat(300)}\0`, 'latin1'),
  Buffer.from('X\0\0\0\x04', 'latin1'),
]);

interface Shown {
  readonly type: string;
  readonly length: number;
  readonly body: string;
}

/** Feeds chunks and puts the fragments together again; each chunk is overwritten once the scanner is done with it. */
function scan(rules: FrameRules, chunks: readonly Buffer[]): { messages: Shown[]; bytes: Buffer; scanner: FrameScanner } {
  const scanner = new FrameScanner(rules);
  const messages: { type: string; length: number; body: Buffer }[] = [];
  const pieces: Buffer[] = [];
  for (const chunk of chunks) {
    const reused = Buffer.from(chunk);
    scanner.push(reused);
    while (scanner.next()) {
      const fragment = Buffer.from(scanner.buffer.subarray(scanner.start, scanner.end));
      pieces.push(fragment);
      const body = scanner.first ? fragment.subarray(5) : fragment;
      if (scanner.first) messages.push({ type: String.fromCharCode(scanner.type), length: scanner.length, body });
      else for (const last of messages.splice(-1)) messages.push({ ...last, body: Buffer.concat([last.body, body]) });
      expect(scanner.last).toBe(messages.at(-1)?.body.length === scanner.length);
    }
    reused.fill(0xee);
  }
  const shown = messages.map(({ type, length, body }) => ({ type, length, body: body.toString('latin1') }));
  return { messages: shown, bytes: Buffer.concat(pieces), scanner };
}

function splitAt(bytes: Buffer, offset: number): Buffer[] {
  return [bytes.subarray(0, offset), bytes.subarray(offset)];
}

function header(type: string, length: number): Buffer {
  const bytes = Buffer.from(`${type}\0\0\0\0`, 'latin1');
  bytes.writeInt32BE(length, 1);
  return bytes;
}

function thrownBy(action: () => unknown): ServiceError {
  try {
    action();
  } catch (error) {
    if (error instanceof ServiceError) return error;
    throw error;
  }
  throw new Error('nothing was thrown');
}

const WHOLE = [
  { type: 'P', length: 19, body: 's1\0SELECT $1\0\0\x01\0\0\0\x17' },
  { type: 'B', length: 16, body: '\0s1\0\0\0\0\x01\0\0\0\x0242\0\0' },
  { type: 'E', length: 5, body: '\0\0\0\0\0' },
  { type: 'S', length: 0, body: '' },
  { type: 'Q', length: 301, body: `${'x'.repeat(300)}\0` },
  { type: 'X', length: 0, body: '' },
];

/** Whether a message has begun and not ended. */
function isAmid(scanner: FrameScanner): boolean {
  return !scanner.last || scanner.held !== undefined;
}

describe('FrameScanner', () => {
  test('shows each message of a chunk in place', () => {
    const scanner = new FrameScanner(frontendFrames());
    scanner.push(CONVERSATION);
    const places: unknown[] = [];
    while (scanner.next()) places.push([String.fromCharCode(scanner.type), scanner.start, scanner.end, scanner.buffer === CONVERSATION]);
    expect(places).toEqual([
      ['P', 0, 24, true],
      ['B', 24, 45, true],
      ['E', 45, 55, true],
      ['S', 55, 60, true],
      ['Q', 60, 366, true],
      ['X', 366, 371, true],
    ]);
    expect(isAmid(scanner)).toBe(false);
  });

  const heads = [{}, { P: 4, B: 8, Q: 100 }, { P: 1_000, B: 1_000, E: 1_000, Q: 1_000 }];
  test.each(heads)('shows the same messages wherever the stream is cut, with heads %o', (head) => {
    for (let offset = 0; offset <= CONVERSATION.length; offset++) {
      const { messages, bytes, scanner } = scan(frontendFrames(head), splitAt(CONVERSATION, offset));
      expect(messages).toEqual(WHOLE);
      expect(bytes.equals(CONVERSATION)).toBe(true);
      expect(isAmid(scanner)).toBe(false);
    }
  });

  test.each(heads)('shows the same messages of a stream that comes byte by byte, with heads %o', (head) => {
    const { messages, bytes } = scan(
      frontendFrames(head),
      [...CONVERSATION].map((byte) => Buffer.of(byte)),
    );
    expect(messages).toEqual(WHOLE);
    expect(bytes.equals(CONVERSATION)).toBe(true);
  });

  test('shows the same messages of a stream cut at random', () => {
    const random = new SeededRandom(1);
    const stream = Buffer.concat(Array.from({ length: 20 }, () => CONVERSATION));
    for (let round = 0; round < 100; round++) {
      const { messages, bytes } = scan(
        frontendFrames({ P: random.below(40), B: random.below(40), Q: random.below(400) }),
        random.cut(stream, 90),
      );
      expect(messages).toEqual(Array.from({ length: 20 }, () => WHOLE).flat());
      expect(bytes.equals(stream)).toBe(true);
    }
  });

  test('waits for the head, then shows the rest as it comes', () => {
    const scanner = new FrameScanner(frontendFrames({ Q: 4 }));
    const seen: string[] = [];
    for (const chunk of ['Q\0\0\0\x0cab', 'c', 'de', 'f', 'g\0S', '\0\0\0\x04']) {
      scanner.push(Buffer.from(chunk, 'latin1'));
      while (scanner.next()) {
        const text = scanner.buffer.toString('latin1', scanner.start, scanner.end);
        seen.push(`${scanner.first ? 'first' : ''}${scanner.last ? 'last' : ''} ${text}`);
      }
    }
    expect(seen).toEqual(['first Q\0\0\0\x0cabcd', ' e', ' f', 'last g\0', 'firstlast S\0\0\0\x04']);
  });

  test('knows whether a message has begun that is not over', () => {
    const scanner = new FrameScanner(frontendFrames({ Q: 100 }));
    const states = [...Buffer.from('Q\0\0\0\x07ab\0', 'latin1')].map((byte) => {
      scanner.push(Buffer.of(byte));
      while (scanner.next());
      return isAmid(scanner);
    });
    expect(states).toEqual([true, true, true, true, true, true, true, false]);
  });

  test('takes more bytes before those pushed earlier were shown', () => {
    const scanner = new FrameScanner(frontendFrames());
    scanner.push(CONVERSATION.subarray(0, 50));
    scanner.next();
    scanner.push(CONVERSATION.subarray(50));
    const types: string[] = [];
    while (scanner.next()) types.push(String.fromCharCode(scanner.type));
    expect(types.join('')).toBe('BESQX');
  });

  test('never writes again to a buffer that it has shown', () => {
    const scanner = new FrameScanner(frontendFrames({ Q: 100 }));
    const shown: Buffer[] = [];
    for (const chunk of ['Q\0\0\0\x06', 'a\0Q\0\0\0', '\x06b\0']) {
      scanner.push(Buffer.from(chunk, 'latin1'));
      while (scanner.next()) shown.push(scanner.buffer.subarray(scanner.start, scanner.end));
    }
    expect(shown.map((bytes) => bytes.toString('latin1'))).toEqual(['Q\0\0\0\x06a\0', 'Q\0\0\0\x06b\0']);
  });

  test('shows an incomplete head when the budget refuses more of it', () => {
    const asked: number[] = [];
    const scanner = new FrameScanner(frontendFrames({ Q: 1_000_000 }), { mayGrow: (bytes) => asked.push(bytes) < 3 });
    const seen: string[] = [];
    scanner.push(Buffer.concat([header('Q', 500_004), Buffer.alloc(MIN_HEAD_BYTES)]));
    for (const bytes of [0, 20_000, 30_000, 50_000, 334_464]) {
      scanner.push(Buffer.alloc(bytes));
      while (scanner.next()) seen.push(`${scanner.first ? 'first' : 'more'} ${scanner.end - scanner.start}${scanner.last ? ' last' : ''}`);
      if (seen.length === 0) expect(scanner.held?.bytes).toBe(5 + MIN_HEAD_BYTES + asked.reduce((sum, more) => sum + more, 0));
    }
    expect(asked).toEqual([20_000, 30_000, 50_000]);
    expect(seen).toEqual(['first 115541', 'more 50000', 'more 334464 last']);
    expect(scanner.held).toBeUndefined();
  });

  test('does not allocate what a length merely claims', () => {
    const scanner = new FrameScanner(frontendFrames({ Q: 0x3fffffff }));
    const before = process.memoryUsage().arrayBuffers;
    scanner.push(Buffer.concat([header('Q', 0x3ffffffe), Buffer.alloc(1_000)]));
    expect(scanner.next()).toBe(false);
    expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(1_000_000);
  });
});

describe('a fragment that is widened', () => {
  const rows = ['one', 'two', '', 'four'].map((text) => Buffer.concat([header('D', 4 + text.length), Buffer.from(text)]));
  const stream = Buffer.concat([...rows, header('Z', 5), Buffer.from('I'), ...rows]);

  /** Ends of the fragments, with their types. */
  function fragments(chunks: readonly Buffer[]): { readonly ends: string[]; readonly bytes: Buffer } {
    const scanner = new FrameScanner(backendFrames());
    const ends: string[] = [];
    const pieces: Buffer[] = [];
    for (const chunk of chunks) {
      scanner.push(chunk);
      while (scanner.next()) {
        if (scanner.first && scanner.type === 0x44) scanner.widen();
        ends.push(`${String.fromCharCode(scanner.type)}${scanner.end}`);
        pieces.push(Buffer.from(scanner.buffer.subarray(scanner.start, scanner.end)));
      }
    }
    return { ends, bytes: Buffer.concat(pieces) };
  }

  test('goes over the messages of its type, and no further', () => {
    expect(fragments([stream]).ends).toEqual(['D30', 'Z36', 'D66']);
  });

  test('includes the beginning of an incomplete message, whose rest follows', () => {
    const scanner = new FrameScanner(backendFrames({ D: 100 }));
    const shown = () => [scanner.start, scanner.end, scanner.length, scanner.first, scanner.last];
    scanner.push(stream.subarray(0, 28));
    scanner.next();
    scanner.widen();
    expect(shown()).toEqual([0, 28, 4, true, false]);
    expect(scanner.next()).toBe(false);
    expect(isAmid(scanner)).toBe(true);
    scanner.push(stream.subarray(28));
    scanner.next();
    expect(shown()).toEqual([0, 2, 4, false, true]);
    scanner.next();
    expect(shown()).toEqual([2, 8, 1, true, true]);
  });

  test('loses and crosses nothing, wherever the stream is cut', () => {
    for (let at = 0; at <= stream.length; at += 1) expect(fragments(splitAt(stream, at)).bytes).toEqual(stream);
  });

  test('stops before what is not as it should be', () => {
    for (const bad of [header('D', 3), header('D', 105), header('D', -1), header('?', 4)]) {
      const whole = new FrameScanner(backendFrames({}, 100));
      whole.push(Buffer.concat([rows[0] as Buffer, rows[1] as Buffer, bad, Buffer.alloc(200)]));
      whole.next();
      whole.widen();
      expect(whole.end).toBe(16);
      expect(() => whole.next()).toThrow(ServiceError);
    }
  });
});

describe('what a stream must not contain', () => {
  const refusal = (rules: FrameRules, bytes: Buffer) => {
    const scanner = new FrameScanner(rules);
    scanner.push(bytes);
    const error = thrownBy(() => scanner.next());
    return [error.kind, error.message];
  };

  test.each([0, 1, 2, 3, -1, -2_147_483_648])('length %i', (length) => {
    expect(refusal(frontendFrames(), header('Q', length))).toEqual(['protocol_violation', 'invalid message length']);
    expect(refusal(backendFrames(), header('D', length))[0]).toBe('backend_lost');
  });

  test.each([...'SHXECDcf'])('%s with more than 10,000 bytes', (type) => {
    const scanner = new FrameScanner(frontendFrames());
    scanner.push(header(type, 10_000));
    expect(scanner.next()).toBe(true);
    expect(refusal(frontendFrames(), header(type, 10_001))).toEqual(['protocol_violation', 'invalid message length']);
  });

  test.each([...'QPBFd'])('%s with more than Postgres can hold', (type) => {
    const scanner = new FrameScanner(frontendFrames());
    scanner.push(header(type, 0x3ffffffe));
    expect(scanner.next()).toBe(true);
    expect(refusal(frontendFrames(), header(type, 0x3fffffff))).toEqual(['protocol_violation', 'invalid message length']);
  });

  test('more than the limit', () => {
    expect(refusal(frontendFrames({}, 99), header('Q', 104))).toEqual(['payload_too_large', 'message exceeds the limit of 99 bytes']);
    expect(refusal(backendFrames({}, 99), header('D', 104))).toEqual(['response_too_large', 'message exceeds the limit of 99 bytes']);
  });

  test('a type that does not exist, which one byte is enough to see', () => {
    expect(refusal(frontendFrames(), Buffer.from('GET / HTTP/1.1\r\n'))).toEqual([
      'protocol_violation',
      'invalid frontend message type 71',
    ]);
    for (const type of [0, ...Buffer.from('RKTZp1!')]) {
      expect(refusal(frontendFrames(), Buffer.of(type))).toEqual(['protocol_violation', `invalid frontend message type ${type}`]);
    }
    expect(refusal(backendFrames(), Buffer.from('Q'))).toEqual([
      'backend_lost',
      "the database server's reply could not be understood: invalid backend message type 81",
    ]);
  });

  test('nothing can follow an error', () => {
    const scanner = new FrameScanner(frontendFrames());
    scanner.push(Buffer.from('S\0\0\0\x04!S\0\0\0\x04', 'latin1'));
    expect(scanner.next()).toBe(true);
    expect(() => scanner.next()).toThrow('invalid frontend message type 33');
    expect(() => scanner.next()).toThrow('invalid frontend message type 33');
  });

  test('random bytes end in an error or in nothing, never in anything else', () => {
    const random = new SeededRandom(2);
    for (let round = 0; round < 3_000; round++) {
      const bytes = random.bytes(1 + random.below(60));
      if (random.below(2) === 0) bytes[0] = Buffer.from('QPBEDCSHXFdcf')[random.below(13)] ?? 0;
      if (bytes.length > 4 && random.below(2) === 0) bytes.writeInt32BE(random.below(40), 1);
      try {
        scan(frontendFrames({ Q: 10, P: 1_000 }), random.cut(bytes, 20));
      } catch (error) {
        expect(error).toMatchObject({ name: 'ServiceError', kind: 'protocol_violation' });
      }
    }
  });
});

test('a message that is taken out with all behind it is found again when that is pushed again', () => {
  const rules = frontendFrames({ P: 8 });
  for (let cut = 16; cut <= CONVERSATION.length; cut += 1) {
    const scanner = new FrameScanner(rules);
    scanner.push(CONVERSATION.subarray(0, cut));
    expect([scanner.next(), scanner.first]).toEqual([true, true]);
    const taken = scanner.takeMessage();
    expect(taken).toEqual(CONVERSATION.subarray(0, cut));
    expect([isAmid(scanner), scanner.last, scanner.held]).toEqual([false, true, undefined]);
    const again = scan(rules, [taken, CONVERSATION.subarray(cut)]);
    expect(again.bytes).toEqual(CONVERSATION);
    expect(again.messages.map(({ type }) => type).join('')).toBe('PBESQX');
  }
});
