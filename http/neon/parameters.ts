import { isLosslessNumber, stringify } from 'lossless-json';
import { ServiceError } from '../../src/errors.ts';
import type { JsonValue } from '../../src/sql/json-value.ts';
import { areMany, type ParameterText, quoteElement } from '../../src/sql/parameters.ts';

/** Those in arrays and objects count as well. */
const VALUES_MAX = 100_000;

/**
 * Parameters as Neon's proxy writes them, without a look at the parameter's type: strings as they are, arrays as array
 * literals, anything else as JSON. Neon's client itself sends strings and nulls only.
 * @throws ServiceError `invalid_request` naming the parameter
 */
export function parameterTexts(values: readonly JsonValue[]): readonly ParameterText[] {
  if (areMany(values, VALUES_MAX)) throw new ServiceError('invalid_request', `params holds more than ${VALUES_MAX} values`);
  return values.map((value, index) => {
    const text = Array.isArray(value) ? arrayLiteral(value) : scalar(value);
    if (text?.includes('\0')) throw new ServiceError('invalid_request', `params[${index}] contains a NUL character`, { sqlstate: '22021' });
    return text;
  });
}

function arrayLiteral(values: readonly JsonValue[]): string {
  return `{${values.map(element).join(',')}}`;
}

/** Only what comes from a string or an object needs quotes; an array in an array is a further dimension. */
function element(value: JsonValue): string {
  if (Array.isArray(value)) return arrayLiteral(value);
  const text = scalar(value);
  if (text === null) return 'NULL';
  return typeof value === 'boolean' || typeof value === 'number' || isLosslessNumber(value) ? text : quoteElement(text);
}

function scalar(value: JsonValue): ParameterText {
  if (value === null || typeof value === 'string') return value;
  return stringify(value) ?? 'null';
}
