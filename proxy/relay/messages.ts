/** Messages that the relay makes or changes on the way. Those that decode are in src/protocol. */

const [QUERY, PARSE, BIND, EXECUTE, CLOSE, DESCRIBE] = [...'QPBECD'].map((letter) => letter.charCodeAt(0));
const STATEMENT = 0x53;
const PORTAL = 0x50;

export const PARSE_COMPLETE = Buffer.from([0x31, 0, 0, 0, 4]);
export const CLOSE_COMPLETE = Buffer.from([0x33, 0, 0, 0, 4]);
export const READY_IDLE = Buffer.from([0x5a, 0, 0, 0, 5, 0x49]);

export const CLOSE_UNNAMED_PORTAL = Buffer.from([0x43, 0, 0, 0, 6, 0x50, 0]);
export const SYNC = Buffer.from([0x53, 0, 0, 0, 4]);
export const FLUSH = Buffer.from([0x48, 0, 0, 0, 4]);

/** @param sql without a NUL */
export function queryMessage(sql: string | Buffer): Buffer {
  return message(QUERY, typeof sql === 'string' ? Buffer.from(sql) : sql, NUL);
}

/** @param definition text, NUL and parameter types, as in a Parse message */
export function parseMessage(name: Buffer, definition: Buffer): Buffer {
  return message(PARSE, name, NUL, definition);
}

export function closeStatementMessage(name: Buffer): Buffer {
  return message(CLOSE, Buffer.from([STATEMENT]), name, NUL);
}

export function describeStatementMessage(name: Buffer): Buffer {
  return message(DESCRIBE, Buffer.from([STATEMENT]), name, NUL);
}

/** Without a portal's name, parameters and formats. */
export function bindMessage(statement: Buffer): Buffer {
  return message(BIND, NUL, statement, Buffer.alloc(7));
}

const NUL = Buffer.alloc(1);
/** An empty text with no parameters. */
export const EMPTY_DEFINITION = Buffer.alloc(3);

const OWN_NAME = Buffer.from('postern_discard\0');

/** Parse, Bind, Execute, Close of the portal, Close of the statement. */
export const DISCARD_SEQUENCES: Buffer = Buffer.concat([
  message(PARSE, OWN_NAME, Buffer.from('DISCARD SEQUENCES\0'), Buffer.alloc(2)),
  message(BIND, OWN_NAME, OWN_NAME, Buffer.alloc(6)),
  message(EXECUTE, OWN_NAME, Buffer.alloc(4)),
  message(CLOSE, Buffer.from([PORTAL]), OWN_NAME),
  message(CLOSE, Buffer.from([STATEMENT]), OWN_NAME),
]);

function message(type: number | undefined, ...parts: Buffer[]): Buffer {
  const header = Buffer.allocUnsafe(5);
  header[0] = type ?? 0;
  header.writeInt32BE(4 + parts.reduce((sum, part) => sum + part.length, 0), 1);
  return Buffer.concat([header, ...parts]);
}

/** A whole message with another body; `change` sees the body as Latin-1, so that bytes stay as they are. */
export function rewriteBody(original: Buffer, change: (body: string) => string): Buffer {
  return message(original[0], Buffer.from(change(original.toString('latin1', 5)), 'latin1'));
}

/** A Query or Parse message with its text rewritten. */
export async function rewrittenMessage(
  original: Buffer,
  rewrite: (sql: Buffer) => Promise<{ readonly sql: Buffer }> | undefined,
): Promise<Buffer> {
  const start = original[0] === PARSE ? original.indexOf(0, 5) + 1 : 5;
  const end = original.indexOf(0, start);
  const rewritten = await rewrite(original.subarray(start, end));
  return message(original[0], original.subarray(5, start), rewritten?.sql ?? original.subarray(start, end), original.subarray(end));
}
