import { z } from 'zod';
import { readSchema } from '../../../src/sql/schema.ts';
import { tenantOf } from '../../request-context.ts';
import { CONDITIONAL_READ_HEADERS, ENTITY_TAG_HEADER, sendUnlessKnown } from '../../responses/entity-tags.ts';
import { type Endpoint, endpoint, type Operation } from '../operation.ts';
import { LEASE_ERRORS } from '../operation-errors.ts';
import { noBody } from '../request-schemas.ts';
import type { RouteContext } from '../route-context.ts';
import { timeoutOf } from '../statement-timeout.ts';
import { SCHEMA_EXAMPLE, schemaReply } from './schema-reply.ts';

/** The length of a name in PostgreSQL, in bytes. */
const NAME_MAX = 63;

const schemaQuery = z.strictObject({
  schema: z
    .string()
    .min(1)
    .max(NAME_MAX)
    .exactOptional()
    .meta({ description: 'Show only this schema', examples: ['public'] }),
});

const schema = {
  method: 'GET',
  path: '/api/schema',
  action: 'schema.read',
  operationId: 'readSchema',
  tag: 'Database',
  summary: 'Show what the database is made of',
  description:
    'Tables, views, columns, keys, indexes, policies, triggers, types, sequences, functions and extensions that the key may see, in one snapshot of the catalogs. Names in definitions are qualified. At most 10,000 of a kind, and 32 MiB.',
  needsKey: true,
  query: schemaQuery,
  headers: CONDITIONAL_READ_HEADERS,
  body: noBody,
  replies: { 200: { description: 'The schema.', schema: schemaReply, example: SCHEMA_EXAMPLE, headers: ENTITY_TAG_HEADER } },
  errors: ['not_found', 'lock_not_available', 'statement_timeout', 'response_too_large', ...LEASE_ERRORS],
} as const satisfies Operation;

export function schemaEndpoints({ router, config }: RouteContext): Endpoint[] {
  return [
    endpoint(schema, async ({ query, request, reply }) => {
      const { disconnect, results } = request.call;
      const lease = await router.lease(tenantOf(request), { door: 'http', disconnect });
      const { body, hash } = await readSchema(lease, { ...query, timeoutMs: timeoutOf(undefined, config), disconnect, results });
      return sendUnlessKnown(request, reply, body, hash);
    }),
  ];
}
