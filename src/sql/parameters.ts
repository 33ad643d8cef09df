import { isLosslessNumber, type LosslessNumber } from 'lossless-json';
import { ServiceError } from '../errors.ts';
import { TimeSlices } from '../runtime/event-loop.ts';
import { JSON_OIDS, type PostgresType } from './json-values.ts';

/** Bind has a 16-bit count of parameters. */
const PARAMETERS_MAX = 65_535;

/** A parameter in text format; null is NULL. */
export type ParameterText = string | null;

/**
 * Whether a value's text depends on the parameter's type: a JSON array is an array literal for one type and JSON for another, and `1.0` is
 * an integer for one and has a digit behind the point for another.
 */
export function needsType(value: JsonValue): boolean {
  if (typeof value !== 'object' || value === null) return false;
  return !isLosslessNumber(value) || /[.eE]/.test(value.value);
}

const sources = new WeakMap<object, string | Buffer>();

/**
 * Keeps the JSON text that an array or object was parsed from: for a parameter of type json or jsonb it is sent as it is.
 * @param text as bytes, if these will not change
 */
export function keepSource(structure: object, text: string | Buffer): void {
  sources.set(structure, text);
}

/** Writing this many values, in arrays and objects, takes some milliseconds. */
const MANY = 10_000;
/** This many characters of a long string, or digits of a long number, count as one value. */
const VALUE_CHARACTERS = 64;

/** Whether the values are so large that writing them at once would delay other clients. */
export function areMany(values: readonly JsonValue[]): boolean {
  let left = MANY;
  for (const value of values) {
    if (needsType(value)) left = remainingAfter(value, left);
    if (left < 0) return true;
  }
  return false;
}

/** Counts the values in a value. @returns how many of `limit` remain; negative: there are more */
function remainingAfter(value: JsonValue, limit: number): number {
  if (typeof value === 'string') return limit - 1 - Math.floor(value.length / VALUE_CHARACTERS);
  if (isLosslessNumber(value)) return limit - 1 - Math.floor(value.value.length / VALUE_CHARACTERS);
  if (!needsType(value)) return limit - 1;
  if (Array.isArray(value)) return remainingAfterAll(value.length, (at) => value[at], limit - 1);
  const members = value as { readonly [name: string]: JsonValue };
  const names = Object.keys(members);
  return remainingAfterAll(names.length, (at) => members[names[at] ?? ''], limit - 1);
}

function remainingAfterAll(count: number, inner: (at: number) => JsonValue | undefined, limit: number): number {
  if (count > limit) return -1;
  let left = limit;
  for (let at = 0; at < count && left >= 0; at += 1) left = remainingAfter(inner(at) ?? null, left);
  return left;
}

/**
 * A string is the value's Postgres text, for every type, so that values of a reply can be sent back unchanged: `\x…` for bytea,
 * JSON text for jsonb, `{a,b}` for an array. Numbers keep their digits. Arrays become array literals, or JSON for
 * json and jsonb; objects are for json and jsonb only.
 * @param types those of the ParameterDescription; used only where {@link needsType} is true
 * @throws ServiceError `invalid_request` naming the parameter
 */
export function encodeParameters(values: readonly JsonValue[], types: readonly PostgresType[]): readonly ParameterText[] {
  return values.map((value, index) =>
    checked(needsType(value) ? atOnce(structureText(value, types[index], index)) : encodeScalar(value), index),
  );
}

/** As {@link encodeParameters}, in time slices, for {@link areMany many} values. */
export async function encodeInSlices(values: readonly JsonValue[], types: readonly PostgresType[]): Promise<readonly ParameterText[]> {
  const texts: ParameterText[] = [];
  const slices = new TimeSlices();
  for (const [index, value] of values.entries()) {
    const text = needsType(value) ? await inSlices(structureText(value, types[index], index)) : encodeScalar(value);
    // The text is joined when it is looked at.
    await slices.pause();
    texts.push(checked(text, index));
    await slices.pause();
  }
  return texts;
}

function checked(text: ParameterText, index: number): ParameterText {
  if (text?.includes('\0')) throw refuse(index, 'contains a NUL character', '22021');
  return text;
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

/** As {@link encodeParametersOf}, in time slices if there are many values. */
export function encodeAnyOf(
  statement: { readonly parameters: readonly PostgresType[] },
  values: readonly JsonValue[] = [],
): readonly ParameterText[] | Promise<readonly ParameterText[]> {
  if (!areMany(values)) return encodeParametersOf(statement, values);
  checkParameterCount(values.length, statement.parameters.length);
  return encodeInSlices(values, statement.parameters);
}

/** @throws ServiceError `invalid_request` */
export function checkParameterCount(given: number, wanted: number): void {
  if (given === wanted) return;
  throw new ServiceError('invalid_request', `the statement takes ${count(wanted)}, but params has ${given}`, { sqlstate: '08P01' });
}

/** @throws ServiceError `invalid_request` for more parameters than the protocol can count */
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

/** JavaScript writes -0 without its sign, which a float has. */
function scalarText(value: NonNullable<JsonValue>): string {
  return Object.is(value, -0) ? '-0' : String(value);
}

/** bool, int8, int2, int4 and oid. */
const WHOLE_OIDS: ReadonlySet<number> = new Set([16, 20, 21, 23, 26]);

/** More digits than doubles can have, before and after the point. */
const LONG_CHARACTERS_OF_NUMBER = 700;

/** A double keeps 15 significant digits of any number in its range, and all digits that a program has printed of a double. */
export function changesAsDouble(literal: string): boolean {
  // No program prints a double like that, and parsing a long number takes long.
  if (literal.length > LONG_CHARACTERS_OF_NUMBER) return true;
  const value = Number(literal);
  if (String(value) === literal) return false;
  if (!Number.isFinite(value)) return true;
  const mantissa = literal.replace(/[eE].*$/, '');
  const digits = mantissa.replace(/^-?[0.]*/, '').replace('.', '');
  return digits.length > 15 || (value === 0 && digits !== '');
}

/** An integer may be written `1.0` or `1e3`; everything else gets the digits as they were sent. */
function numberText(literal: string, type: PostgresType | undefined): string {
  if (type === undefined || !WHOLE_OIDS.has(type.scalarOid)) return literal;
  const value = Number(literal);
  return Number.isInteger(value) && !changesAsDouble(literal) ? scalarText(value) : literal;
}

function* structureText(value: JsonValue, type: PostgresType | undefined, index: number): Writing {
  if (isLosslessNumber(value)) return numberText(value.value, type);
  try {
    const text = new JsonText();
    if (type !== undefined && JSON_OIDS.has(type.scalarOid)) {
      const source = sources.get(value as object);
      if (source !== undefined) return source.toString();
      yield* writeJson(value, text);
      return text.toString();
    }
    if (Array.isArray(value) && type?.element) {
      yield* writeArray(value, type.element, index, text);
      return text.toString();
    }
  } catch (error) {
    if (error instanceof RangeError) throw refuse(index, 'is nested too deeply', '54001');
    throw error;
  }
  const what = Array.isArray(value) ? 'an array' : 'an object';
  const wanted = Array.isArray(value) ? 'an array type, json or jsonb' : 'json or jsonb';
  throw refuse(index, `is ${what}, which fits ${wanted} but not ${type?.name ?? 'this parameter'}`, '42804');
}

/** Quotes every element except NULL. A nested array is a further dimension, unless the elements are JSON or domains over arrays. */
function* writeArray(values: readonly JsonValue[], element: PostgresType, index: number, text: JsonText): Generator<void, void> {
  const hasDimensions = !JSON_OIDS.has(element.scalarOid) && !element.element;
  text.add('{');
  for (const [at, value] of values.entries()) {
    if (at > 0) text.add(element.delimiter);
    if (value === null) text.add('NULL');
    else if (hasDimensions && Array.isArray(value)) yield* writeArray(value, element, index, text);
    else {
      const written = needsType(value) ? yield* structureText(value, element, index) : scalarText(value);
      if (written.length > LONG_CHARACTERS) yield* writeLong(written, text);
      else text.add(quoteElement(written));
    }
    if (text.isDue) yield;
  }
  text.add('}');
}

const LONG_CHARACTERS = 65_536;

function* writeLong(element: string, text: JsonText): Generator<void, void> {
  text.add('"');
  for (let at = 0; at < element.length; at += LONG_CHARACTERS) {
    text.add(escaped(element.slice(at, at + LONG_CHARACTERS)));
    yield;
  }
  text.add('"');
}

/** An element of an array literal, quoted. */
export function quoteElement(text: string): string {
  return `"${escaped(text)}"`;
}

function escaped(text: string): string {
  return text.replace(/["\\]/g, '\\$&');
}

function refuse(index: number, message: string, sqlstate: string): ServiceError {
  return new ServiceError('invalid_request', `params[${index}] ${message}`, { sqlstate });
}

/** Writes a text, and yields from time to time, so that the event loop can handle other events. */
export type Writing = Generator<void, string>;

const PIECES_MAX = 1_024;
const CHARACTERS_MAX = 65_536;

/** A text made of many pieces. */
export class JsonText {
  #text = '';
  #pieces: string[] = [];
  /** In pieces. */
  #characters = 0;

  add(piece: string): void {
    this.#pieces.push(piece);
    this.#characters += piece.length;
  }

  /** Whether enough has been written since the last pause. */
  get isDue(): boolean {
    if (this.#pieces.length < PIECES_MAX && this.#characters < CHARACTERS_MAX) return false;
    this.#text += this.#pieces.join('');
    this.#pieces = [];
    this.#characters = 0;
    return true;
  }

  toString(): string {
    return this.#text + this.#pieces.join('');
  }
}

export function atOnce(writing: Writing): string {
  for (;;) {
    const { done, value } = writing.next();
    if (done) return value;
  }
}

export async function inSlices(writing: Writing): Promise<string> {
  const slices = new TimeSlices();
  for (;;) {
    const { done, value } = writing.next();
    if (done) return value;
    await slices.pause();
  }
}

/** Writes JSON, with the digits of numbers unchanged. */
export function* writeJson(value: JsonValue, text: JsonText): Generator<void, void> {
  if (typeof value !== 'object' || value === null || isLosslessNumber(value)) text.add(scalarJson(value));
  else if (Array.isArray(value)) yield* writeItems(value, text);
  else yield* writeMembers(value as Members, text);
}

type Members = { readonly [name: string]: JsonValue };

function* writeItems(items: readonly JsonValue[], text: JsonText): Generator<void, void> {
  text.add('[');
  for (let at = 0; at < items.length; at += 1) {
    const item = items[at] as JsonValue;
    if (at > 0) text.add(',');
    if (typeof item === 'object' && item !== null) yield* writeJson(item, text);
    else text.add(scalarJson(item));
    if (text.isDue) yield;
  }
  text.add(']');
}

function* writeMembers(members: Members, text: JsonText): Generator<void, void> {
  let mark = '{';
  // For an object of many members, `Object.keys` takes a third of the time of `Object.entries`.
  for (const name of Object.keys(members)) {
    text.add(`${mark}${JSON.stringify(name)}:`);
    yield* writeJson(members[name] as JsonValue, text);
    if (text.isDue) yield;
    mark = ',';
  }
  text.add(mark === '{' ? '{}' : '}');
}

function scalarJson(value: JsonValue): string {
  return isLosslessNumber(value) ? value.toString() : JSON.stringify(value);
}

/**
 * A JSON value of a request. Its numbers are {@link LosslessNumber}s (lossless-json's `parse`), so that an
 * integer beyond 2^53 keeps its digits; plain numbers are accepted too.
 */
export type JsonValue = null | boolean | number | string | LosslessNumber | readonly JsonValue[] | { readonly [key: string]: JsonValue };
