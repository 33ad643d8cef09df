import type { z } from 'zod';
import { ServiceError } from '../../src/errors.ts';
import { type JsonSchema, schemaOf } from '../docs/json-schema.ts';
import { refuseExcess } from './field-limits.ts';
import { describeUnknown, exampleOf, expectationOf, fieldAt, hintOfUnknown } from './validation-messages.ts';

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
