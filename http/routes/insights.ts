import * as z from 'zod';
import { RESTRICTED_SCOPES } from '../../src/catalog/key-rows.ts';
import { limitsInForce } from '../../src/catalog/limits.ts';
import { QUERIES_MAX, QUERY_ORDERS, type QueryStatistic } from '../../src/catalog/query-statistics.ts';
import { percentile, type StoredUsage, USAGE_PERIODS } from '../../src/catalog/usage.ts';
import { restrictedRole } from '../../src/placement/restricted-roles.ts';
import type { Tenant } from '../../src/router/lease.ts';
import { ADVICE_MAX, giveAdvice, RULE_NAMES, SEVERITIES } from '../../src/sql/advice.ts';
import { type Endpoint, endpoint, LEASE_ERRORS, type Operation, type RouteContext, timeoutOf } from '../operation.ts';
import { sendJson } from '../replies.ts';
import { tenantOf } from '../request-context.ts';
import { noBody, noQuery } from '../request-schemas.ts';

const INSIGHTS_TAG = 'Insights';
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

const readAdviceEndpoint = {
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
    endpoint(readAdviceEndpoint, async ({ request, reply }) => {
      const { disconnect } = request.call;
      const tenant = tenantOf(request);
      const { placement } = tenant.organization;
      const [counters, known] = await Promise.all([statistics.relationCounters(placement), keys.list(tenant)]);
      const reader = known.some(({ scope }) => scope === 'read') ? restrictedRole(tenant.organization.id, 'read') : undefined;
      const lease = await router.lease(tenant, { door: 'http', disconnect });
      const timeoutMs = Math.min(timeoutOf(undefined, config, tenant), TIMEOUT_MAX_MS);
      return sendJson(request, reply, await giveAdvice(lease, { timeoutMs, disconnect, counters, reader }));
    }),
  ];
}

const usageQuery = z.strictObject({ period: z.enum(USAGE_PERIODS).default('24h') });

const counts = {
  statements: z.number().describe('Over HTTP, those of a transaction count one by one, and those of a migration as one'),
  errors: z.number().describe('Requests that failed'),
  rows: z.number().describe('Rows returned or affected'),
  bytesIn: z.number().describe('Bytes of requests; over HTTP of their bodies'),
  bytesOut: z.number().describe('Bytes of replies; over HTTP of their bodies'),
};

export const usageInterval = z.object({
  startsAt: z.string().meta({ format: 'date-time' }),
  ...counts,
  latencyMs: z.object({ p50: z.number(), p95: z.number(), p99: z.number() }).nullable().describe('How long requests took, to about 12 %'),
  peakSessions: z.int().describe('Sessions at the wire door at once, in one process'),
});

export const usageReply = z.object({
  organizationId: z.string(),
  period: z.enum(USAGE_PERIODS),
  database: z.object({
    bytes: z.number().describe('Measured within the last half minute'),
    maxBytes: z.number().nullable().describe('null: any size'),
  }),
  sessions: z.object({
    wire: z.int().describe('Sessions at the wire door now, in the process that answers'),
    http: z.int().describe('Requests over HTTP now, this one among them'),
    limits: z
      .object({
        wire: z.int(),
        http: z.int(),
        backends: z.int(),
        requestsPerSecond: z.int().nullable().describe('Requests over HTTP; null: no limit'),
        statementMs: z.int().nullable().describe('A statement at the wire door; null: no limit'),
      })
      .describe('Of all processes of one service'),
  }),
  intervals: z
    .array(usageInterval)
    .describe('Of five minutes, or of a day (UTC), the oldest first. Those in which nothing happened are left out'),
  totals: z.object(counts),
});

const EXAMPLE_COUNTS = { statements: 1204, errors: 3, rows: 3611, bytesIn: 96_320, bytesOut: 511_744 };

const readUsageEndpoint = {
  method: 'GET',
  path: '/api/usage',
  action: 'usage.read',
  operationId: 'getUsage',
  tag: INSIGHTS_TAG,
  summary: 'Read how much the organization uses',
  description: 'What its keys did at both doors: of the last 24 hours by five minutes, or of the last 90 days by day.',
  needsKey: true,
  query: usageQuery,
  body: noBody,
  replies: {
    200: {
      description: 'All processes together; what other processes did in the current minute is missing.',
      schema: usageReply,
      example: {
        organizationId: 'org_3x8d71hu39c3',
        period: '24h',
        database: { bytes: 8_126_464, maxBytes: 10_737_418_240 },
        sessions: { wire: 4, http: 1, limits: { wire: 100, http: 100, backends: 16, requestsPerSecond: 50, statementMs: null } },
        intervals: [
          { startsAt: '2025-01-31T09:30:00.000Z', ...EXAMPLE_COUNTS, latencyMs: { p50: 0.576, p95: 4.608, p99: 18.432 }, peakSessions: 5 },
        ],
        totals: EXAMPLE_COUNTS,
      },
    },
  },
  errors: ['response_too_large', 'database_unavailable'],
} as const satisfies Operation;

export function usageEndpoints({ statistics, config }: RouteContext): Endpoint[] {
  return [
    endpoint(readUsageEndpoint, async ({ query: { period }, request, reply }) => {
      const { organization } = tenantOf(request);
      const { id, placement } = organization;
      const inForce = limitsInForce(organization, config);
      const [bytes, intervals] = await Promise.all([statistics.dataBytes(placement), statistics.usage.read(id, period)]);
      return sendJson(request, reply, {
        organizationId: id,
        period,
        database: { bytes, maxBytes: inForce.diskBytes },
        sessions: {
          wire: statistics.usage.counters.find(id)?.sessions ?? 0,
          http: statistics.requestsOf(id),
          limits: {
            wire: inForce.sessions,
            http: inForce.requests,
            backends: config.POSTERN_BACKENDS_PER_TENANT,
            requestsPerSecond: inForce.requestsPerSecond,
            statementMs: inForce.statementMs === 0 ? null : inForce.statementMs,
          },
        },
        intervals: intervals.map(shown),
        totals: totalOf(intervals),
      });
    }),
  ];
}

function shown({ latency, ...usage }: StoredUsage) {
  const latencyMs =
    latency.length === 0 ? null : { p50: percentile(latency, 0.5), p95: percentile(latency, 0.95), p99: percentile(latency, 0.99) };
  return { ...usage, latencyMs };
}

function totalOf(intervals: readonly StoredUsage[]) {
  const total = (of: keyof typeof counts) => intervals.reduce((sum, interval) => sum + interval[of], 0);
  return {
    statements: total('statements'),
    errors: total('errors'),
    rows: total('rows'),
    bytesIn: total('bytesIn'),
    bytesOut: total('bytesOut'),
  };
}

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

const statementCounts = {
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
  ...statementCounts,
  blocksHit: notKnown,
  blocksRead: notKnown,
  tempBlocksWritten: notKnown,
});

export const queryStatisticsReply = z.object({
  isAvailable: z.literal(true).describe('Always'),
  statsSince: time.nullable().describe('When the oldest of these figures began; null if there are none'),
  queries: z.array(queryStatistic).max(QUERIES_MAX),
  others: z
    .object(statementCounts)
    .nullable()
    .describe('What ran besides the statements that are told apart, together; null if nothing did'),
  notKnown: z.array(z.enum(['blocks', 'plans', 'nested'])).describe('What cannot be counted at the doors: see the description'),
});

const NOT_KNOWN = ['blocks', 'plans', 'nested'] as const;

const EXAMPLE_STATEMENT_COUNTS = {
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

const readStatisticsEndpoint = {
  method: 'GET',
  path: '/api/insights/queries',
  action: 'insights.queries',
  operationId: 'getQueryStatistics',
  tag: INSIGHTS_TAG,
  summary: 'Read which statements take the most time',
  description:
    'Counted at both doors, by text without its constants. A key sees the statements of its own role, one with the scope admin also those of data and read keys. Of each role the 500 texts that take the most time are told apart, for as long as they run once in 30 days. Statements about transactions and settings are left out. What only the server knows cannot be told: blocks that were read, how often a statement was planned and how, and the statements inside functions (notKnown).',
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
            ...EXAMPLE_STATEMENT_COUNTS,
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
    endpoint(readStatisticsEndpoint, async ({ query: { orderBy, limit }, request, reply }) => {
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
  if (scope === 'admin') return { organizationId: id, roles: ['own', ...RESTRICTED_SCOPES] as const };
  return { organizationId: id, roles: [scope === 'write' ? 'own' : scope] as const };
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
