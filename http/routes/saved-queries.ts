import type { FastifyRequest } from 'fastify';
import * as z from 'zod';
import { type CheckPresent, noQuery, versionOf } from '../../src/catalog/saved-queries.ts';
import { ServiceError } from '../../src/errors.ts';
import { keepResults } from '../../src/sql/result-budget.ts';
import {
  CONDITIONAL_CHANGE_HEADERS,
  CONDITIONAL_READ_HEADERS,
  ENTITY_TAG_HEADER,
  entityTag,
  hashOf,
  names,
  sendUnlessKnown,
} from '../entity-tags.ts';
import { type Endpoint, endpoint, type Operation, type RouteContext } from '../operation.ts';
import { tenantOf } from '../request-context.ts';
import { noBody, noQuery as noParameters, readable, sql } from '../request-schemas.ts';
import { validate } from '../validation.ts';

const SQL_MAX_BYTES = 65_536;
const NAME_MAX_CHARACTERS = 100;
const DESCRIPTION_MAX_CHARACTERS = 1_000;

/** A segment of the path. `.` and `..` would be taken for parts of the path itself. */
const nameIn = (names: z.ZodType<string, string>) =>
  z.strictObject({
    name: z
      .string()
      .max(NAME_MAX_CHARACTERS)
      .transform((name) => name.normalize('NFC').trim())
      .pipe(names)
      .refine((name) => name !== '.' && name !== '..', 'must not be "." or ".."'),
  });

/** What was saved under other rules can still be read and deleted. */
const queryName = nameIn(
  z
    .string()
    .min(1)
    .refine((name) => !/[\p{Cc}\p{Surrogate}]/u.test(name), 'must not contain control characters'),
);
const newQueryName = nameIn(readable(z.string().min(1)));

export const saveQueryRequest = z.strictObject({
  sql: sql
    .refine((text) => Buffer.byteLength(text) <= SQL_MAX_BYTES, `must be at most ${SQL_MAX_BYTES} bytes`)
    .meta({ description: 'SQL text, which is not run', examples: ['select * from orders'], maxLength: SQL_MAX_BYTES }),
  description: z
    .string()
    .trim()
    .max(DESCRIPTION_MAX_CHARACTERS)
    .refine((text) => !text.includes('\0'), 'must not contain a NUL character')
    .nullable()
    .default(null)
    .meta({ examples: ['For the monthly report'] }),
});

export const savedQuery = z.object({
  name: z.string(),
  sql: z.string(),
  description: z.string().nullable(),
  createdAt: z.string(),
  updatedAt: z.string(),
  updatedBy: z.string().describe('The keyId of the key that changed it last'),
});

export const savedQueries = z.object({ queries: z.array(savedQuery) });

export const deletedQuery = z.object({ name: z.string(), deletedAt: z.string() });

const TAG = 'Saved queries';
const EXAMPLE = {
  name: 'totals by customer',
  sql: 'select customer, sum(total) from orders group by customer',
  description: 'For the monthly report',
  createdAt: '2025-01-31T09:30:00.000Z',
  updatedAt: '2025-01-31T09:30:00.000Z',
  updatedBy: 'key_8h2f6d0s4p1w',
};

const list = {
  method: 'GET',
  path: '/api/queries',
  action: 'queries.list',
  operationId: 'listSavedQueries',
  tag: TAG,
  summary: 'List the saved queries',
  description: 'All keys of the organization share them. They are in the order of their names.',
  needsKey: true,
  query: noParameters,
  headers: CONDITIONAL_READ_HEADERS,
  body: noBody,
  replies: { 200: { description: 'The queries.', schema: savedQueries, example: { queries: [EXAMPLE] }, headers: ENTITY_TAG_HEADER } },
  errors: [],
} as const satisfies Operation;

const save = {
  method: 'PUT',
  path: '/api/queries/{name}',
  action: 'queries.save',
  operationId: 'saveQuery',
  tag: TAG,
  summary: 'Save a query',
  description:
    'Makes a query of this name, or replaces it. The name has 1 to 100 characters and is percent-encoded in the path, a slash too. An organization may have 500 queries, of 2 MiB together. With If-Match, or If-None-Match: *, nobody else’s change is overwritten.',
  needsKey: true,
  scope: 'write',
  query: noParameters,
  headers: CONDITIONAL_CHANGE_HEADERS,
  body: saveQueryRequest,
  bodyExample: { sql: EXAMPLE.sql, description: EXAMPLE.description },
  replies: {
    200: { description: 'Replaced.', schema: savedQuery, example: EXAMPLE, headers: ENTITY_TAG_HEADER },
    201: { description: 'New.', schema: savedQuery, example: EXAMPLE, headers: ENTITY_TAG_HEADER },
  },
  errors: ['too_many_queries', 'precondition_failed'],
} as const satisfies Operation;

const read = {
  method: 'GET',
  path: '/api/queries/{name}',
  action: 'queries.read',
  operationId: 'readSavedQuery',
  tag: TAG,
  summary: 'Read a saved query',
  needsKey: true,
  query: noParameters,
  headers: CONDITIONAL_READ_HEADERS,
  body: noBody,
  replies: { 200: { description: 'The query.', schema: savedQuery, example: EXAMPLE, headers: ENTITY_TAG_HEADER } },
  errors: [],
} as const satisfies Operation;

const remove = {
  method: 'DELETE',
  path: '/api/queries/{name}',
  action: 'queries.delete',
  operationId: 'deleteSavedQuery',
  tag: TAG,
  summary: 'Delete a saved query',
  needsKey: true,
  scope: 'write',
  query: noParameters,
  headers: { 'If-Match': CONDITIONAL_CHANGE_HEADERS['If-Match'] },
  body: noBody,
  replies: {
    200: { description: 'It is deleted.', schema: deletedQuery, example: { name: EXAMPLE.name, deletedAt: '2025-02-01T08:00:00.000Z' } },
  },
  errors: ['precondition_failed'],
} as const satisfies Operation;

export function savedQueryEndpoints({ router }: RouteContext): Endpoint[] {
  const { savedQueries: stored } = router.catalog;
  return [
    endpoint(list, async ({ request, reply }) => {
      const body = Buffer.from(JSON.stringify({ queries: await stored.list(tenantOf(request).organization.id) }));
      const refusal = keepResults(request.call.results, body.length);
      if (refusal !== undefined) throw refusal;
      return sendUnlessKnown(request, reply, body, hashOf(body));
    }),
    endpoint(save, async ({ body, request, reply }) => {
      const change = { ...tenantOf(request), origin: request.call.origin };
      const { saved, isNew } = await stored.save(change, { name: nameOf(request, newQueryName), ...body }, preconditionOf(request));
      return reply
        .code(isNew ? 201 : 200)
        .header('etag', entityTag(versionOf(saved)))
        .send(saved);
    }),
    endpoint(read, async ({ request, reply }) => {
      const name = nameOf(request);
      const found = await stored.find(tenantOf(request).organization.id, name);
      if (found === undefined) throw noQuery(name);
      return sendUnlessKnown(request, reply, found, versionOf(found));
    }),
    endpoint(remove, async ({ request }) => {
      const name = nameOf(request);
      await stored.delete({ ...tenantOf(request), origin: request.call.origin }, name, preconditionOf(request));
      return { name, deletedAt: new Date().toISOString() };
    }),
  ];
}

function nameOf({ params }: FastifyRequest, schema = queryName): string {
  return validate(schema, params, 'the path').name;
}

/** @see https://www.rfc-editor.org/rfc/rfc9110#name-precondition-header-fields */
function preconditionOf({ headers }: FastifyRequest): CheckPresent {
  return (present) => {
    const version = present && versionOf(present);
    const isMet =
      (headers['if-match'] === undefined || (version !== undefined && names(headers['if-match'], version))) &&
      (version === undefined || !names(headers['if-none-match'], version));
    if (isMet) return;
    const state = present === undefined ? 'does not exist' : `was changed at ${present.updatedAt.toISOString()} by ${present.updatedBy}`;
    throw new ServiceError('precondition_failed', `the query ${state}`);
  };
}
