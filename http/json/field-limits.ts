import { z } from 'zod';
import { ServiceError } from '../../src/errors.ts';
import { describeUnknown, NAMES_MAX } from './validation-messages.ts';

/** More than any schema has. */
const FIELDS_MAX = 100;
/** Limit of all other texts; values of parameters have none. */
const TEXT_MAX_CHARACTERS = 16_384;
const SQL_FIELDS: ReadonlySet<string> = new Set(['sql', 'rollbackSql', 'query']);

/**
 * Refuses input that a schema would take long to validate: an object with far more fields than the schema has, and a text that is
 * far longer than it allows.
 * @throws ServiceError `invalid_request`
 */
export function refuseExcess(schema: unknown, value: unknown, place = ''): void {
  if (schema instanceof z.ZodOptional || schema instanceof z.ZodExactOptional || schema instanceof z.ZodPrefault) {
    refuseExcess(schema.def.innerType, value, place);
  } else if (schema instanceof z.ZodArray && schema.element instanceof z.ZodObject && Array.isArray(value)) {
    for (const [index, item] of value.entries()) refuseExcess(schema.element, item, `${place}[${index}]`);
  } else if (schema instanceof z.ZodObject && typeof value === 'object' && value !== null && !Array.isArray(value)) {
    refuseExcessOf(schema, value, place);
  }
}

function refuseExcessOf({ shape, def }: z.ZodObject, value: object, place: string): void {
  const names = Object.keys(value);
  if (names.length > FIELDS_MAX && def.catchall instanceof z.ZodNever) {
    throw new ServiceError('invalid_request', describeUnknown(firstUnknown(names, shape), place), {
      hint: `There are ${Object.keys(shape).join(', ')}.`,
    });
  }
  for (const [name, schema] of Object.entries(shape)) {
    const field: unknown = (value as Readonly<Record<string, unknown>>)[name];
    const where = place === '' ? name : `${place}.${name}`;
    if (typeof field === 'string' && field.length > TEXT_MAX_CHARACTERS && !SQL_FIELDS.has(name)) {
      throw new ServiceError('invalid_request', `${where}: must have at most ${TEXT_MAX_CHARACTERS} characters`);
    }
    refuseExcess(schema, field, where);
  }
}

function firstUnknown(names: readonly string[], shape: object): readonly string[] {
  const unknown: string[] = [];
  for (const name of names) {
    if (!Object.hasOwn(shape, name)) unknown.push(name);
    if (unknown.length === NAMES_MAX) break;
  }
  return unknown;
}
