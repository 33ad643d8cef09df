import type { DisconnectSignal } from '../../src/router/lease.ts';
import { type Endpoint, endpoint, type Operation, type RouteContext } from '../operation.ts';
import { sendJson } from '../replies.ts';
import { auditReply, auditVerifyReply } from '../reply-schemas.ts';
import { tenantOf } from '../request-context.ts';
import { type AuditFilters, auditQuery, auditSearch, noBody, noQuery } from '../request-schemas.ts';

const TAG = 'Audit';
const EXAMPLE_ENTRY = {
  id: 'aud_0m6z3k9x2m7q1a5z8h2f6',
  seq: 7,
  occurredAt: '2025-01-31T09:30:00.123Z',
  action: 'query',
  surface: 'http',
  actor: { keyId: 'key_8h2f6d0s4p1w', keyPrefix: 'pst_4fT9aB' },
  sourceIp: '203.0.113.7',
  userAgent: 'curl/8.5.0',
  applicationName: null,
  requestId: '5f0d7a52-3d3f-4a44-9a0e-7c1f6a2f5f6e',
  statement: {
    sql: 'select id from orders where total > $1',
    sqlHash: '2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae',
    command: 'SELECT',
    paramCount: 1,
  },
  outcome: { status: 'ok', httpStatus: 200, sqlstate: null, rowCount: 3, durationMs: 1.204 },
  prevHash: 'fcde2b2edba56bf408601fb721fe9b5c338d10ee429ea04fae5511b68fbf8fb9',
  hash: 'baa5a0964d3320fbc0c6a922140453c8513ea24ab8fd0577034804a967248096',
};

const page = {
  description: 'One page, newest first.',
  schema: auditReply,
  example: { data: [EXAMPLE_ENTRY], hasMore: false, nextCursor: null },
};

const list = {
  method: 'GET',
  path: '/api/audit',
  action: 'audit.list',
  operationId: 'listAudit',
  tag: TAG,
  summary: 'Read the audit log',
  description:
    'What was done with the keys of the organization, at either door. Entries appear within a second. Where something rare is looked for in a long log, a page may hold less than `limit`, or nothing, and yet have more: go on from `nextCursor`.',
  needsKey: true,
  scope: 'admin',
  query: auditQuery,
  body: noBody,
  replies: { 200: page },
  errors: [],
} as const satisfies Operation;

const search = {
  ...list,
  method: 'POST',
  action: 'audit.search',
  operationId: 'searchAudit',
  summary: 'Read the audit log, with the filters as a body',
  query: noQuery,
  body: auditSearch,
  bodyExample: { action: 'query', outcome: 'ok', limit: 10 },
} as const satisfies Operation;

const verify = {
  method: 'GET',
  path: '/api/audit/verify',
  action: 'audit.verify',
  operationId: 'verifyAudit',
  tag: TAG,
  summary: 'Verify the hash chain of the audit log',
  needsKey: true,
  scope: 'admin',
  query: noQuery,
  body: noBody,
  replies: {
    200: {
      description: 'Whether every entry is as it was written; firstBad names the first that is not.',
      schema: auditVerifyReply,
      example: { ok: true, count: 7, headSeq: 7, headHash: EXAMPLE_ENTRY.hash },
    },
  },
  errors: [],
} as const satisfies Operation;

export function auditEndpoints({ router }: RouteContext): Endpoint[] {
  const { audit } = router.catalog;
  const read = (organizationId: string, { since, until, ...filters }: AuditFilters) =>
    audit.list(organizationId, {
      ...filters,
      ...(since === undefined ? {} : { since: new Date(since) }),
      ...(until === undefined ? {} : { until: new Date(until) }),
    });

  return [
    endpoint(list, async ({ query, request, reply }) => sendJson(request, reply, await read(tenantOf(request).organization.id, query))),
    endpoint(search, async ({ body, request, reply }) => sendJson(request, reply, await read(tenantOf(request).organization.id, body))),
    endpoint(verify, ({ request }) => audit.verify(tenantOf(request).organization.id, signalOf(request.call.disconnect))),
  ];
}

function signalOf(disconnect: DisconnectSignal): AbortSignal {
  const gone = new AbortController();
  disconnect.listener = () => gone.abort(disconnect.reason);
  if (disconnect.hasHappened) gone.abort(disconnect.reason);
  return gone.signal;
}
