import type { FastifyRequest } from 'fastify';
import type { Clone } from '../../src/catalog/sign-ups.ts';
import { type Endpoint, endpoint, type Operation, type RouteContext } from '../operation.ts';
import { clonesReply, connectionDetails, createdCloneReply, EXAMPLE_KEY, organizationDeletionReply } from '../reply-schemas.ts';
import { tenantOf } from '../request-context.ts';
import { createCloneRequest, noBody, noQuery } from '../request-schemas.ts';

const TAG = 'Clones';
const ID = 'org_9w4k2t6y8u0r';
const EXAMPLE = {
  organizationId: ID,
  name: 'preview 42',
  status: 'active',
  createdAt: '2025-01-31T09:30:00.000Z',
  expiresAt: '2025-02-01T09:30:00.000Z',
};
const EXAMPLE_CONNECTION = { host: '127.0.0.1', port: 6432, user: ID, database: ID, sslmode: 'prefer' };

const create = {
  method: 'POST',
  path: '/api/clones',
  action: 'clones.create',
  operationId: 'createClone',
  tag: TAG,
  summary: 'Make a copy of the organization',
  description:
    'A new organization with a key of its own and a copy of the data, for previews and tests. It is removed when it expires: in a day unless expiresAt says otherwise, in seven days at most. While the data is copied, clients of this one wait. Up to five clones at a time, 30 an hour; a clone cannot be cloned.',
  needsKey: true,
  scope: 'admin',
  query: noQuery,
  body: createCloneRequest,
  bodyExample: { name: 'preview 42' },
  replies: {
    201: {
      description: 'The clone is ready.',
      schema: createdCloneReply,
      example: {
        apiKey: EXAMPLE_KEY,
        keyId: 'key_8h2f6d0s4p1w',
        ...EXAMPLE,
        connection: EXAMPLE_CONNECTION,
        connectionString: `postgres://${ID}:${EXAMPLE_KEY}@127.0.0.1:6432/${ID}?sslmode=require`,
      },
    },
  },
  errors: [
    'too_many_clones',
    'insufficient_storage',
    'disk_quota_exceeded',
    'rate_limited',
    'organization_busy',
    'unsupported_statement',
    'statement_timeout',
  ],
} as const satisfies Operation;

const list = {
  method: 'GET',
  path: '/api/clones',
  action: 'clones.list',
  operationId: 'listClones',
  tag: TAG,
  summary: 'List the clones',
  description: 'Those that have not been removed, the oldest first.',
  needsKey: true,
  scope: 'admin',
  query: noQuery,
  body: noBody,
  replies: { 200: { description: 'The clones.', schema: clonesReply, example: { clones: [EXAMPLE] } } },
  errors: [],
} as const satisfies Operation;

const remove = {
  method: 'DELETE',
  path: '/api/clones/{organizationId}',
  action: 'clones.delete',
  operationId: 'deleteClone',
  tag: TAG,
  summary: 'Remove a clone',
  description: 'Removes its data, role and keys for good, and ends its sessions at once (57P01).',
  needsKey: true,
  scope: 'admin',
  query: noQuery,
  body: noBody,
  replies: {
    200: { description: 'Nothing is left of it.', schema: organizationDeletionReply, example: { organizationId: ID, status: 'dropped' } },
    202: {
      description: 'Nobody can log in to it any more. Its data is removed as soon as its last sessions have ended.',
      schema: organizationDeletionReply,
      example: { organizationId: ID, status: 'dropping' },
    },
  },
  errors: [],
} as const satisfies Operation;

export function cloneEndpoints({ clones, connection }: RouteContext): Endpoint[] {
  return [
    endpoint(create, async ({ body, request, reply }) => {
      const { organization: source, key } = tenantOf(request);
      const { name, expiresAt: asked } = body ?? {};
      const wanted = {
        source,
        name,
        expiresAt: asked === undefined ? undefined : new Date(asked),
        actor: { keyId: key.id, keyPrefix: key.prefix },
      };
      const { organization, apiKey, keyId, expiresAt } = await clones.create(wanted, request.call.origin);
      const details = connectionDetails(organization.id, apiKey, request, connection);
      return reply.code(201).send({ apiKey, keyId, ...shown({ organization, sourceId: source.id, expiresAt }), ...details });
    }),
    endpoint(list, async ({ request }) => ({ clones: (await clones.list(tenantOf(request).organization.id)).map(shown) })),
    endpoint(remove, async ({ request, reply }) => {
      const { organization } = tenantOf(request);
      const { organization: removed } = await clones.delete(organization.id, cloneIdOf(request), request.call.origin);
      return reply.code(removed.status === 'dropped' ? 200 : 202).send({ organizationId: removed.id, status: removed.status });
    }),
  ];
}

function shown({ organization: { id, name, status, createdAt }, expiresAt }: Clone) {
  return { organizationId: id, name, status, createdAt, expiresAt };
}

function cloneIdOf({ params }: FastifyRequest): string {
  return (params as { readonly organizationId: string }).organizationId;
}
