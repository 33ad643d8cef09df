import type { JsonSchema } from '../docs/json-schema.ts';
import { suggestMember } from '../responses/did-you-mean.ts';

/** The schema of a field, by its path in a body. */
export function fieldAt(schema: JsonSchema, path: readonly PropertyKey[]): JsonSchema {
  let field: JsonSchema = schema;
  for (const part of path) {
    const { items, properties } = withoutNull(field);
    const inner = typeof part === 'number' ? items : properties?.[String(part)];
    field = typeof inner === 'object' && !Array.isArray(inner) ? (inner as JsonSchema) : {};
  }
  return field;
}

/** Of a field that may also be null: what else it may be. */
function withoutNull(field: JsonSchema): JsonSchema {
  const others = field.anyOf?.filter((one) => typeof one === 'object' && one.type !== 'null') ?? [];
  const [only] = others;
  if (others.length !== 1 || typeof only !== 'object') return field;
  return field.examples === undefined ? only : { ...only, examples: field.examples };
}

/** What a field must be, with its range: `must be a whole number from 1 to 300000`. */
export function expectationOf(field: JsonSchema): string | undefined {
  const other = withoutNull(field);
  if (other !== field) return `${expectationOf(other)}, or null`;
  const { minimum, maximum, minLength, maxLength, minItems, maxItems } = field;
  if (field.enum !== undefined) return `must be ${field.enum.map((value) => JSON.stringify(value)).join(' or ')}`;
  switch (Array.isArray(field.type) ? field.type[0] : field.type) {
    case 'integer':
      return `must be a whole number${range(' ', minimum, maximum, '')}`;
    case 'boolean':
      return 'must be true or false';
    case 'array':
      return `must be an array${range(' of ', minItems, maxItems, ' items')}`;
    case 'object':
      return 'must be a JSON object';
    case 'string':
      if (field.format === 'date-time') return 'must be a date and time with a time zone';
      if (field.format?.endsWith('email')) return 'must be a valid e-mail address';
      return `must be a string${range(' of ', minLength, maxLength, ' characters')}`;
    default:
      return undefined;
  }
}

function range(before: string, least: number | undefined, most: number | undefined, unit: string): string {
  if (most !== undefined)
    return before + (least === undefined ? `at most ${most}` : `${before === ' ' ? 'from ' : ''}${least} to ${most}`) + unit;
  return least === undefined ? '' : `${before}at least ${least}${unit.replace(least === 1 ? /s$/ : /$^/, '')}`;
}

/** How a field looks when it is right. */
export function exampleOf(field: JsonSchema, path: readonly PropertyKey[], whole: string): string {
  const name = path.findLast((part) => typeof part === 'string');
  const value = exampleValue(field);
  if (name === undefined) return `For example ${JSON.stringify(value)}`;
  if (whole === 'the query string') return `For example ${String(name)}=${encodeURIComponent(String(value))}`;
  const isItem = typeof path.at(-1) === 'number';
  return `For example "${String(name)}": ${JSON.stringify(isItem ? [value] : value)}`;
}

function exampleValue(all: JsonSchema): unknown {
  const field = withoutNull(all);
  const { examples, properties = {}, required = [] } = field;
  const given = examples?.[0] ?? field.default ?? field.enum?.[0];
  if (given !== undefined) return given;
  const inner = (schema: unknown) => exampleValue(typeof schema === 'object' && schema !== null ? (schema as JsonSchema) : {});
  switch (field.type) {
    case 'object':
      return Object.fromEntries(
        (required.length > 0 ? required : Object.keys(properties).slice(0, 1)).map((name) => [name, inner(properties[name])]),
      );
    case 'array':
      return [inner(field.items)];
    case 'integer':
      return field.minimum ?? 1;
    case 'boolean':
      return true;
    default:
      return '…';
  }
}

/** How many names are listed. */
export const NAMES_MAX = 5;
const NAME_MAX_CHARACTERS = 100;

/** @param place path of the object with these fields; '' for the whole body */
export function describeUnknown(names: readonly string[], place: string): string {
  const listed = names.slice(0, NAMES_MAX).map((name) => `"${(place === '' ? name : `${place}.${name}`).slice(0, NAME_MAX_CHARACTERS)}"`);
  return `unknown ${names.length === 1 ? 'field' : 'fields'} ${listed.join(', ')}`;
}

/** What members may have been meant, or else which there are. */
export function hintOfUnknown(all: readonly string[], { properties = {} }: JsonSchema): string {
  const names = all.slice(0, NAMES_MAX);
  const known = Object.keys(properties);
  const meant = names.map((name) => suggestMember(name, known));
  const [first] = meant;
  if (all.length === 1 && first !== undefined) return `Did you mean "${first}"?`;
  const pairs = names.flatMap((name, i) => (meant[i] === undefined ? [] : [`"${meant[i]}" in place of "${name}"`]));
  if (pairs.length === all.length) return `Did you mean ${pairs.join(' and ')}?`;
  return known.length === 0 ? 'There are none here.' : `There are ${known.join(', ')}.`;
}
