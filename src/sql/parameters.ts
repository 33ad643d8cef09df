import { isLosslessNumber, stringify } from 'lossless-json';
import { ServiceError } from '../errors.ts';
import { JSON_OIDS, type PostgresType } from './builtin-types.ts';
import type { JsonValue } from './json-value.ts';

/** What Bind can count. */
const PARAMETERS_MAX = 65_535;

/** A parameter in text format; null is NULL. */
export type ParameterText = string | null;

/** Whether the text depends on what Postgres takes the parameter for: a JSON array is an array literal for one type and JSON for another. */
export function needsType(value: JsonValue): boolean {
  return typeof value === 'object' && value !== null && !isLosslessNumber(value);
}

/**
 * Strings are the value's Postgres text for every type, so that whatever a reply contained can be sent back: `\x…` for bytea,
 * JSON text for jsonb, `{a,b}` for an array. Numbers keep their digits as written. Arrays become array literals, or JSON for
 * json and jsonb; objects are for json and jsonb alone.
 * @param types as ParameterDescription listed them; only looked at where {@link needsType} says so
 * @throws ServiceError `invalid_request` naming the parameter
 */
export function encodeParameters(values: readonly JsonValue[], types: readonly PostgresType[]): readonly ParameterText[] {
  return values.map((value, index) => {
    const text = needsType(value) ? encodeStructure(value, types[index], index) : encodeScalar(value);
    if (text?.includes('\0')) throw refuse(index, 'contains a NUL character', '22021');
    return text;
  });
}

/**
 * As {@link encodeParameters}, for a statement that has been described.
 * @throws ServiceError `invalid_request`
 */
export function encodeParametersOf(
  { parameters }: { readonly parameters: readonly PostgresType[] },
  values: readonly JsonValue[] = [],
): readonly ParameterText[] {
  checkParameterCount(values.length, parameters.length);
  return encodeParameters(values, parameters);
}

/** @throws ServiceError `invalid_request` */
export function checkParameterCount(given: number, wanted: number): void {
  if (given === wanted) return;
  throw new ServiceError('invalid_request', `the statement takes ${count(wanted)}, but params has ${given}`, { sqlstate: '08P01' });
}

/** @throws ServiceError `invalid_request` for more than the protocol can count */
export function checkParameterLimit(values: readonly JsonValue[]): void {
  if (values.length > PARAMETERS_MAX) {
    throw new ServiceError('invalid_request', `params has ${values.length} values, more than ${PARAMETERS_MAX}`, { sqlstate: '54023' });
  }
}

function count(parameters: number): string {
  return parameters === 1 ? '1 parameter' : `${parameters} parameters`;
}

function encodeScalar(value: JsonValue): ParameterText {
  return value === null ? null : scalarText(value);
}

/** JavaScript writes zero without the sign that a float keeps. */
function scalarText(value: NonNullable<JsonValue>): string {
  return Object.is(value, -0) ? '-0' : String(value);
}

function encodeStructure(value: JsonValue, type: PostgresType | undefined, index: number): string {
  try {
    if (type !== undefined && JSON_OIDS.has(type.scalarOid)) return jsonText(value);
    if (Array.isArray(value) && type?.element) return arrayLiteral(value, type.element, index);
  } catch (error) {
    if (error instanceof RangeError) throw refuse(index, 'is nested too deeply', '54001');
    throw error;
  }
  const what = Array.isArray(value) ? 'an array' : 'an object';
  const wanted = Array.isArray(value) ? 'an array type, json or jsonb' : 'json or jsonb';
  throw refuse(index, `is ${what}, which fits ${wanted} but not ${type?.name ?? 'this parameter'}`, '42804');
}

function jsonText(value: JsonValue): string {
  return stringify(value) ?? 'null';
}

/** Every element but NULL in quotes. An array in it is a further dimension, unless elements are JSON or arrays of their own (domains). */
function arrayLiteral(values: readonly JsonValue[], element: PostgresType, index: number): string {
  const parts = values.map((value) => {
    if (value === null) return 'NULL';
    const isDimension = Array.isArray(value) && !JSON_OIDS.has(element.scalarOid) && !element.element;
    if (isDimension) return arrayLiteral(value, element, index);
    return quoteElement(needsType(value) ? encodeStructure(value, element, index) : scalarText(value));
  });
  return `{${parts.join(element.delimiter)}}`;
}

/** An element of an array literal, whatever is in it. */
export function quoteElement(text: string): string {
  return `"${text.replace(/["\\]/g, '\\$&')}"`;
}

function refuse(index: number, message: string, sqlstate: string): ServiceError {
  return new ServiceError('invalid_request', `params[${index}] ${message}`, { sqlstate });
}
