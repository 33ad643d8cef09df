import { expect, it } from 'vitest';
import * as z from 'zod';
import { endpointsOf } from '../../http/app.ts';
import { createKeyRequest, noBody, noQuery, transactionRequest, updateKeyRequest } from '../../http/request-schemas.ts';
import { exampleOf, schemaOf, validate } from '../../http/validation.ts';
import { ServiceError } from '../../src/errors.ts';
import { standIn } from './door.ts';

const schemas = new Set(
  endpointsOf(standIn())
    .flatMap(({ operation: { body, query } }) => [body, query])
    .filter((schema) => schema !== noBody && schema !== noQuery),
);

const hintFor = (schema: z.ZodType, value: unknown): string | undefined => {
  try {
    validate(schema, value, 'the body');
  } catch (error) {
    return error instanceof ServiceError ? error.hint : undefined;
  }
  return undefined;
};

it('every field of every call has an example', () => {
  const examples = [...schemas].flatMap((schema) =>
    Object.entries(schemaOf(schema, 'input').properties ?? {}).map(([name, field]) =>
      typeof field === 'object' ? exampleOf(field, [name], 'the body') : name,
    ),
  );
  expect(examples.length).toBeGreaterThan(20);
  // A place in the log is nothing to write by hand.
  expect(examples.filter((example) => example.includes('…') && !example.includes('"after"'))).toEqual([]);
});

it('the example of an item shows it in its list', () => {
  expect(hintFor(transactionRequest, { statements: ['select 1'] })).toBe(
    'For example "statements": [{"sql":"select id, total from orders where customer = $1"}]',
  );
  expect(hintFor(createKeyRequest, { name: 'a', scope: 'read', networks: ['10.0.0.0/33'] })).toBe(
    'For example "networks": ["203.0.113.0/24"]',
  );
});

it('a field that may be null says so', () => {
  const refusal = (value: unknown) => {
    try {
      validate(updateKeyRequest, value, 'the body');
    } catch (error) {
      return error instanceof ServiceError ? [error.message, error.hint] : error;
    }
    return undefined;
  };
  expect(refusal({ expiresAt: 7 })).toEqual([
    'expiresAt: must be a date and time with a time zone, or null',
    'For example "expiresAt": "2100-01-01T00:00:00Z"',
  ]);
  expect(refusal({ networks: 'x' })).toEqual([
    'networks: must be an array of 1 to 32 items, or null',
    'For example "networks": ["203.0.113.0/24"]',
  ]);
  expect(refusal({ networks: ['x'] })).toEqual([
    'networks[0]: must be an address or a CIDR range',
    'For example "networks": ["203.0.113.0/24"]',
  ]);
});

it('several hints are sentences', () => {
  const pair = z.strictObject({ first: z.int().meta({ examples: [1] }), second: z.int().meta({ examples: [2] }) });
  expect(hintFor(pair, { first: 'x', second: 'x' })).toBe('For example "first": 1. For example "second": 2');
});
