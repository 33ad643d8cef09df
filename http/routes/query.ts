import type { FastifyRequest } from 'fastify';
import type { Observe } from '../../src/observation.ts';
import { CSV_FORMAT, linesFormat } from '../../src/sql/formats.ts';
import { type QueryRequest, runQueryOnce } from '../../src/sql/query.ts';
import { optionsSetFirst } from '../../src/syntax/side-effects.ts';
import { CSV_TYPE, JSON_TYPE, LINES_TYPE, preferredForm } from '../headers.ts';
import { IDEMPOTENCY_HEADERS, idempotentRequest, REPLAYED_HEADER, sendNewOrReplayed } from '../idempotency-key.ts';
import {
  type Endpoint,
  endpoint,
  IDEMPOTENCY_ERRORS,
  LEASE_ERRORS,
  type Operation,
  type RouteContext,
  SQL_ERRORS,
  timeoutOf,
} from '../operation.ts';
import { problemOf } from '../problems.ts';
import { sendResult } from '../replies.ts';
import { queryLine, queryReply } from '../reply-schemas.ts';
import { tenantOf } from '../request-context.ts';
import { noQuery, queryRequest, usualQuery } from '../request-schemas.ts';

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

const { rows, rowCount, command, fields, rowAsArray, durationMs } = EXAMPLE_QUERY_REPLY;
const EXAMPLE_LINES = [{ fields, rowAsArray }, ...rows.map((row) => ({ row })), { complete: { rowCount, command, durationMs } }];

const query = {
  method: 'POST',
  path: '/api/query',
  action: 'query',
  operationId: 'query',
  tag: 'SQL',
  summary: 'Run one statement',
  description:
    'int2, int4 and floats come as numbers; int8, numeric and money always as strings; timestamptz in UTC with microseconds; json as it is; bytea as \\x…; arrays as JSON arrays; anything else as Postgres writes it. Transactions, COPY and LISTEN are refused here. With "Accept: application/x-ndjson" the result comes as a JSON document a line, with "Accept: text/csv" as COPY writes it.',
  needsKey: true,
  query: noQuery,
  headers: IDEMPOTENCY_HEADERS,
  body: queryRequest,
  usualBody: usualQuery,
  bodyExample: {
    sql: 'select 1 as id, 12.50 as total, timestamptz \'2025-01-31 09:30:00.123456Z\' as "placedAt" where $1 > 0',
    params: [1],
  },
  replies: {
    200: {
      description:
        'The result. Large ones are streamed; one that breaks off on the way ends the connection, or the lines with one that has the error.',
      schema: queryReply,
      example: EXAMPLE_QUERY_REPLY,
      headers: REPLAYED_HEADER,
      lines: { schema: queryLine, example: EXAMPLE_LINES },
      csv: 'id,total,placedAt\n1,12.50,2025-01-31 09:30:00.123456+00\n',
    },
  },
  errors: [...SQL_ERRORS, ...IDEMPOTENCY_ERRORS, ...LEASE_ERRORS],
} as const satisfies Operation;

export function queryEndpoints({ router, queries, config, observe }: RouteContext): Endpoint[] {
  return [
    endpoint(query, async ({ body, request, reply }) => {
      const { call } = request;
      const form = preferredForm(request.headers.accept);
      const type = TYPES[form];
      const repeatable = idempotentRequest(request, type);
      const { sql, params, rowMode, readOnly, settings } = body;
      call.statement = { sql, paramCount: params?.length ?? 0 };
      // Without spread syntax: objects made with it have varying shapes, which makes the code that reads them slow.
      const wanted: QueryRequest = {
        sql,
        params,
        rowMode,
        format: form === 'json' ? undefined : form === 'lines' ? linesFormat(rowMode) : CSV_FORMAT,
        finalBytes: form === 'json' ? undefined : form === 'lines' ? errorLine(request, observe) : lastWords(request, observe),
        timeoutMs: timeoutOf(body.timeoutMs, config, tenantOf(request)),
        readOnly,
        settings,
        disconnect: call.disconnect,
        results: call.results,
      };
      const tenant = tenantOf(request);
      if (repeatable !== undefined && !readOnly) {
        const customOptions = optionsSetFirst([wanted], settings);
        const lease = await router.lease(tenant, { door: 'http', disconnect: call.disconnect, customOptions });
        call.atomic = true;
        const answer = await runQueryOnce(lease, wanted, repeatable);
        call.outcome = answer.outcome;
        return sendNewOrReplayed(reply, answer);
      }
      const answer = await queries.run(tenant, wanted);
      if (answer.outcome === undefined) call.ended = answer.done;
      else call.outcome = answer.outcome;
      return sendResult(reply, type, answer.body);
    }),
  ];
}

const TYPES = { json: JSON_TYPE, lines: LINES_TYPE, csv: CSV_TYPE } as const;

function errorLine(request: FastifyRequest, observe: Observe): (error: Error) => Buffer {
  return (error) => Buffer.from(`${JSON.stringify({ error: problemOf(error, request, observe).problem })}\n`);
}

/** CSV has no place for an error: the connection ends behind it, so that no client takes it for a value. */
function lastWords(request: FastifyRequest, observe: Observe): (error: Error) => Buffer {
  return (error) => {
    request.call.isBroken = true;
    return errorLine(request, observe)(error);
  };
}
