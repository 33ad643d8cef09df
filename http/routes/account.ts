import type { FastifyRequest } from 'fastify';
import { isOver, limitsInForce } from '../../src/catalog/limits.ts';
import { ServiceError } from '../../src/errors.ts';
import type { ConsoleSignIn } from '../../src/router/one-time-sign-in.ts';
import { once } from '../../src/sql/idempotency.ts';
import { bodyBoundsOf } from '../admission.ts';
import { JSON_TYPE } from '../headers.ts';
import { IDEMPOTENCY_HEADERS, idempotentRequest, REPLAYED_HEADER, sendNewOrReplayed } from '../idempotency-key.ts';
import { MAX_VALUES } from '../json-body.ts';
import { type Endpoint, endpoint, IDEMPOTENCY_ERRORS, LEASE_ERRORS, type Operation, type RouteContext, timeoutOf } from '../operation.ts';
import {
  connectionDetails,
  createdKeyReply,
  EXAMPLE_KEY,
  meReply,
  organizationDeletionReply,
  organizationReply,
  ROTATED_EXAMPLE,
  rotatedReply,
  rotateKeyReply,
  shownKey,
  signupReply,
} from '../reply-schemas.ts';
import { tenantOf } from '../request-context.ts';
import {
  consoleSignInRequest,
  MAX_PARAMETERS,
  MAX_STATEMENTS,
  noBody,
  noQuery,
  organizationChanges,
  organizationDeletion,
  rotateKeyRequest,
  signupRequest,
} from '../request-schemas.ts';

const ORGANIZATION_TAG = 'Organization and key';
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
          wireStatementTimeoutMs: null,
          maxBodyBytes: 16_777_216,
          maxBodiesBytes: 67_108_864,
          maxBodyValues: MAX_VALUES,
          maxStatements: MAX_STATEMENTS,
          maxParameters: MAX_PARAMETERS,
          maxRequests: 256,
          maxRequestsPerSecond: 50,
          maxBackendSessions: 16,
          maxClientConnections: 1_000,
          maxDiskBytes: 10_737_418_240,
        },
        disk: { usedBytes: 8_388_608, isOverQuota: false },
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

export function authEndpoints({ router, keys, signUps, statistics, config, connection }: RouteContext): Endpoint[] {
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
      const tenant = tenantOf(request);
      const { organization, key } = tenant;
      const inForce = limitsInForce(organization, config);
      // Names and addresses are not among what the process is notified of.
      const { id, name: orgName, email, createdAt } = (await router.catalog.organizations.find(organization.id)) ?? organization;
      const times = { prefix: key.prefix, createdAt: key.createdAt, lastUsedAt: key.lastUsedAt };
      const asking = { key: shownKey(key), apiKey: { id: key.id, ...times } };
      const limits = {
        statementTimeoutMs: timeoutOf(undefined, config, tenant),
        maxStatementTimeoutMs: inForce.httpStatementMs,
        wireStatementTimeoutMs: inForce.statementMs === 0 ? null : inForce.statementMs,
        maxBodyBytes: config.POSTERN_HTTP_BODY_MAX_BYTES,
        maxBodiesBytes: bodyBoundsOf(config).perOrganizationBytes,
        maxBodyValues: MAX_VALUES,
        maxStatements: MAX_STATEMENTS,
        maxParameters: MAX_PARAMETERS,
        maxRequests: inForce.requests,
        maxRequestsPerSecond: inForce.requestsPerSecond,
        maxBackendSessions: config.POSTERN_BACKENDS_PER_TENANT,
        maxClientConnections: inForce.sessions,
        maxDiskBytes: inForce.diskBytes,
      };
      const about = { id, organizationId: id, orgName, email, createdAt };
      // Whoever may connect is told how, also while the server is too busy to measure.
      const usedBytes = await statistics.dataBytes(organization.placement).catch(() => null);
      const disk = { usedBytes, isOverQuota: isOver(organization.diskState) };
      return { ...about, ...asking, ...connectionDetails(id, undefined, request, connection), limits, disk };
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

const update = {
  method: 'PATCH',
  path: '/api/organization',
  action: 'organization.update',
  operationId: 'updateOrganization',
  tag: ORGANIZATION_TAG,
  summary: 'Change the name or the e-mail address of the organization',
  description: 'What is left out stays as it is. The e-mail address may be changed five times an hour.',
  needsKey: true,
  scope: 'admin',
  query: noQuery,
  headers: IDEMPOTENCY_HEADERS,
  body: organizationChanges,
  bodyExample: { name: 'Acme Ltd', email: 'ops@acme.test' },
  replies: {
    200: {
      description: 'The organization as it is now.',
      schema: organizationReply,
      example: { ...EXAMPLE_ORGANIZATION, name: 'Acme Ltd', orgName: 'Acme Ltd', email: 'ops@acme.test' },
      headers: REPLAYED_HEADER,
    },
  },
  errors: ['email_taken', 'rate_limited', ...IDEMPOTENCY_ERRORS, ...LEASE_ERRORS],
} as const satisfies Operation;

const remove = {
  method: 'DELETE',
  path: '/api/organization',
  action: 'organization.delete',
  operationId: 'deleteOrganization',
  tag: ORGANIZATION_TAG,
  summary: 'Delete the organization',
  description:
    'Removes its data, role and keys for good, and ends its sessions at once (57P01). Its e-mail address is free again. The operator keeps its audit log. A second request finds that its key is not valid any more.',
  needsKey: true,
  scope: 'admin',
  query: noQuery,
  body: organizationDeletion,
  bodyExample: { confirm: EXAMPLE_ORGANIZATION.id },
  replies: {
    200: {
      description: 'Nothing is left of it.',
      schema: organizationDeletionReply,
      example: { organizationId: EXAMPLE_ORGANIZATION.id, status: 'dropped' },
    },
    202: {
      description: 'Nobody can log in to it any more. Its data is removed as soon as its last sessions have ended.',
      schema: organizationDeletionReply,
      example: { organizationId: EXAMPLE_ORGANIZATION.id, status: 'dropping' },
    },
  },
  errors: [],
} as const satisfies Operation;

export function organizationEndpoints({ router, operator, config, observe }: RouteContext): Endpoint[] {
  return [
    endpoint(update, async ({ body, request, reply }) => {
      const { call } = request;
      const tenant = tenantOf(request);
      const change = async () => {
        const { id, name, email, createdAt } = await router.catalog.organizations.updateProfile(tenant, body, call.origin);
        return { id, organizationId: id, name, orgName: name, email, createdAt };
      };
      const repeatable = idempotentRequest(request, JSON_TYPE);
      if (repeatable === undefined) return change();
      const { disconnect, results } = call;
      const lease = await router.lease(tenant, { door: 'http', disconnect });
      // The reply is stored after the change: if the process ends in between, the same request makes the same change again.
      const answer = await once(
        lease,
        { timeoutMs: timeoutOf(undefined, config, tenant), disconnect, results },
        repeatable,
        async (_session, keep) => {
          const text = Buffer.from(JSON.stringify(await change()));
          await keep(200, text);
          return { status: 200, body: text };
        },
      );
      return sendNewOrReplayed(reply, answer);
    }),

    endpoint(remove, async ({ body, request, reply }) => {
      const tenant = tenantOf(request);
      const { id } = tenant.organization;
      if (body.confirm !== id) throw new ServiceError('invalid_request', `confirm: must be the organization's id, "${id}"`);
      const { status } = await operator.dropAsAsked(tenant, request.call.origin, observe);
      return reply.code(status === 'dropped' ? 200 : 202).send({ organizationId: id, status });
    }),
  ];
}

const KEY_HOURS = 12;

const signIn = {
  method: 'POST',
  path: '/api/auth/console',
  action: 'auth.console',
  operationId: 'signInToConsole',
  tag: ORGANIZATION_TAG,
  summary: 'Exchange the token of a one-time address for a key',
  description:
    'Only a service that `postern dev` has started has this call, and prints such an address of the console. The token works once, within ten minutes. The key has the scope admin and ends after twelve hours.',
  needsKey: false,
  query: noQuery,
  body: consoleSignInRequest,
  bodyExample: { token: 'XXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXX', name: 'console, Firefox' },
  replies: {
    201: {
      description: 'The key.',
      schema: createdKeyReply,
      example: {
        apiKey: EXAMPLE_KEY,
        keyId: 'key_1b5n9v3c7x0z',
        prefix: 'pst_7Kq2Lm',
        name: 'console, Firefox',
        scope: 'admin',
        createdAt: '2025-01-31T09:30:00.000Z',
        createdBy: 'key_8h2f6d0s4p1w',
        expiresAt: '2025-01-31T21:30:00.000Z',
        networks: null,
        lastUsedAt: null,
        replacedBy: null,
      },
    },
  },
  errors: ['unauthorized', 'not_allowed', 'too_many_keys', 'rate_limited'],
} as const satisfies Operation;

/** None, unless the service has been started for development. */
export function consoleSignInEndpoints({ consoleSignIn, config, keys, authenticator, observe }: RouteContext): Endpoint[] {
  if (consoleSignIn === undefined || config.POSTERN_CONSOLE === 'off') return [];
  return [
    endpoint(signIn, async ({ body: { token, name }, request, reply }) => {
      const { call } = request;
      const apiKey = redeem(consoleSignIn, token, request, observe);
      // The token stands for this key: if the key has ended since, or is not for this address, so it is with the token.
      call.tenant = await authenticator.authenticate({ kind: 'bearer', apiKey }, call.origin);
      const expiresAt = new Date(Date.now() + KEY_HOURS * 3_600_000);
      const details = { name: name ?? 'console', scope: 'admin', expiresAt, networks: null } as const;
      const { apiKey: made, key } = await keys.create(call.tenant, details, call.origin);
      return reply.code(201).send({ apiKey: made, ...shownKey(key) });
    }),
  ];
}

/** @throws ServiceError `unauthorized`; it counts as a failed login */
function redeem(
  consoleSignIn: Pick<ConsoleSignIn, 'redeem'>,
  token: string,
  { call: { origin } }: FastifyRequest,
  observe: RouteContext['observe'],
): string {
  const redeemed = consoleSignIn.redeem(token);
  if (!('refusal' in redeemed)) return redeemed.apiKey;
  const { refusal, organizationId } = redeemed;
  const { kind, sqlstate } = refusal;
  observe({ name: 'login.failed', origin, kind, sqlstate, ...(organizationId === undefined ? {} : { actor: { organizationId } }) });
  throw refusal;
}
