import type { FieldDescription } from '../../protocol/backend.ts';
import type { PostgresType } from '../result/builtin-types.ts';
import { type JsonBuffer, type Words, wordsOf } from './buffer.ts';
import { type EncoderChoice, encoderFor } from './encoders.ts';
import { PART_BYTES, type Parts, partsOf, type ValueEncoder } from './value-encoder.ts';

/** Larger rows are written in parts, between which the event loop handles other events. */
export const LARGE_ROW_BYTES = 131_072;

/** A column of a result. */
export interface Field extends FieldDescription {
  readonly type: PostgresType;
}

/**
 * Writes one row.
 * @param source holds the body of a DataRow message
 * @param start offset of that body
 */
export interface RowEncoder {
  (out: JsonBuffer, source: Buffer, start: number): void;
  /** The same in parts, for large rows. */
  readonly inParts: (out: JsonBuffer, source: Buffer, start: number) => Parts;
}

const [OPEN_OBJECT, CLOSE_OBJECT, OPEN_ARRAY, CLOSE_ARRAY, COMMA] = [0x7b, 0x7d, 0x5b, 0x5d, 0x2c];
const NULL = Buffer.from('null');

/** Rows as objects. Of columns with the same name only the last is kept; {@link repeatedNames} returns these names. */
export function objectRows(fields: readonly Field[], encoders: EncoderChoice = encoderFor): RowEncoder {
  const lastOf = new Map(fields.map(({ name }, index) => [name, index]));
  let separator = '';
  const keys = fields.map(({ name }, index) => {
    if (lastOf.get(name) !== index) return undefined;
    const key = wordsOf(Buffer.from(`${separator}${JSON.stringify(name)}:`));
    separator = ',';
    return key;
  });
  return rowEncoder(columns(fields, keys, encoders), OPEN_OBJECT, CLOSE_OBJECT);
}

/** Rows as arrays, with every column. */
export function arrayRows(fields: readonly Field[], encoders: EncoderChoice = encoderFor): RowEncoder {
  const keys = fields.map((_, index) => wordsOf(index === 0 ? Buffer.alloc(0) : Buffer.of(COMMA)));
  return rowEncoder(columns(fields, keys, encoders), OPEN_ARRAY, CLOSE_ARRAY);
}

export function repeatedNames(fields: readonly Field[]): readonly string[] {
  const names = fields.map(({ name }) => name);
  return [...new Set(names.filter((name, index) => names.indexOf(name) !== index))];
}

interface Column {
  /** The bytes before each value; undefined: the column is left out. */
  readonly key: Words | undefined;
  readonly encode: ValueEncoder;
}

function columns(fields: readonly Field[], keys: readonly (Words | undefined)[], encoders: EncoderChoice): readonly Column[] {
  return fields.map(({ type }, index) => ({ key: keys[index], encode: encoders(type) }));
}

function rowEncoder(columns: readonly Column[], open: number, close: number): RowEncoder {
  const whole = (out: JsonBuffer, source: Buffer, start: number) => {
    const lengths = out.viewOf(source);
    let at = start + 2;
    out.byte(open);
    for (const { key, encode } of columns) {
      const length = lengths.getInt32(at);
      at += 4;
      if (key !== undefined) {
        out.words(key);
        if (length < 0) out.copy(NULL);
        else encode(out, source, at, at + length);
      }
      if (length > 0) at += length;
    }
    out.byte(close);
  };
  return Object.assign(whole, {
    *inParts(out: JsonBuffer, source: Buffer, start: number): Parts {
      let at = start + 2;
      let due = at + PART_BYTES;
      out.byte(open);
      for (const { key, encode } of columns) {
        const length = source.readInt32BE(at);
        at += 4;
        if (key !== undefined) {
          out.words(key);
          if (length < 0) out.copy(NULL);
          else yield* partsOf(encode, out, source, at, at + length);
        }
        if (length > 0) at += length;
        if (at < due) continue;
        due = at + PART_BYTES;
        yield;
      }
      out.byte(close);
    },
  });
}
