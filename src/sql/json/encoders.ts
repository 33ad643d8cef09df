import type { PostgresType } from '../result/builtin-types.ts';
import { arrayEncoder } from './array.ts';
import { encodeBoolean, encodeFloat, encodeQuoted, encodeText, encodeVerbatim } from './scalars.ts';
import { encodeTimestamp, encodeTimestamptz } from './timestamps.ts';
import type { ValueEncoder } from './value-encoder.ts';

/** By OID. int8, numeric and money are strings always: a type must not depend on the value. All other types: their text. */
const SCALARS: ReadonlyMap<number, ValueEncoder> = new Map([
  [16, encodeBoolean],
  [21, encodeVerbatim], // int2
  [23, encodeVerbatim], // int4
  [700, encodeFloat],
  [701, encodeFloat],
  [114, encodeVerbatim], // json
  [3802, encodeVerbatim], // jsonb
  [20, encodeQuoted], // int8
  [1700, encodeQuoted], // numeric
  [2950, encodeQuoted], // uuid
  [1114, encodeTimestamp],
  [1184, encodeTimestamptz],
]);

/** Returns the encoder for values of a type. Called once for each column of a result, not for each value. */
export type EncoderChoice = (type: PostgresType) => ValueEncoder;

/** @param scalars encoders by OID; other types become strings, and arrays become JSON arrays of their encoded elements */
export function encodersBy(scalars: ReadonlyMap<number, ValueEncoder>): EncoderChoice {
  const encoderFor = ({ element, scalarOid }: PostgresType): ValueEncoder =>
    element ? arrayEncoder(encoderFor(element), element.delimiter) : (scalars.get(scalarOid) ?? encodeText);
  return encoderFor;
}

export const encoderFor = encodersBy(SCALARS);
