import type { FastifyRequest } from 'fastify';
import { type Endpoint, endpoint, type Operation, type RouteContext } from '../operation.ts';
import {
  createdKeyReply,
  EXAMPLE_KEY,
  key as keySchema,
  keysReply,
  ROTATED_EXAMPLE,
  revokedKeyReply,
  rotatedReply,
  rotateKeyReply,
  shownKey,
} from '../reply-schemas.ts';
import { tenantOf } from '../request-context.ts';
import { createKeyRequest, noBody, noQuery, rotateKeyRequest, updateKeyRequest } from '../request-schemas.ts';

const TAG = 'Keys';
const EXAMPLE = {
  keyId: 'key_1b5n9v3c7x0z',
  prefix: 'pst_7Kq2Lm',
  name: 'nightly job',
  scope: 'write',
  createdAt: '2025-01-31T09:30:00.000Z',
  createdBy: 'key_8h2f6d0s4p1w',
  expiresAt: '2100-01-01T00:00:00.000Z',
  networks: ['203.0.113.0/24'],
  lastUsedAt: null,
  replacedBy: null,
};

const create = {
  method: 'POST',
  path: '/api/keys',
  action: 'keys.create',
  operationId: 'createKey',
  tag: TAG,
  summary: 'Make another key',
  description: 'An organization may have 100 keys. All of them log in to the wire door with the organization as user.',
  needsKey: true,
  scope: 'admin',
  query: noQuery,
  body: createKeyRequest,
  bodyExample: { name: 'nightly job', scope: 'write', expiresAt: '2100-01-01T00:00:00Z', networks: ['203.0.113.0/24'] },
  replies: { 201: { description: 'The key.', schema: createdKeyReply, example: { apiKey: EXAMPLE_KEY, ...EXAMPLE } } },
  errors: ['too_many_keys'],
} as const satisfies Operation;

const list = {
  method: 'GET',
  path: '/api/keys',
  action: 'keys.list',
  operationId: 'listKeys',
  tag: TAG,
  summary: 'List the keys',
  description: 'Those that are valid, the oldest first.',
  needsKey: true,
  scope: 'admin',
  query: noQuery,
  body: noBody,
  replies: { 200: { description: 'The keys.', schema: keysReply, example: { keys: [EXAMPLE] } } },
  errors: [],
} as const satisfies Operation;

const update = {
  method: 'PATCH',
  path: '/api/keys/{keyId}',
  action: 'keys.update',
  operationId: 'updateKey',
  tag: TAG,
  summary: 'Change a key',
  description:
    'What the body does not name stays as it is; null removes an expiry or networks. New networks end sessions opened with the key. One that is being replaced keeps its end, or gets an earlier one.',
  needsKey: true,
  scope: 'admin',
  query: noQuery,
  body: updateKeyRequest,
  bodyExample: { networks: ['203.0.113.0/24', '2001:db8::/32'] },
  replies: {
    200: { description: 'The key.', schema: keySchema, example: { ...EXAMPLE, networks: ['203.0.113.0/24', '2001:db8::/32'] } },
  },
  errors: ['last_admin_key'],
} as const satisfies Operation;

const revoke = {
  method: 'DELETE',
  path: '/api/keys/{keyId}',
  action: 'keys.revoke',
  operationId: 'revokeKey',
  tag: TAG,
  summary: 'Revoke a key',
  description: 'The key is dead at once, at both doors, and sessions opened with it end. The last admin key that does not expire stays.',
  needsKey: true,
  scope: 'admin',
  query: noQuery,
  body: noBody,
  replies: {
    200: {
      description: 'The key is dead.',
      schema: revokedKeyReply,
      example: { keyId: 'key_1b5n9v3c7x0z', revokedAt: '2025-02-01T08:00:00.000Z' },
    },
  },
  errors: [],
} as const satisfies Operation;

const rotate = {
  method: 'POST',
  path: '/api/keys/{keyId}/rotate',
  action: 'keys.rotate',
  operationId: 'rotateKeyById',
  tag: TAG,
  summary: 'Replace a key',
  description:
    'The new key has the name, scope, expiry and networks of the old one, which is dead at once, or after graceSeconds. Until then its replies have the header API-Key-Replaced-By, and its wire sessions begin with a notice.',
  needsKey: true,
  scope: 'admin',
  query: noQuery,
  body: rotateKeyRequest,
  bodyExample: { graceSeconds: 3_600 },
  replies: { 200: { description: 'The new key.', schema: rotateKeyReply, example: ROTATED_EXAMPLE } },
  errors: ['too_many_keys'],
} as const satisfies Operation;

export function keyEndpoints({ keys }: RouteContext): Endpoint[] {
  return [
    endpoint(create, async ({ body, request, reply }) => {
      const { name, scope, expiresAt, networks = null } = body;
      const details = { name, scope, expiresAt: expiresAt === undefined ? null : new Date(expiresAt), networks };
      const { apiKey, key } = await keys.create(tenantOf(request), details, request.call.origin);
      return reply.code(201).send({ apiKey, ...shownKey(key) });
    }),
    endpoint(list, async ({ request }) => ({ keys: (await keys.list(tenantOf(request))).map(shownKey) })),
    endpoint(update, async ({ body, request }) => {
      const { expiresAt, ...rest } = body;
      const expiry = expiresAt === undefined ? {} : { expiresAt: expiresAt === null ? null : new Date(expiresAt) };
      return shownKey(await keys.update(tenantOf(request), keyIdOf(request), { ...rest, ...expiry }, request.call.origin));
    }),
    endpoint(revoke, async ({ request }) => {
      const keyId = keyIdOf(request);
      return { keyId, revokedAt: await keys.revoke(tenantOf(request), keyId, request.call.origin) };
    }),
    endpoint(rotate, async ({ body, request }) => {
      const { organization } = tenantOf(request);
      const rotated = await keys.rotate(tenantOf(request), keyIdOf(request), body?.graceSeconds ?? 0, request.call.origin);
      return rotatedReply(organization.id, rotated);
    }),
  ];
}

function keyIdOf({ params }: FastifyRequest): string {
  return (params as { readonly keyId: string }).keyId;
}
