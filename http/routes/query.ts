import { runQuery } from '../../src/sql/statement.ts';
import { type Endpoint, endpoint, type Operation } from '../operation.ts';
import { tenantOf } from '../plugins/bearer.ts';
import { queryReply } from '../replies.ts';
import { noQuery, queryRequest } from '../schemas.ts';
import { JSON_TYPE, LEASE_ERRORS, type RouteContext, SQL_ERRORS } from './context.ts';

export const EXAMPLE_QUERY_REPLY = {
  rows: [{ id: 1, total: '12.50', placedAt: '2025-01-31T09:30:00.123456Z' }],
  rowCount: 1,
  command: 'SELECT',
  fields: [
    { name: 'id', dataTypeID: 23, dataType: 'int4' },
    { name: 'total', dataTypeID: 1700, dataType: 'numeric' },
    { name: 'placedAt', dataTypeID: 1184, dataType: 'timestamptz' },
  ],
  rowAsArray: false,
  durationMs: 0.912,
};

const query = {
  method: 'POST',
  path: '/api/query',
  action: 'query',
  tag: 'SQL',
  summary: 'Run one statement',
  description:
    'int2, int4 and floats come as numbers; int8, numeric and money always as strings; timestamptz in UTC with microseconds; json as it is; bytea as \\x…; arrays as JSON arrays; anything else as Postgres writes it. Transactions, COPY and LISTEN are refused here.',
  needsKey: true,
  query: noQuery,
  body: queryRequest,
  bodyExample: {
    sql: 'select 1 as id, 12.50 as total, timestamptz \'2025-01-31 09:30:00.123456Z\' as "placedAt" where $1 > 0',
    params: [1],
  },
  replies: {
    200: {
      description: 'The result. Large ones are streamed; one that breaks off on the way ends the connection.',
      schema: queryReply,
      example: EXAMPLE_QUERY_REPLY,
    },
  },
  errors: [...SQL_ERRORS, ...LEASE_ERRORS],
} as const satisfies Operation;

export function queryEndpoints({ router, config }: RouteContext): Endpoint[] {
  return [
    endpoint(query, async ({ body, request, reply }) => {
      const { call } = request;
      call.statement = { sql: body.sql, paramCount: body.params?.length ?? 0 };
      const lease = await router.lease(tenantOf(request), { door: 'http', signal: call.gone });
      const timeoutMs = body.timeoutMs ?? config.POSTERN_STATEMENT_TIMEOUT_MS;
      const answer = await runQuery(lease, { ...body, timeoutMs, signal: call.gone });
      call.ended = answer.done;
      return reply.type(JSON_TYPE).send(answer.body);
    }),
  ];
}
