import * as z from 'zod';
import { ServiceError } from '../src/errors.ts';
import { nearest, simplified, WORD_MAX_CHARACTERS } from '../src/runtime/nearest-word.ts';

const MAX_ISSUES = 5;
/** The longest list that a schema allows. In a longer one, every item would be validated before the length is checked. */
const LIST_MAX_ITEMS = 65_535;

/**
 * @param whole what the value is: `the body` or `the query string`
 * @throws ServiceError `invalid_request` that names each invalid field with what it must be, and gives an example
 */
export function validate<T>(schema: z.ZodType<T>, value: unknown, whole: string): T {
  refuseExcess(schema, value);
  refuseEndlessLists(schema, value);
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  const issues = parsed.error.issues.slice(0, MAX_ISSUES).map((issue) => describeIssue(issue, jsonSchemaOf(schema), value, whole));
  const hints = [...new Set(issues.map(({ hint }) => hint))];
  const hint = hints.reduce((before, next) => `${before}${/[.?]$/.test(before) ? '' : '.'} ${next}`);
  throw new ServiceError('invalid_request', issues.map(({ message }) => message).join('; '), { hint });
}

const jsonSchemas = new WeakMap<z.ZodType, JsonSchema>();

function jsonSchemaOf(schema: z.ZodType): JsonSchema {
  const known = jsonSchemas.get(schema);
  if (known !== undefined) return known;
  const made = schemaOf(schema, 'input');
  jsonSchemas.set(schema, made);
  return made;
}

function refuseEndlessLists(schema: z.ZodType, value: unknown): void {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return;
  for (const [name, list] of Object.entries(value)) {
    if (!Array.isArray(list) || list.length <= LIST_MAX_ITEMS) continue;
    const expectation = expectationOf(fieldAt(jsonSchemaOf(schema), [name])) ?? `must have at most ${LIST_MAX_ITEMS} items`;
    throw new ServiceError('invalid_request', `${name.slice(0, 100)}: ${expectation}`);
  }
}

interface Described {
  readonly message: string;
  readonly hint: string;
}

function describeIssue(issue: z.core.$ZodIssue, schema: JsonSchema, value: unknown, whole: string): Described {
  const place = issue.path
    .map((part) => (typeof part === 'number' ? `[${part}]` : `.${String(part)}`))
    .join('')
    .replace(/^\./, '');
  const field = fieldAt(schema, issue.path);
  if (issue.code === 'unrecognized_keys') return { message: describeUnknown(issue.keys, place), hint: hintOfUnknown(issue.keys, field) };
  const isMissing = valueAt(value, issue.path) === undefined;
  const expectation = issue.code === 'custom' ? issue.message : (expectationOf(field) ?? 'must be left out');
  return {
    message: `${place === '' ? whole : place}: ${isMissing ? 'is required' : expectation}`,
    hint: exampleOf(field, issue.path, whole),
  };
}

function valueAt(value: unknown, path: readonly PropertyKey[]): unknown {
  let inner = value;
  for (const part of path) {
    if (typeof inner !== 'object' || inner === null) return undefined;
    inner = (inner as Readonly<Record<PropertyKey, unknown>>)[part];
  }
  return inner;
}

/** The schema of a field, by its path in a body. */
function fieldAt(schema: JsonSchema, path: readonly PropertyKey[]): JsonSchema {
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
function expectationOf(field: JsonSchema): string | undefined {
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
const NAMES_MAX = 5;
const NAME_MAX_CHARACTERS = 100;

/** @param place path of the object with these fields; '' for the whole body */
function describeUnknown(names: readonly string[], place: string): string {
  const listed = names.slice(0, NAMES_MAX).map((name) => `"${(place === '' ? name : `${place}.${name}`).slice(0, NAME_MAX_CHARACTERS)}"`);
  return `unknown ${names.length === 1 ? 'field' : 'fields'} ${listed.join(', ')}`;
}

/** What members may have been meant, or else which there are. */
function hintOfUnknown(all: readonly string[], { properties = {} }: JsonSchema): string {
  const names = all.slice(0, NAMES_MAX);
  const known = Object.keys(properties);
  const meant = names.map((name) => suggestMember(name, known));
  const [first] = meant;
  if (all.length === 1 && first !== undefined) return `Did you mean "${first}"?`;
  const pairs = names.flatMap((name, i) => (meant[i] === undefined ? [] : [`"${meant[i]}" in place of "${name}"`]));
  if (pairs.length === all.length) return `Did you mean ${pairs.join(' and ')}?`;
  return known.length === 0 ? 'There are none here.' : `There are ${known.join(', ')}.`;
}

/** What other APIs call the members of requests. */
const OTHER_NAMES: ReadonlyMap<string, string> = new Map(
  Object.entries({
    sql: ['query', 'text', 'statement', 'q', 'command'],
    params: ['parameters', 'values', 'args', 'arguments', 'bindings', 'variables'],
    statements: ['queries', 'transaction', 'batch'],
    timeoutMs: ['timeout', 'statementtimeout'],
    rowMode: ['arraymode', 'mode', 'format'],
    isolationLevel: ['isolation'],
    orgName: ['name', 'organization', 'organizationname', 'org', 'company'],
    email: ['mail', 'emailaddress'],
    rollbackSql: ['down', 'rollback'],
    limit: ['pagesize', 'perpage', 'count'],
    after: ['cursor', 'nextcursor', 'page', 'offset'],
    since: ['from', 'start'],
    until: ['to', 'end'],
  }).flatMap(([name, others]) => others.map((other) => [other, name] as const)),
);

/** The known member that is probably meant by an unknown name. */
function suggestMember(name: string, known: readonly string[]): string | undefined {
  if (name.length > WORD_MAX_CHARACTERS) return undefined;
  const other = OTHER_NAMES.get(simplified(name));
  return other !== undefined && known.includes(other) ? other : nearest(name, known);
}

/** The known path that is probably meant by an unknown one. */
export function suggestPath(path: string, known: Iterable<string>): string | undefined {
  if (path.length > WORD_MAX_CHARACTERS) return undefined;
  const paths = [...known].filter((one) => one !== '/');
  const end = path.toLowerCase().replace(/^\/+|\/+$/g, '');
  return (end === '' ? undefined : paths.find((one) => one.endsWith(`/${end}`))) ?? nearest(path, paths);
}

export type JsonSchema = z.core.JSONSchema.BaseSchema;

/** How the JSON schemas of the OpenAPI document are made. */
export const JSON_SCHEMA_OPTIONS = { unrepresentable: 'any', override: tidy } as const;

export function schemaOf(schema: z.ZodType, io: 'input' | 'output'): JsonSchema {
  return plain(z.toJSONSchema(schema, { io, ...JSON_SCHEMA_OPTIONS }));
}

/** A schema without what JSON Schema needs at the root of a document only. */
export function plain({
  $schema: _dialect,
  $id: _id,
  '~standard': _standard,
  ...rest
}: JsonSchema & { '~standard'?: unknown }): JsonSchema {
  return rest;
}

/** Leaves out bounds that every integer has, and patterns that repeat the format beside them. */
function tidy({ jsonSchema }: { readonly jsonSchema: JsonSchema }): void {
  if (jsonSchema.minimum === Number.MIN_SAFE_INTEGER) delete jsonSchema.minimum;
  if (jsonSchema.maximum === Number.MAX_SAFE_INTEGER) delete jsonSchema.maximum;
  if (jsonSchema.format !== undefined || jsonSchema.type === 'integer') delete jsonSchema.pattern;
}

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
