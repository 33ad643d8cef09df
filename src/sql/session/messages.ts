import { serialize } from 'pg-protocol';
import type { ParameterText } from '../parameters/parameters.ts';

export const SYNC = serialize.sync();

/** Parses a statement, as the unnamed one where no name is given, and has it described. */
export function parseAndDescribe(sql: string, name = ''): readonly Uint8Array[] {
  return [serialize.parse({ text: sql, name }), serialize.describe({ type: 'S', name })];
}

const NO_NAME = Buffer.alloc(0);
/** Execute of the unnamed portal, all rows of it, and Sync. */
const EXECUTE_AND_SYNC = Buffer.from('E\0\0\0\x09\0\0\0\0\0S\0\0\0\x04', 'latin1');
/** Of Bind: type, length, two names' ends, and three counts. */
const BIND_BYTES = 13;
const BIND = 0x42;

/**
 * Runs a statement that has been parsed to its end, and closes the request. Values both ways are text. On the path of every
 * query, so that it is written into one piece of memory at once.
 * @see https://www.postgresql.org/docs/current/protocol-message-formats.html#PROTOCOL-MESSAGE-FORMATS-BIND
 */
export function bindAndExecute(values: readonly ParameterText[], statement: Uint8Array = NO_NAME): Buffer {
  let length = BIND_BYTES + statement.length;
  for (const value of values) length += 4 + (value === null ? 0 : Buffer.byteLength(value));
  const bytes = Buffer.allocUnsafe(length + EXECUTE_AND_SYNC.length);
  bytes[0] = BIND;
  bytes.writeInt32BE(length - 1, 1);
  bytes[5] = 0;
  bytes.set(statement, 6);
  // No formats: all parameters are text.
  bytes.fill(0, 6 + statement.length, 9 + statement.length);
  let at = bytes.writeUInt16BE(values.length, 9 + statement.length);
  for (const value of values) at = writeValue(bytes, at, value);
  at = bytes.writeInt16BE(0, at);
  bytes.set(EXECUTE_AND_SYNC, at);
  return bytes;
}

function writeValue(bytes: Buffer, at: number, value: ParameterText): number {
  const written = value === null ? 0 : bytes.write(value, at + 4);
  bytes.writeInt32BE(value === null ? -1 : written, at);
  return at + 4 + written;
}

/** No error where there is no such statement. */
export function closeStatement(name: string): Uint8Array {
  return serialize.close({ type: 'S', name });
}

/** Everything at once, for a statement whose parameters need no description. */
export function runAtOnce(sql: string, values: readonly ParameterText[] = []): readonly Uint8Array[] {
  return [...parseAndDescribe(sql), bindAndExecute(values)];
}

/** The columns of a DataRow in text format, for statements of our own. */
export function readRow(source: Buffer, start: number): readonly ParameterText[] {
  const columns: ParameterText[] = [];
  let at = start + 2;
  for (let left = source.readUInt16BE(start); left > 0; left--) {
    const length = source.readInt32BE(at);
    at += 4;
    columns.push(length < 0 ? null : source.toString('utf8', at, at + length));
    if (length > 0) at += length;
  }
  return columns;
}
