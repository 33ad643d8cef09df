import { z } from 'zod';
import { QUERIES_MAX, QUERY_ORDERS, type QueryStatistic } from '../../../src/catalog/query-statistics.ts';
import type { Tenant } from '../../../src/router/lease.ts';
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
const time = z.string().meta({ format: 'date-time' });
const notKnown = z.null().describe('Not known: only the server itself can tell');

const counts = {
  calls: count.describe('How often it ran, failed runs included'),
  errors: count.describe('How many of the runs failed'),
  totalMs: milliseconds.describe('From when the server was sent it until its reply was complete'),
  meanMs: milliseconds,
  p99Ms: milliseconds.describe('99 % of the runs took no longer; right to about 12 %'),
  maxMs: milliseconds,
  rows: count.describe('Rows returned or affected'),
  bytes: count.describe('Bytes of the replies'),
  firstSeenAt: time,
  lastSeenAt: time,
};

export const queryStatistic = z.object({
  queryId: z.string().describe('The same for statements that differ in constants only'),
  sql: z.string().describe('With $1, $2, … in place of constants; cut at 8,000 characters'),
  ...counts,
  blocksHit: notKnown,
  blocksRead: notKnown,
  tempBlocksWritten: notKnown,
});

export const queryStatisticsReply = z.object({
  isAvailable: z.literal(true).describe('Always'),
  statsSince: time.nullable().describe('When the oldest of these figures began; null if there are none'),
  queries: z.array(queryStatistic).max(QUERIES_MAX),
  others: z.object(counts).nullable().describe('What ran besides the statements that are told apart, together; null if nothing did'),
  notKnown: z.array(z.enum(['blocks', 'plans', 'nested'])).describe('What cannot be counted at the doors: see the description'),
});

const NOT_KNOWN = ['blocks', 'plans', 'nested'] as const;

const EXAMPLE_COUNTS = {
  calls: 1204,
  errors: 1,
  totalMs: 310.25,
  meanMs: 0.258,
  p99Ms: 1.936,
  maxMs: 4.001,
  rows: 3611,
  bytes: 96320,
  firstSeenAt: '2025-01-31T09:30:00.123Z',
  lastSeenAt: '2025-01-31T10:30:00.456Z',
};

const read = {
  method: 'GET',
  path: '/api/insights/queries',
  action: 'insights.queries',
  operationId: 'getQueryStatistics',
  tag: INSIGHTS_TAG,
  summary: 'Read which statements take the most time',
  description:
    'Counted at both doors, by text without its constants. A key sees the statements of its own role, one with the scope admin also those of read keys. Of each role the 500 texts that take the most time are told apart, for as long as they run once in 30 days. Statements about transactions and settings are left out. What only the server knows cannot be told: blocks that were read, how often a statement was planned and how, and the statements inside functions (notKnown).',
  needsKey: true,
  query: queryStatisticsQuery,
  body: noBody,
  replies: {
    200: {
      description: 'The statements.',
      schema: queryStatisticsReply,
      example: {
        isAvailable: true,
        statsSince: '2025-01-31T09:30:00.123Z',
        queries: [
          {
            queryId: '-4520934783419038743',
            sql: 'select id from orders where total > $1',
            ...EXAMPLE_COUNTS,
            blocksHit: null,
            blocksRead: null,
            tempBlocksWritten: null,
          },
        ],
        others: null,
        notKnown: [...NOT_KNOWN],
      },
    },
  },
  errors: ['response_too_large', 'database_unavailable'],
} as const satisfies Operation;

export function queryStatisticsEndpoints({ statistics }: RouteContext): Endpoint[] {
  return [
    endpoint(read, async ({ query: { orderBy, limit }, request, reply }) => {
      const { statsSince, queries, others } = await statistics.queries.read(statementsOf(tenantOf(request)), orderBy, limit);
      const shown = queries.map((query) => ({
        queryId: query.queryId,
        sql: query.sql,
        ...countsOf(query),
        blocksHit: null,
        blocksRead: null,
        tempBlocksWritten: null,
      }));
      const body = { isAvailable: true, statsSince, queries: shown, others: others && countsOf(others), notKnown: NOT_KNOWN };
      return sendJson(request, reply, body);
    }),
  ];
}

function statementsOf({ key: { scope }, organization: { id } }: Tenant) {
  return { organizationId: id, ofReaders: scope !== 'write', ofOthers: scope !== 'read' };
}

function countsOf({ calls, errors, totalMs, meanMs, p99Ms, maxMs, rows, bytes, firstSeenAt, lastSeenAt }: QueryStatistic) {
  return {
    calls,
    errors,
    totalMs: toMicroseconds(totalMs),
    meanMs: toMicroseconds(meanMs),
    p99Ms: toMicroseconds(p99Ms),
    maxMs: toMicroseconds(maxMs),
    rows,
    bytes,
    firstSeenAt,
    lastSeenAt,
  };
}

function toMicroseconds(ms: number): number {
  return Math.round(ms * 1_000) / 1_000;
}
