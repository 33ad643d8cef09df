import { bytesOf, settings, type Word, Words } from './words.ts';

/**
 * The bytes of one frontend message as a script writes it. This is an encoder of its own, so that nothing under test
 * makes the bytes it is tested with.
 * @see https://www.postgresql.org/docs/current/protocol-message-formats.html
 *
 *     Query SELECT 1                                      Parse s1 [int4 0] SELECT $1, $2
 *     Bind p1 s1 [1 null \x00ff "a b"] params=text,binary results=binary
 *     Describe S s1 · Describe P p1 · Close S s1          Execute p1 10
 *     CopyData "1\tx\n" · CopyDone · CopyFail why         FunctionCall 1397 [-7] params=text result=text
 *     Startup 3.0 user=x "options=-c a=b"                 CancelRequest 4711 0a0b0c0d
 *     SASLInitialResponse SCRAM-SHA-256 n,,n=,r=abc       SASLResponse …
 *     Raw 51 0000000d "SELECT 1" 00                       (hexadecimal digits, and text in quotes)
 *     Message Q "SELECT 1" 00                             (likewise, with type and length put before it)
 */
export function encodeFrontend(line: string): Buffer {
  const words = new Words(line);
  const name = words.text();
  const encode = FRONTEND[name];
  if (!encode) throw new Error(`no frontend message is called ${name}`);
  return encode(words);
}

const FRONTEND: Record<string, (words: Words) => Buffer> = {
  Query: (words) => message('Q', string(words.rest())),
  Parse: parse,
  Bind: bind,
  Describe: (words) => message('D', Buffer.from(words.text('S')), string(words.text('""'))),
  Execute: (words) => message('E', string(words.text()), int32(Number(words.text('0')))),
  Close: (words) => message('C', Buffer.from(words.text('S')), string(words.text())),
  Sync: () => message('S'),
  Flush: () => message('H'),
  Terminate: () => message('X'),
  CopyData: (words) => message('d', bytesOf(words.next() ?? EMPTY) ?? NOTHING),
  CopyDone: () => message('c'),
  CopyFail: (words) => message('f', string(words.rest())),
  FunctionCall: functionCall,
  SASLInitialResponse: (words) => message('p', string(words.text()), value(bytesOf(words.next() ?? EMPTY))),
  SASLResponse: (words) => message('p', Buffer.from(words.text())),
  Password: (words) => message('p', string(words.text())),
  Startup: startup,
  SSLRequest: () => packet(int32(80877103)),
  GSSENCRequest: () => packet(int32(80877104)),
  CancelRequest: (words) => packet(int32(80877102), int32(Number(words.text())), Buffer.from(words.text(), 'hex')),
  Message: (words) => message(words.text(), raw(words)),
  Raw: raw,
};

const NOTHING = Buffer.alloc(0);
const EMPTY: Word = { text: '', quoted: true };

/** Type names that scripts use for OIDs; any other type is written as its OID. */
const OIDS: Record<string, number> = {
  bool: 16,
  bytea: 17,
  int8: 20,
  int2: 21,
  int4: 23,
  text: 25,
  json: 114,
  float8: 701,
  'int4[]': 1007,
  varchar: 1043,
  date: 1082,
  timestamptz: 1184,
  numeric: 1700,
  uuid: 2950,
  jsonb: 3802,
};

function parse(words: Words): Buffer {
  const name = words.text();
  const types = words.list().map(({ text }) => int32(OIDS[text] ?? Number(text)));
  return message('P', string(name), string(words.rest()), int16(types.length), Buffer.concat(types));
}

function bind(words: Words): Buffer {
  const portal = words.text();
  const statement = words.text();
  const values = words.list().map((word) => value(bytesOf(word)));
  const options = settings(words.all());
  const params = formats(options.get('params'));
  const results = formats(options.get('results'));
  return message('B', string(portal), string(statement), params, int16(values.length), Buffer.concat(values), results);
}

function functionCall(words: Words): Buffer {
  const oid = int32(Number(words.text()));
  const values = words.list().map((word) => value(bytesOf(word)));
  const options = settings(words.all());
  const result = int16(options.get('result') === 'binary' ? 1 : 0);
  return message('F', oid, formats(options.get('params')), int16(values.length), Buffer.concat(values), result);
}

function startup(words: Words): Buffer {
  const [major, minor] = words.text('3.0').split('.').map(Number);
  const pairs = [...settings(words.all())].flatMap(([key, text]) => [string(key), string(text)]);
  return packet(int16(major ?? 3), int16(minor ?? 0), ...pairs, Buffer.from([0]));
}

function raw(words: Words): Buffer {
  return Buffer.concat(words.all().map(({ text, quoted }) => Buffer.from(text, quoted ? 'utf8' : 'hex')));
}

function message(type: string, ...parts: readonly Buffer[]): Buffer {
  return Buffer.concat([Buffer.from(type), packet(...parts)]);
}

function packet(...parts: readonly Buffer[]): Buffer {
  const length = parts.reduce((sum, part) => sum + part.length, 4);
  return Buffer.concat([int32(length), ...parts]);
}

function value(bytes: Buffer | null): Buffer {
  return bytes === null ? int32(-1) : Buffer.concat([int32(bytes.length), bytes]);
}

function formats(names: string | undefined): Buffer {
  const codes = names === undefined ? [] : names.split(',').map((name) => int16(name === 'binary' ? 1 : 0));
  return Buffer.concat([int16(codes.length), ...codes]);
}

function string(text: string): Buffer {
  return Buffer.from(`${text}\0`);
}

function int16(number: number): Buffer {
  const bytes = Buffer.alloc(2);
  bytes.writeUInt16BE(number);
  return bytes;
}

function int32(number: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(number >>> 0);
  return bytes;
}
