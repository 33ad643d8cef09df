import { isLosslessNumber } from 'lossless-json';
import { ServiceError } from '../../src/errors.ts';
import { TimeSlices } from '../../src/runtime/event-loop.ts';
import {
  areMany,
  atOnce,
  inSlices,
  JsonText,
  type JsonValue,
  needsType,
  type ParameterText,
  quoteElement,
  type Writing,
  writeJson,
} from '../../src/sql/parameters.ts';

/**
 * Encodes parameters as Neon's proxy does, independent of the parameter's type: strings unchanged, arrays as array
 * literals, other values as JSON. Neon's client itself sends only strings and nulls. Large values are written in time slices.
 * @throws ServiceError `invalid_request` naming the parameter
 */
export async function parameterTexts(values: readonly JsonValue[]): Promise<readonly ParameterText[]> {
  const slices = new TimeSlices();
  const isMuch = areMany(values);
  if (isMuch) await slices.pause();
  const texts: ParameterText[] = [];
  for (const [index, value] of values.entries()) {
    const text = !needsType(value) ? scalar(value) : isMuch ? await inSlices(structure(value)) : atOnce(structure(value));
    if (text?.includes('\0')) throw new ServiceError('invalid_request', `params[${index}] contains a NUL character`, { sqlstate: '22021' });
    texts.push(text);
  }
  return texts;
}

function* structure(value: JsonValue): Writing {
  const text = new JsonText();
  if (Array.isArray(value)) yield* writeArray(value, text);
  else yield* writeJson(value, text);
  return text.toString();
}

/** Only strings and objects need quotes; a nested array is a further dimension. */
function* writeArray(values: readonly JsonValue[], text: JsonText): Generator<void, void> {
  text.add('{');
  for (const [at, value] of values.entries()) {
    if (at > 0) text.add(',');
    if (Array.isArray(value)) yield* writeArray(value, text);
    else text.add(needsType(value) ? quoteElement(yield* structure(value)) : element(value));
    if (text.isDue) yield;
  }
  text.add('}');
}

function element(value: JsonValue): string {
  if (value === null) return 'NULL';
  return typeof value === 'string' ? quoteElement(value) : (scalar(value) ?? 'NULL');
}

/** Neither an array nor an object. */
function scalar(value: JsonValue): ParameterText {
  if (value === null || typeof value === 'string') return value;
  return isLosslessNumber(value) ? value.toString() : JSON.stringify(value);
}
