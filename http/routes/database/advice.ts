import { z } from 'zod';
import { readerOf } from '../../../src/placement/reader-role.ts';
import { ADVICE_MAX, giveAdvice, RULE_NAMES, SEVERITIES } from '../../../src/sql/advice.ts';
import { tenantOf } from '../../request-context.ts';
import { sendJson } from '../../responses/send-json.ts';
import { type Endpoint, endpoint, type Operation } from '../operation.ts';
import { LEASE_ERRORS } from '../operation-errors.ts';
import { noBody, noQuery } from '../request-schemas.ts';
import type { RouteContext } from '../route-context.ts';
import { timeoutOf } from '../statement-timeout.ts';

export const INSIGHTS_TAG = 'Insights';
const TIMEOUT_MAX_MS = 10_000;

export const advice = z.object({
  rule: z.enum(RULE_NAMES),
  severity: z.enum(SEVERITIES),
  schema: z.string(),
  table: z.string().nullable().describe('null: a sequence without a table, or a routine'),
  object: z.string().nullable().describe('The index, foreign key, column, sequence or routine; null: the table itself'),
  message: z.string(),
  cure: z.string().nullable().describe('A statement that cures it; null: there is none that is right for all'),
});

export const adviceReply = z.object({
  advice: z.array(advice).max(ADVICE_MAX).describe('Warnings first'),
  isComplete: z.boolean().describe('false: there is more of it'),
});

const read = {
  method: 'GET',
  path: '/api/insights/advice',
  action: 'insights.advice',
  operationId: 'getAdvice',
  tag: INSIGHTS_TAG,
  summary: 'Read what could be better in the schema',
  description:
    'Each piece of advice comes with the statement that cures it, where there is one. It is read from the catalogs and statistics as VACUUM, ANALYZE and the statistics of the last minute have left them; no table is read.',
  needsKey: true,
  query: noQuery,
  body: noBody,
  replies: {
    200: {
      description: 'Up to 50 pieces of advice by each rule, 200 in all.',
      schema: adviceReply,
      example: {
        advice: [
          {
            rule: 'foreign_key_without_index',
            severity: 'warning',
            schema: 'public',
            table: 'orders',
            object: 'orders_customer_fkey',
            message:
              'No index begins with the columns of the foreign key (customer): each DELETE and each change of a key in the table that it refers to reads all of this one.',
            cure: 'CREATE INDEX CONCURRENTLY ON public.orders (customer)',
          },
        ],
        isComplete: true,
      },
    },
  },
  errors: ['response_too_large', 'statement_timeout', 'lock_not_available', ...LEASE_ERRORS],
} as const satisfies Operation;

export function adviceEndpoints({ router, keys, statistics, config }: RouteContext): Endpoint[] {
  return [
    endpoint(read, async ({ request, reply }) => {
      const { disconnect } = request.call;
      const tenant = tenantOf(request);
      const { placement } = tenant.organization;
      const [counters, known] = await Promise.all([statistics.relationCounters(placement), keys.list(tenant)]);
      const reader = known.some(({ scope }) => scope === 'read') ? readerOf(tenant.organization.id) : undefined;
      const lease = await router.lease(tenant, { door: 'http', disconnect });
      const timeoutMs = Math.min(timeoutOf(undefined, config), TIMEOUT_MAX_MS);
      return sendJson(request, reply, await giveAdvice(lease, { timeoutMs, disconnect, counters, reader }));
    }),
  ];
}
