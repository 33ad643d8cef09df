import type { JsonBuffer } from './json-buffer.ts';
import { arrayRows, type Field, objectRows, PART_BYTES, type Parts, type PostgresType, type RowEncoder } from './json-values.ts';
import type { StatementOutcome } from './result-budget.ts';
import type { Warning } from './warnings.ts';

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

/** The reply of `/api/query`: `{fields, rowAsArray, rows, rowCount, command, durationMs, warnings?}`. */
export function jsonFormat(rowMode: RowMode): ResultFormat {
  return rowMode === 'array' ? ROWS_AS_ARRAYS : ROWS_AS_OBJECTS;
}

const ROWS_AS_OBJECTS = queryFormat(false, objectRows);
const ROWS_AS_ARRAYS = queryFormat(true, arrayRows);

function queryFormat(rowAsArray: boolean, rows: ResultFormat['rows']): ResultFormat {
  return {
    losesRepeatedNames: !rowAsArray,
    needsTypes: true,
    separator: Buffer.from(','),
    rows,
    open(out, fields) {
      out.text(`{"fields":${JSON.stringify(fields.map(describe))},"rowAsArray":${rowAsArray},"rows":[`);
    },
    close(out, outcome, warnings) {
      out.text(`],${completion(outcome, warnings).slice(1)}`);
    },
  };
}

function describe({ name, type }: Field) {
  return { name, dataTypeID: type.oid, dataType: type.name };
}

function completion({ rowCount, command, durationMs }: StatementOutcome, warnings: readonly Warning[]): string {
  const list = warnings.length > 0 ? `,"warnings":${JSON.stringify(warnings)}` : '';
  return `{"rowCount":${rowCount},"command":"${command}","durationMs":${durationMs}${list}}`;
}

/** One JSON document a line: `{fields, rowAsArray}`, `{row}` for each row, `{complete: {rowCount, command, durationMs, warnings?}}`. */
export function linesFormat(rowMode: RowMode): ResultFormat {
  return rowMode === 'array' ? LINES_AS_ARRAYS : LINES_AS_OBJECTS;
}

const LINES_AS_OBJECTS = lines(jsonFormat('object'), false);
const LINES_AS_ARRAYS = lines(jsonFormat('array'), true);

const BEFORE_ROW = Buffer.from('{"row":');
const BEHIND_ROW = Buffer.from('}\n');

function lines({ losesRepeatedNames, rows }: ResultFormat, rowAsArray: boolean): ResultFormat {
  return {
    losesRepeatedNames,
    needsTypes: true,
    separator: Buffer.alloc(0),
    rows(fields) {
      return asLines(rows(fields), fields.some(({ type }) => mayHoldLineBreaks(type)) ? withoutLineBreaks : () => {});
    },
    open(out, fields) {
      out.text(`{"fields":${JSON.stringify(fields.map(describe))},"rowAsArray":${rowAsArray}}\n`);
    },
    close(out, outcome, warnings) {
      out.text(`{"complete":${completion(outcome, warnings)}}\n`);
    },
  };
}

const JSON_OID = 114;

/** Values of type json are stored as they were written, perhaps with line breaks; jsonb has none. */
function mayHoldLineBreaks({ scalarOid, element }: PostgresType): boolean {
  return element === undefined ? scalarOid === JSON_OID : mayHoldLineBreaks(element);
}

const SPACE = 0x20;

/** @param mend repairs the written row from this offset on */
function asLines(encode: RowEncoder, mend: (out: JsonBuffer, from: number) => void): RowEncoder {
  const whole = (out: JsonBuffer, source: Buffer, start: number) => {
    out.copy(BEFORE_ROW);
    const from = out.length;
    encode(out, source, start);
    mend(out, from);
    out.copy(BEHIND_ROW);
  };
  return Object.assign(whole, {
    *inParts(out: JsonBuffer, source: Buffer, start: number): Parts {
      out.copy(BEFORE_ROW);
      let from = out.length;
      for (const _ of encode.inParts(out, source, start)) {
        mend(out, from);
        yield;
        // The bytes written before may have been sent.
        from = out.length;
      }
      mend(out, from);
      out.copy(BEHIND_ROW);
    },
  });
}

/** Line breaks in strings are escaped, so any other is white space between JSON tokens. */
function withoutLineBreaks(out: JsonBuffer, from: number): void {
  const { bytes, length } = out;
  for (let at = from; at < length; at += 1) if (bytes[at] === LINE_FEED || bytes[at] === CARRIAGE_RETURN) bytes[at] = SPACE;
}

export type RowMode = 'object' | 'array';

/** How a result is written: the part before its rows, the rows, and the part after them. */
export interface ResultFormat {
  /** Whether of several columns with the same name only the last is kept. */
  readonly losesRepeatedNames: boolean;
  /** Whether the names and elements of the columns' types must be known. */
  readonly needsTypes: boolean;
  open(out: JsonBuffer, fields: readonly Field[]): void;
  rows(fields: readonly Field[]): RowEncoder;
  readonly separator: Uint8Array;
  close(out: JsonBuffer, outcome: StatementOutcome, warnings: readonly Warning[]): void;
}
