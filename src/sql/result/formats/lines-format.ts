import type { JsonBuffer } from '../../json/buffer.ts';
import type { RowEncoder } from '../../json/row.ts';
import type { Parts } from '../../json/value-encoder.ts';
import type { PostgresType } from '../builtin-types.ts';
import { completion, describe, jsonFormat } from './json-format.ts';
import type { ResultFormat, RowMode } from './result-format.ts';

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

const [LINE_FEED, CARRIAGE_RETURN, SPACE] = [0x0a, 0x0d, 0x20];

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
