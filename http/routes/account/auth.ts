import { ServiceError } from '../../../src/errors.ts';
import { MAX_VALUES } from '../../json/incremental-json-reader.ts';
import { bodyBoundsOf } from '../../plugins/body-memory.ts';
import { tenantOf } from '../../request-context.ts';
import { connectionDetails } from '../../responses/connection-details.ts';
import { EXAMPLE_KEY, ROTATED_EXAMPLE, rotatedReply, shownKey } from '../../responses/key-replies.ts';
import { meReply, rotateKeyReply, signupReply } from '../../responses/reply-schemas.ts';
import { type Endpoint, endpoint, type Operation } from '../operation.ts';
import { MAX_PARAMETERS, MAX_STATEMENTS, noBody, noQuery, rotateKeyRequest, signupRequest } from '../request-schemas.ts';
import type { RouteContext } from '../route-context.ts';
import { timeoutOf } from '../statement-timeout.ts';

export const ORGANIZATION_TAG = 'Organization and key';
export const EXAMPLE_ORGANIZATION = {
  id: 'org_3k9x2m7q1a5z',
  organizationId: 'org_3k9x2m7q1a5z',
  orgName: 'Acme',
  email: 'a@acme.test',
  createdAt: '2025-01-31T09:30:00.000Z',
};
const EXAMPLE_KEY_DETAILS = { name: 'first key', scope: 'admin', createdBy: null, expiresAt: null, networks: null, replacedBy: null };
const EXAMPLE_KEY_TIMES = { prefix: 'pst_4fT9aB', createdAt: '2025-01-31T09:30:00.000Z', lastUsedAt: '2025-01-31T09:31:00.000Z' };
const EXAMPLE_CONNECTION = { host: '127.0.0.1', port: 6432, user: 'org_3k9x2m7q1a5z', database: 'org_3k9x2m7q1a5z', sslmode: 'prefer' };

const signup = {
  method: 'POST',
  path: '/api/auth/signup',
  action: 'auth.signup',
  operationId: 'signUp',
  tag: ORGANIZATION_TAG,
  summary: 'Sign up an organization',
  description:
    'Makes an organization with a database of its own and returns its API key, which works at both doors a second later. Limited per hour and client address; every well-formed attempt counts, also one that fails.',
  needsKey: false,
  query: noQuery,
  body: signupRequest,
  bodyExample: { orgName: 'Acme', email: 'a@acme.test' },
  replies: {
    201: {
      description: 'The organization is ready.',
      schema: signupReply,
      example: {
        apiKey: EXAMPLE_KEY,
        keyId: 'key_8h2f6d0s4p1w',
        ...EXAMPLE_ORGANIZATION,
        connection: EXAMPLE_CONNECTION,
        connectionString: `postgres://org_3k9x2m7q1a5z:${EXAMPLE_KEY}@127.0.0.1:6432/org_3k9x2m7q1a5z?sslmode=require`,
      },
      headers: {
        'RateLimit-Policy': 'Sign-ups allowed per hour (q, w)',
        RateLimit: 'Sign-ups left (r) and seconds until there is one more (t)',
      },
    },
  },
  errors: ['email_taken', 'signup_closed', 'invite_required', 'invite_invalid', 'rate_limited'],
} as const satisfies Operation;

const me = {
  method: 'GET',
  path: '/api/auth/me',
  action: 'auth.me',
  operationId: 'whoAmI',
  tag: ORGANIZATION_TAG,
  summary: 'Who the key belongs to, and how to connect',
  needsKey: true,
  query: noQuery,
  body: noBody,
  replies: {
    200: {
      description: 'The organization, its key and its limits.',
      schema: meReply,
      example: {
        ...EXAMPLE_ORGANIZATION,
        key: { keyId: 'key_8h2f6d0s4p1w', ...EXAMPLE_KEY_TIMES, ...EXAMPLE_KEY_DETAILS },
        apiKey: { id: 'key_8h2f6d0s4p1w', ...EXAMPLE_KEY_TIMES },
        connection: EXAMPLE_CONNECTION,
        connectionString: 'postgres://org_3k9x2m7q1a5z@127.0.0.1:6432/org_3k9x2m7q1a5z?sslmode=require',
        limits: {
          statementTimeoutMs: 30_000,
          maxStatementTimeoutMs: 300_000,
          maxBodyBytes: 16_777_216,
          maxBodiesBytes: 67_108_864,
          maxBodyValues: MAX_VALUES,
          maxStatements: MAX_STATEMENTS,
          maxParameters: MAX_PARAMETERS,
          maxRequests: 256,
          maxBackendSessions: 16,
          maxClientConnections: 1_000,
        },
      },
    },
  },
  errors: [],
} as const satisfies Operation;

const rotateKey = {
  method: 'POST',
  path: '/api/auth/rotate-key',
  action: 'auth.rotate_key',
  operationId: 'rotateKey',
  tag: ORGANIZATION_TAG,
  summary: 'Replace the API key',
  description:
    'The new key has the name, scope, expiry and networks of the old one, which is dead at once, at both doors; wire sessions opened with it end (57P01). With graceSeconds it is so after that time. Needs no body, and the scope admin.',
  needsKey: true,
  scope: 'admin',
  query: noQuery,
  body: rotateKeyRequest,
  replies: {
    200: {
      description: 'The new key.',
      schema: rotateKeyReply,
      example: ROTATED_EXAMPLE,
    },
  },
  errors: ['too_many_keys'],
} as const satisfies Operation;

export function authEndpoints({ router, keys, signUps, config, connection }: RouteContext): Endpoint[] {
  return [
    endpoint(signup, async ({ body, request, reply }) => {
      reply.header('ratelimit-policy', `"signup";q=${config.POSTERN_SIGNUPS_PER_HOUR};w=3600`);
      const { organization, apiKey, keyId, quota } = await signUps.create(body, request.call.origin).catch((error: unknown) => {
        if (error instanceof ServiceError && error.kind === 'rate_limited')
          reply.header('ratelimit', rateLimit(0, error.retryAfterS ?? 3_600));
        throw error;
      });
      if (quota !== undefined) reply.header('ratelimit', rateLimit(quota.remaining, quota.resetS));
      const { id, name: orgName, email, createdAt } = organization;
      const about = { id, organizationId: id, orgName, email, createdAt, ...connectionDetails(id, apiKey, request, connection) };
      return reply.code(201).send({ apiKey, keyId, ...about });
    }),

    endpoint(me, async ({ request }) => {
      const { organization, key } = tenantOf(request);
      // Names and addresses are not among what the process is notified of.
      const { id, name: orgName, email, createdAt } = (await router.catalog.organizations.find(organization.id)) ?? organization;
      const times = { prefix: key.prefix, createdAt: key.createdAt, lastUsedAt: key.lastUsedAt };
      const asking = { key: shownKey(key), apiKey: { id: key.id, ...times } };
      const limits = {
        statementTimeoutMs: timeoutOf(undefined, config),
        maxStatementTimeoutMs: config.POSTERN_STATEMENT_TIMEOUT_MAX_MS,
        maxBodyBytes: config.POSTERN_HTTP_BODY_MAX_BYTES,
        maxBodiesBytes: bodyBoundsOf(config).perOrganizationBytes,
        maxBodyValues: MAX_VALUES,
        maxStatements: MAX_STATEMENTS,
        maxParameters: MAX_PARAMETERS,
        maxRequests: config.POSTERN_HTTP_REQUESTS_PER_TENANT,
        maxBackendSessions: config.POSTERN_BACKENDS_PER_TENANT,
        maxClientConnections: config.POSTERN_CLIENTS_PER_TENANT,
      };
      const about = { id, organizationId: id, orgName, email, createdAt };
      return { ...about, ...asking, ...connectionDetails(id, undefined, request, connection), limits };
    }),

    endpoint(rotateKey, async ({ body, request }) => {
      const tenant = tenantOf(request);
      const rotated = await keys.rotate(tenant, tenant.key.id, body?.graceSeconds ?? 0, request.call.origin);
      return rotatedReply(tenant.organization.id, rotated);
    }),
  ];
}

/** @see https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/ */
function rateLimit(remaining: number, resetS: number): string {
  return `"signup";r=${remaining};t=${Math.ceil(resetS)}`;
}
