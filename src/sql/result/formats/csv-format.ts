import type { JsonBuffer } from '../../json/buffer.ts';
import type { Field, RowEncoder } from '../../json/row.ts';
import { PART_BYTES, type Parts } from '../../json/value-encoder.ts';
import type { ResultFormat } from './result-format.ts';

const [COMMA, QUOTE, LINE_FEED, CARRIAGE_RETURN] = [0x2c, 0x22, 0x0a, 0x0d];
/** Alone on a line it would end the data of a COPY. */
const END_OF_DATA = '\\.';

/**
 * Exactly what `COPY (…) TO STDOUT (FORMAT csv, HEADER)` writes: RFC 4180 with line feeds, a first line with the names, every value in
 * Postgres' text, NULL as nothing and an empty string as `""`. A command without rows is nothing at all.
 * @see https://www.postgresql.org/docs/current/sql-copy.html#id-1.9.3.55.9.3
 */
export const CSV_FORMAT: ResultFormat = {
  losesRepeatedNames: false,
  needsTypes: false,
  separator: Buffer.alloc(0),
  open(out, fields) {
    for (const [index, { name }] of fields.entries()) {
      const bytes = Buffer.from(name);
      if (index > 0) out.byte(COMMA);
      writeValue(out, bytes, 0, bytes.length, fields.length === 1);
    }
    if (fields.length > 0) out.byte(LINE_FEED);
  },
  rows: csvRows,
  close() {},
};

function csvRows(fields: readonly Field[]): RowEncoder {
  const count = fields.length;
  const whole = (out: JsonBuffer, source: Buffer, start: number) => {
    const lengths = out.viewOf(source);
    let at = start + 2;
    for (let column = 0; column < count; column += 1) {
      const length = lengths.getInt32(at);
      at += 4;
      if (column > 0) out.byte(COMMA);
      if (length < 0) continue;
      writeValue(out, source, at, at + length, count === 1);
      at += length;
    }
    out.byte(LINE_FEED);
  };
  return Object.assign(whole, {
    *inParts(out: JsonBuffer, source: Buffer, start: number): Parts {
      let at = start + 2;
      let due = at + PART_BYTES;
      for (let column = 0; column < count; column += 1) {
        const length = source.readInt32BE(at);
        at += 4;
        if (column > 0) out.byte(COMMA);
        if (length > PART_BYTES) yield* writeInParts(out, source, at, at + length);
        else if (length >= 0) writeValue(out, source, at, at + length, count === 1);
        if (length > 0) at += length;
        if (at < due) continue;
        due = at + PART_BYTES;
        yield;
      }
      out.byte(LINE_FEED);
    },
  });
}

/** @param isOnly it is the only value of its line */
function writeValue(out: JsonBuffer, source: Uint8Array, start: number, end: number, isOnly: boolean): void {
  const isEndOfData =
    isOnly && end - start === 2 && source[start] === END_OF_DATA.charCodeAt(0) && source[start + 1] === END_OF_DATA.charCodeAt(1);
  if (start < end && !isEndOfData && !needsQuotes(source, start, end)) {
    out.copy(source, start, end);
    return;
  }
  out.byte(QUOTE);
  writeQuoted(out, source, start, end);
  out.byte(QUOTE);
}

/** Looks at the whole value first, because the quotes come before it. */
function* writeInParts(out: JsonBuffer, source: Uint8Array, start: number, end: number): Parts {
  let isQuoted = false;
  for (let at = start; at < end && !isQuoted; at += PART_BYTES) {
    isQuoted = needsQuotes(source, at, Math.min(at + PART_BYTES, end));
    yield;
  }
  if (isQuoted) out.byte(QUOTE);
  for (let at = start; at < end; at += PART_BYTES) {
    const stop = Math.min(at + PART_BYTES, end);
    if (isQuoted) writeQuoted(out, source, at, stop);
    else out.copy(source, at, stop);
    yield;
  }
  if (isQuoted) out.byte(QUOTE);
}

function needsQuotes(source: Uint8Array, start: number, end: number): boolean {
  for (let at = start; at < end; at += 1) {
    const byte = source[at];
    if (byte === COMMA || byte === QUOTE || byte === LINE_FEED || byte === CARRIAGE_RETURN) return true;
  }
  return false;
}

function writeQuoted(out: JsonBuffer, source: Uint8Array, start: number, end: number): void {
  out.reserve(2 * (end - start));
  const { bytes } = out;
  let { length } = out;
  for (let at = start; at < end; at += 1) {
    const byte = source[at] ?? 0;
    if (byte === QUOTE) bytes[length++] = QUOTE;
    bytes[length++] = byte;
  }
  out.length = length;
}
