import { z } from 'zod';
import { QUERIES_MAX, QUERY_ORDERS } from '../../../src/catalog/query-statistics/query-statistics.ts';
import { readerOf } from '../../../src/router/placement/roles/reader-role.ts';
import type { Tenant } from '../../../src/router/tenant.ts';
import { showQueries } from '../../../src/sql/inspection/shown-query-statistics.ts';
import { tenantOf } from '../../request-context.ts';
import { sendJson } from '../../responses/send-json.ts';
import { type Endpoint, endpoint, type Operation } from '../operation.ts';
import { noBody } from '../request-schemas.ts';
import type { RouteContext } from '../route-context.ts';
import { INSIGHTS_TAG } from './advice.ts';

const queryStatisticsQuery = z.strictObject({
  orderBy: z.enum(QUERY_ORDERS).default('totalTime').describe('The largest come first'),
  limit: z
    .string()
    .regex(/^\d{1,3}$/, 'must be a whole number')
    .transform(Number)
    .pipe(z.number().min(1).max(QUERIES_MAX))
    .default(50)
    .meta({ type: 'integer', minimum: 1, maximum: QUERIES_MAX, default: 50 }),
});

const count = z.number();
const milliseconds = z.number();

export const queryStatistic = z.object({
  queryId: z.string().describe('The same for statements that differ in constants only'),
  sql: z.string().describe('With $1, $2, … in place of constants; cut at 8,000 characters'),
  calls: count,
  totalMs: milliseconds,
  meanMs: milliseconds,
  maxMs: milliseconds,
  rows: count.describe('Rows returned or affected'),
  blocksHit: count.describe('Blocks found in the buffer cache'),
  blocksRead: count.describe('Blocks that were not in it'),
  tempBlocksWritten: count.describe('Blocks of sorts and hashes that did not fit into memory'),
});

export const queryStatisticsReply = z.discriminatedUnion('isAvailable', [
  z.object({
    isAvailable: z.literal(true),
    statsSince: z.string().meta({ format: 'date-time' }).nullable().describe('When the server began to count'),
    queries: z.array(queryStatistic).max(QUERIES_MAX),
  }),
  z.object({ isAvailable: z.literal(false), reason: z.string(), cure: z.string().describe('What the operator can do') }),
]);

const read = {
  method: 'GET',
  path: '/api/insights/queries',
  action: 'insights.queries',
  operationId: 'getQueryStatistics',
  tag: INSIGHTS_TAG,
  summary: 'Read which statements take the most time',
  description:
    'From the extension pg_stat_statements. A key sees the statements of its own role, one with the scope admin also those of read keys. Statements about transactions and settings, and those that name pg_catalog, are left out.',
  needsKey: true,
  query: queryStatisticsQuery,
  body: noBody,
  replies: {
    200: {
      description: 'The statements, or why there are none and what the operator can do.',
      schema: queryStatisticsReply,
      example: {
        isAvailable: true,
        statsSince: '2025-01-31T09:30:00.123Z',
        queries: [
          {
            queryId: '-4520934783419038743',
            sql: 'select id from orders where total > $1',
            calls: 1204,
            totalMs: 310.25,
            meanMs: 0.258,
            maxMs: 4.001,
            rows: 3611,
            blocksHit: 9632,
            blocksRead: 12,
            tempBlocksWritten: 0,
          },
        ],
      },
    },
  },
  errors: ['response_too_large', 'database_unavailable'],
} as const satisfies Operation;

export function queryStatisticsEndpoints({ statistics }: RouteContext): Endpoint[] {
  return [
    endpoint(read, async ({ query: { orderBy, limit }, request, reply }) => {
      const tenant = tenantOf(request);
      const { placement } = tenant.organization;
      const found = await statistics.queries(placement).read({ database: placement.database, roles: visibleRoles(tenant) }, orderBy);
      if (!found.isAvailable) return found;
      const queries = await showQueries(found.queries.slice(0, limit), placement);
      return sendJson(request, reply, { ...found, queries });
    }),
  ];
}

function visibleRoles({ key, organization: { placement } }: Tenant): readonly string[] {
  return key.scope === 'admin' ? [placement.role, readerOf(placement.role)] : [placement.role];
}
