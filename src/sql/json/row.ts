import type { PostgresType } from '../builtin-types.ts';
import type { JsonBuffer } from './buffer.ts';
import { encoderFor } from './encoders.ts';

/** A column of a result. */
export interface Field {
  readonly name: string;
  readonly type: PostgresType;
}

/**
 * Writes one row.
 * @param source holds the body of a DataRow message
 * @param start where that body begins
 */
export type RowEncoder = (out: JsonBuffer, source: Buffer, start: number) => void;

const [OPEN_OBJECT, CLOSE_OBJECT, OPEN_ARRAY, CLOSE_ARRAY, COMMA] = [0x7b, 0x7d, 0x5b, 0x5d, 0x2c];
const NULL = Buffer.from('null');

/** Rows as objects. Of columns with the same name the last one wins; {@link repeatedNames} tells which there are. */
export function objectRows(fields: readonly Field[]): RowEncoder {
  const lastOf = new Map(fields.map(({ name }, index) => [name, index]));
  let separator = '';
  const keys = fields.map(({ name }, index) => {
    if (lastOf.get(name) !== index) return undefined;
    const key = Buffer.from(`${separator}${JSON.stringify(name)}:`);
    separator = ',';
    return key;
  });
  return rowEncoder(fields, keys, OPEN_OBJECT, CLOSE_OBJECT);
}

/** Rows as arrays, with every column. */
export function arrayRows(fields: readonly Field[]): RowEncoder {
  const keys = fields.map((_, index) => (index === 0 ? Buffer.alloc(0) : Buffer.of(COMMA)));
  return rowEncoder(fields, keys, OPEN_ARRAY, CLOSE_ARRAY);
}

export function repeatedNames(fields: readonly Field[]): readonly string[] {
  const names = fields.map(({ name }) => name);
  return [...new Set(names.filter((name, index) => names.indexOf(name) !== index))];
}

/** @param keys what is written before each value; undefined leaves the column out */
function rowEncoder(fields: readonly Field[], keys: readonly (Buffer | undefined)[], open: number, close: number): RowEncoder {
  const columns = fields.map(({ type }, index) => ({ key: keys[index], encode: encoderFor(type) }));
  return (out, source, start) => {
    let at = start + 2;
    out.byte(open);
    for (const { key, encode } of columns) {
      const length = source.readInt32BE(at);
      at += 4;
      if (key !== undefined) {
        out.copy(key);
        if (length < 0) out.copy(NULL);
        else encode(out, source, at, at + length);
      }
      if (length > 0) at += length;
    }
    out.byte(close);
  };
}
