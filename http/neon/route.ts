import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { z } from 'zod';
import type { LeaseOptions } from '../../src/router/router.ts';
import { runTextStatement, runTextTransaction, type TextStatement } from '../../src/sql/neon-queries.ts';
import { totalOf } from '../../src/sql/result-budget.ts';
import type { SessionOptions } from '../../src/sql/session.ts';
import type { TransactionModes } from '../../src/sql/transaction.ts';
import { optionsSetFirst } from '../../src/syntax/side-effects.ts';
import { readJson, refuseEncodings } from '../json/json-body.ts';
import { throttleRefusal } from '../plugins/refusals/refusal-throttle.ts';
import { tenantOf } from '../request-context.ts';
import { JSON_TYPE } from '../responses/media-types.ts';
import { errorBody } from '../responses/reply-memory.ts';
import type { DocumentedOperation } from '../routes/operation.ts';
import { noQuery } from '../routes/request-schemas.ts';
import type { RouteContext } from '../routes/route-context.ts';
import { timeoutOf } from '../routes/statement-timeout.ts';
import { authenticateNeon } from './authentication.ts';
import { renderNeonError } from './errors.ts';
import { echoedHeaders, readNeonRequest } from './request.ts';
import { neonError, neonReply, neonRequest } from './schemas.ts';

const NOTHING = Object.fromEntries(Object.keys(neonError.shape).map((name) => [name, null]));
const exampleError = (message: string, code: string) => ({ ...NOTHING, message, severity: 'ERROR', code });
const flag = (description: string) => z.enum(['true', 'false']).exactOptional().describe(description);

/** For the OpenAPI document. */
export const neonOperation = {
  method: 'POST',
  path: '/sql',
  operationId: 'neonSql',
  tag: 'Serverless drivers',
  summary: 'What @neondatabase/serverless sends',
  description:
    "One statement, or several as one transaction, with the headers, bodies and errors of Neon's driver. The key may also be the password of the connection string in Neon-Connection-String. The body is JSON, whatever its Content-Type says.",
  needsKey: true,
  query: noQuery,
  headers: {
    'Neon-Connection-String': z.string().exactOptional().describe('postgres://organization:key@host/organization'),
    'Neon-Raw-Text-Output': flag("true: all values are strings in Postgres' text format"),
    'Neon-Array-Mode': flag('true: rows as arrays'),
    'Neon-Batch-Isolation-Level': z.enum(['ReadUncommitted', 'ReadCommitted', 'RepeatableRead', 'Serializable']).exactOptional(),
    'Neon-Batch-Read-Only': flag('true: a transaction that only reads'),
    'Neon-Batch-Deferrable': flag('true: with Serializable and read-only, wait for a snapshot that cannot fail'),
  },
  body: neonRequest,
  bodyExample: { query: 'select 1 as id where $1 > 0', params: ['1'] },
  replies: {
    200: {
      description: 'The result, or the results.',
      schema: neonReply,
      example: {
        fields: [{ name: 'id', dataTypeID: 23, tableID: 0, columnID: 0, dataTypeSize: 4, dataTypeModifier: -1, format: 'text' }],
        rowAsArray: false,
        rows: [{ id: 1 }],
        command: 'SELECT',
        rowCount: 1,
      },
    },
  },
  errors: [],
  ownErrors: {
    400: { description: 'Nearly every error.', schema: neonError, example: exampleError('syntax error at or near "selec"', '42601') },
    413: { description: 'The body is too large.', schema: neonError, example: exampleError('request is too large', '54000') },
    500: { description: 'An internal error.', schema: neonError, example: exampleError('internal error', 'XX000') },
    507: { description: 'The result is too large.', schema: neonError, example: exampleError('response is too large', '54000') },
  },
} as const satisfies DocumentedOperation;

/**
 * `POST /sql` for `@neondatabase/serverless`, with its headers, bodies and errors. Unlike Neon's proxy, it refuses statements that
 * would have no effect because the session ends with the call (BEGIN, LISTEN, …).
 * @see https://github.com/neondatabase/serverless
 */
export function neonRoutes(app: FastifyInstance, context: RouteContext): void {
  app.register(async (scope) => {
    scope.addHook('onRequest', async (request, reply) => {
      reply.header('neon-request-id', request.id);
    });
    // The client sends its JSON as text/plain, so that browsers need no preflight request.
    scope.removeAllContentTypeParsers();
    scope.addContentTypeParser('*', { parseAs: 'buffer' }, ({ call, headers }, body: Buffer, done) => {
      try {
        refuseEncodings(headers['content-type'], headers['content-encoding']);
        readJson(body, call, done);
      } catch (error) {
        done(error as Error);
      }
    });
    scope.setErrorHandler((error, request, reply) => {
      const held = throttleRefusal(error, request.call, context.refusals);
      if (held === undefined) return sendNeonError(error, request, reply, context);
      reply.raw.shouldKeepAlive = false;
      return held.then((instead) => sendNeonError(instead, request, reply, context));
    });
    scope.route({
      method: 'POST',
      url: '/sql',
      config: { action: 'neon.sql' },
      onRequest: [authenticateNeon(context.authenticator)],
      handler: (request, reply) => {
        request.call.work = answer(context, request, reply);
        return request.call.work;
      },
    });
  });
}

async function answer(context: RouteContext, request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const wanted = await readNeonRequest(request.headers, request.body);
  reply.type(JSON_TYPE);
  if (wanted.kind === 'single') return reply.send(await runSingle(context, request, wanted.statement));
  reply.headers(echoedHeaders(request.headers));
  return reply.send(await runBatch(context, request, wanted.statements, wanted.modes));
}

async function runSingle({ router, config }: RouteContext, request: FastifyRequest, statement: TextStatement): Promise<Buffer> {
  const { call } = request;
  call.statement = { sql: statement.sql, paramCount: statement.values.length };
  const lease = await router.lease(tenantOf(request), leaseOptions(call, [statement]));
  const { body, outcome } = await runTextStatement(lease, statement, sessionOptions(config, request));
  call.outcome = outcome;
  return body;
}

function leaseOptions({ disconnect }: FastifyRequest['call'], statements: readonly TextStatement[]): LeaseOptions {
  return { door: 'http', disconnect, customOptions: optionsSetFirst(statements) };
}

async function runBatch(
  { router, config }: RouteContext,
  request: FastifyRequest,
  statements: readonly TextStatement[],
  modes: TransactionModes,
): Promise<Buffer> {
  const { call } = request;
  call.statement = {
    sql: statements.map(({ sql }) => sql).join(';\n'),
    paramCount: statements.reduce((count, { values }) => count + values.length, 0),
  };
  call.traffic.statements = statements.length;
  if (statements.length === 0) return Buffer.concat([OPENING, CLOSING]);
  const lease = await router.lease(tenantOf(request), leaseOptions(call, statements));
  const results = await runTextTransaction(lease, statements, modes, sessionOptions(config, request));
  call.outcome = totalOf(
    results.map(({ outcome }) => outcome),
    '',
  );
  const bodies = results.flatMap(({ body }, index) => (index === 0 ? [body] : [COMMA, body]));
  return Buffer.concat([OPENING, ...bodies, CLOSING]);
}

const OPENING = Buffer.from('{"results":[');
const COMMA = Buffer.from(',');
const CLOSING = Buffer.from(']}');

function sessionOptions(config: RouteContext['config'], { call }: FastifyRequest): SessionOptions {
  return { timeoutMs: timeoutOf(undefined, config), disconnect: call.disconnect, results: call.results };
}

function sendNeonError(error: unknown, request: FastifyRequest, reply: FastifyReply, { config, observe }: RouteContext): FastifyReply {
  const { status, body, sqlstate, internal } = renderNeonError(error, config.POSTERN_HTTP_BODY_MAX_BYTES);
  if (internal && !request.socket.destroyed)
    observe({ name: 'service.failure', message: 'POST /sql failed', cause: error, requestId: request.id });
  request.call.sqlstate = sqlstate;
  if (reply.raw.shouldKeepAlive) reply.removeHeader('connection');
  return reply.code(status).type(JSON_TYPE).send(errorBody(request.call, body));
}
