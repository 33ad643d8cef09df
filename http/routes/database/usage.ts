import { z } from 'zod';
import { percentile, type StoredUsage, USAGE_PERIODS } from '../../../src/catalog/usage.ts';
import { tenantOf } from '../../request-context.ts';
import { sendJson } from '../../responses/send-json.ts';
import { type Endpoint, endpoint, type Operation } from '../operation.ts';
import { noBody } from '../request-schemas.ts';
import type { RouteContext } from '../route-context.ts';
import { INSIGHTS_TAG } from './advice.ts';

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
  database: z.object({ bytes: z.number().describe('Measured within the last half minute') }),
  sessions: z.object({
    wire: z.int().describe('Sessions at the wire door now, in the process that answers'),
    http: z.int().describe('Requests over HTTP now, this one among them'),
    limits: z.object({ wire: z.int(), http: z.int(), backends: z.int() }).describe('Of one process'),
  }),
  intervals: z
    .array(usageInterval)
    .describe('Of five minutes, or of a day (UTC), the oldest first. Those in which nothing happened are left out'),
  totals: z.object(counts),
});

const EXAMPLE_COUNTS = { statements: 1204, errors: 3, rows: 3611, bytesIn: 96_320, bytesOut: 511_744 };

const read = {
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
        database: { bytes: 8_126_464 },
        sessions: { wire: 4, http: 1, limits: { wire: 100, http: 100, backends: 16 } },
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
    endpoint(read, async ({ query: { period }, request, reply }) => {
      const { id, placement } = tenantOf(request).organization;
      const [bytes, intervals] = await Promise.all([statistics.dataBytes(placement), statistics.usage.read(id, period)]);
      return sendJson(request, reply, {
        organizationId: id,
        period,
        database: { bytes },
        sessions: {
          wire: statistics.usage.counters.find(id)?.sessions ?? 0,
          http: statistics.requestsOf(id),
          limits: {
            wire: config.POSTERN_CLIENTS_PER_TENANT,
            http: config.POSTERN_HTTP_REQUESTS_PER_TENANT,
            backends: config.POSTERN_BACKENDS_PER_TENANT,
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
