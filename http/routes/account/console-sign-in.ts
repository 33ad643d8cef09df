import type { FastifyRequest } from 'fastify';
import type { ConsoleSignIn } from '../../../src/router/one-time-sign-in.ts';
import { EXAMPLE_KEY, shownKey } from '../../responses/key-replies.ts';
import { createdKeyReply } from '../../responses/reply-schemas.ts';
import { type Endpoint, endpoint, type Operation } from '../operation.ts';
import { consoleSignInRequest, noQuery } from '../request-schemas.ts';
import type { RouteContext } from '../route-context.ts';
import { ORGANIZATION_TAG } from './auth.ts';

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
