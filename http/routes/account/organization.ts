import { ServiceError } from '../../../src/errors.ts';
import { once } from '../../../src/sql/idempotency.ts';
import { IDEMPOTENCY_HEADERS, idempotentRequest, REPLAYED_HEADER, sendNewOrReplayed } from '../../plugins/idempotency-key.ts';
import { tenantOf } from '../../request-context.ts';
import { JSON_TYPE } from '../../responses/media-types.ts';
import { organizationDeletionReply, organizationReply } from '../../responses/reply-schemas.ts';
import { type Endpoint, endpoint, type Operation } from '../operation.ts';
import { IDEMPOTENCY_ERRORS, LEASE_ERRORS } from '../operation-errors.ts';
import { noQuery, organizationChanges, organizationDeletion } from '../request-schemas.ts';
import type { RouteContext } from '../route-context.ts';
import { timeoutOf } from '../statement-timeout.ts';
import { EXAMPLE_ORGANIZATION, ORGANIZATION_TAG } from './auth.ts';

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
        { timeoutMs: timeoutOf(undefined, config), disconnect, results },
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
