import type { IncomingHttpHeaders } from 'node:http';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { isLosslessNumber } from 'lossless-json';
import * as z from 'zod';
import { ServiceError } from '../../src/errors.ts';
import type { Origin } from '../../src/observation.ts';
import { type ErrorFields, PostgresError } from '../../src/protocol/backend.ts';
import type { Authenticator } from '../../src/router/authenticator.ts';
import { requireDatabase, type Tenant } from '../../src/router/lease.ts';
import type { LeaseOptions } from '../../src/router/router.ts';
import { TimeSlices } from '../../src/runtime/event-loop.ts';
import { StatementFailure } from '../../src/sql/failures.ts';
import type { ResultFormat } from '../../src/sql/formats.ts';
import {
  arrayRows,
  encodeBoolean,
  encodeFloat,
  encodersBy,
  encodeText,
  encodeVerbatim,
  type Field,
  objectRows,
} from '../../src/sql/json-values.ts';
import { runTextStatement, runTextTransaction, type TextStatement } from '../../src/sql/neon-queries.ts';
import {
  areMany,
  atOnce,
  inSlices,
  JsonText,
  type JsonValue,
  needsType,
  type ParameterText,
  quoteElement,
  type Writing,
  writeJson,
} from '../../src/sql/parameters.ts';
import { RESULTS_MAX_BYTES, totalOf } from '../../src/sql/result-budget.ts';
import type { SessionOptions } from '../../src/sql/session.ts';
import type { IsolationLevel, TransactionModes } from '../../src/sql/transaction.ts';
import { optionsSetFirst } from '../../src/syntax/side-effects.ts';
import { authenticateBearer, type KeyRing } from '../bearer.ts';
import { serviceError } from '../errors.ts';
import { JSON_TYPE, warnOfReplacement } from '../headers.ts';
import { readJson, refuseEncodings } from '../json-body.ts';
import { type DocumentedOperation, type RouteContext, timeoutOf } from '../operation.ts';
import { throttleRefusal } from '../problems.ts';
import { errorBody } from '../reply-memory.ts';
import { tenantOf } from '../request-context.ts';
import { MAX_PARAMETERS, MAX_STATEMENTS, noQuery } from '../request-schemas.ts';
import { validate } from '../validation.ts';

/** Requests as the client sends them. Unlike in other requests, unknown fields are ignored, because newer clients may send more. */
export const neonQuery = z.object({
  query: z.string().describe('One SQL statement; parameters are written $1, $2, …'),
  params: z
    .array(z.custom<JsonValue>(() => true))
    .max(MAX_PARAMETERS)
    .default([])
    .describe("Values for $1, $2, …, in Postgres' text format"),
  arrayMode: z.boolean().nullish().describe('Rows as arrays; as the header Neon-Array-Mode says, if there is none'),
});

export const neonBatch = z.object({ queries: z.array(neonQuery).max(MAX_STATEMENTS).describe('Run as one transaction') });

export const neonRequest = z.union([neonQuery, neonBatch]);

const row = z.union([z.record(z.string(), z.unknown()), z.array(z.unknown())]);

export const neonResult = z.object({
  fields: z.array(
    z.object({
      name: z.string(),
      dataTypeID: z.int(),
      tableID: z.int(),
      columnID: z.int(),
      dataTypeSize: z.int(),
      dataTypeModifier: z.int(),
      format: z.literal('text'),
    }),
  ),
  rowAsArray: z.boolean(),
  rows: z.array(row),
  command: z.string().describe('The first word of the command tag'),
  rowCount: z.int().nullable(),
});

/** For one query and for several. */
export const neonReply = z.union([neonResult, z.object({ results: z.array(neonResult) })]);

export const neonError = z.object({
  message: z.string(),
  severity: z.string().nullable(),
  code: z.string().nullable().describe('SQLSTATE'),
  detail: z.string().nullable(),
  hint: z.string().nullable(),
  position: z.string().nullable(),
  internalPosition: z.string().nullable(),
  internalQuery: z.string().nullable(),
  where: z.string().nullable(),
  schema: z.string().nullable(),
  table: z.string().nullable(),
  column: z.string().nullable(),
  dataType: z.string().nullable(),
  constraint: z.string().nullable(),
  file: z.string().nullable(),
  line: z.string().nullable(),
  routine: z.string().nullable(),
});

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

function sessionOptions(config: RouteContext['config'], request: FastifyRequest): SessionOptions {
  const { call } = request;
  return { timeoutMs: timeoutOf(undefined, config, tenantOf(request)), disconnect: call.disconnect, results: call.results };
}

function sendNeonError(error: unknown, request: FastifyRequest, reply: FastifyReply, { config, observe }: RouteContext): FastifyReply {
  const { status, body, sqlstate, internal } = renderNeonError(error, config.POSTERN_HTTP_BODY_MAX_BYTES);
  if (internal && !request.socket.destroyed)
    observe({ name: 'service.failure', message: 'POST /sql failed', cause: error, requestId: request.id });
  request.call.sqlstate = sqlstate;
  if (reply.raw.shouldKeepAlive) reply.removeHeader('connection');
  return reply.code(status).type(JSON_TYPE).send(errorBody(request.call, body));
}

/**
 * Authenticates a call by `Authorization: Bearer <API key>`, or by the user and password of the connection string in
 * `Neon-Connection-String`. Runs before the body is read.
 */
function authenticateNeon(authenticator: KeyRing): (request: FastifyRequest, reply: FastifyReply) => Promise<void> {
  return async (request, reply) => {
    const { call, headers } = request;
    const text = headers['neon-connection-string'];
    const connection = typeof text === 'string' ? parseConnectionString(text) : undefined;
    if (connection?.applicationName !== undefined) call.origin = { ...call.origin, applicationName: connection.applicationName };
    if (headers.authorization !== undefined) await authenticateBearer(authenticator, request, reply);
    else {
      call.tenant = await byPassword(authenticator, connection, call.origin);
      warnOfReplacement(call.tenant, reply);
    }
  };
}

/** As at the wire door, user and database are the organization's id. */
async function byPassword(
  authenticator: Pick<Authenticator, 'authenticate'>,
  connection: ConnectionString | undefined,
  origin: Origin,
): Promise<Tenant> {
  if (connection?.password === undefined) {
    throw new ServiceError('unauthorized', 'an API key is needed, as password in the Neon-Connection-String header or as bearer token');
  }
  const { user, password, database } = connection;
  const tenant = await authenticator.authenticate({ kind: 'password', user, apiKey: password }, origin);
  requireDatabase(tenant, database);
  return tenant;
}

/** The used parts of a connection string. Its host is ignored, because the key determines the organization. */
interface ConnectionString {
  readonly user: string;
  readonly database: string;
  readonly password?: string;
  readonly applicationName?: string;
}

/**
 * @throws ServiceError `invalid_request`
 * @see https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-CONNSTRING-URIS
 */
function parseConnectionString(text: string): ConnectionString {
  const url = parseUrl(text);
  if (url === undefined) throw invalid('is not a URL that begins with postgres:// or postgresql://');
  const user = decode(url.username);
  const database = decode(url.pathname.slice(1));
  if (user === '') throw invalid('has no user name');
  if (database === '') throw invalid('has no database name');
  if (url.searchParams.has('options')) {
    throw new ServiceError('unsupported_statement', 'options in the connection string need a session', {
      hint: 'Use a Client or a Pool, which connect over a WebSocket.',
    });
  }
  const applicationName = url.searchParams.get('application_name');
  return {
    user,
    database,
    ...(url.password === '' ? {} : { password: decode(url.password) }),
    ...(applicationName === null ? {} : { applicationName }),
  };
}

function parseUrl(text: string): URL | undefined {
  try {
    const url = new URL(text);
    return url.protocol === 'postgres:' || url.protocol === 'postgresql:' ? url : undefined;
  } catch {
    return undefined;
  }
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    throw invalid('is not percent-encoded as a URL must be');
  }
}

/** The message quotes nothing of the string, because it contains a key. */
function invalid(what: string): ServiceError {
  return new ServiceError('invalid_request', `the connection string ${what}`);
}

type NeonRequest =
  | { readonly kind: 'single'; readonly statement: TextStatement }
  | { readonly kind: 'batch'; readonly statements: readonly TextStatement[]; readonly modes: TransactionModes };

const ISOLATION_LEVELS: ReadonlyMap<string, IsolationLevel> = new Map([
  ['ReadUncommitted', 'read uncommitted'],
  ['ReadCommitted', 'read committed'],
  ['RepeatableRead', 'repeatable read'],
  ['Serializable', 'serializable'],
]);

/** @throws ServiceError `invalid_request` */
async function readNeonRequest(headers: IncomingHttpHeaders, body: unknown): Promise<NeonRequest> {
  const modes = transactionModes(headers);
  if (!isBatch(body)) return { kind: 'single', statement: await statement(headers, validate(neonQuery, body, 'the body')) };
  const { queries } = validate(neonBatch, body, 'the body');
  const statements: TextStatement[] = [];
  const slices = new TimeSlices();
  for (const one of queries) {
    statements.push(await statement(headers, one));
    const pause = slices.pause();
    if (pause !== undefined) await pause;
  }
  return { kind: 'batch', statements, modes };
}

/** The headers of a batch that are repeated in its reply. */
function echoedHeaders(headers: IncomingHttpHeaders): Record<string, string> {
  const echoed: Record<string, string> = {};
  const level = headers['neon-batch-isolation-level'];
  if (typeof level === 'string') echoed['neon-batch-isolation-level'] = level;
  for (const name of ['neon-batch-read-only', 'neon-batch-deferrable']) if (headers[name] === 'true') echoed[name] = 'true';
  return echoed;
}

function isBatch(body: unknown): boolean {
  return typeof body === 'object' && body !== null && 'queries' in body && !('query' in body);
}

async function statement(
  headers: IncomingHttpHeaders,
  { query: sql, params, arrayMode }: z.output<typeof neonQuery>,
): Promise<TextStatement> {
  const raw = headers['neon-raw-text-output'] === 'true';
  const rowAsArray = arrayMode ?? headers['neon-array-mode'] === 'true';
  return { sql, values: await parameterTexts(params), format: neonFormat({ raw, rowAsArray }) };
}

function transactionModes(headers: IncomingHttpHeaders): TransactionModes {
  const level = headers['neon-batch-isolation-level'];
  const isolationLevel = typeof level === 'string' ? ISOLATION_LEVELS.get(level) : undefined;
  if (level !== undefined && isolationLevel === undefined) throw new ServiceError('invalid_request', 'invalid isolation level');
  return {
    ...(isolationLevel === undefined ? {} : { isolationLevel }),
    ...(headers['neon-batch-read-only'] === 'true' ? { readOnly: true } : {}),
    ...(headers['neon-batch-deferrable'] === 'true' ? { deferrable: true } : {}),
  };
}

/**
 * Encodes parameters as Neon's proxy does, independent of the parameter's type: strings unchanged, arrays as array
 * literals, other values as JSON. Neon's client itself sends only strings and nulls. Large values are written in time slices.
 * @throws ServiceError `invalid_request` naming the parameter
 */
async function parameterTexts(values: readonly JsonValue[]): Promise<readonly ParameterText[]> {
  const slices = new TimeSlices();
  const isMuch = areMany(values);
  if (isMuch) await slices.pause();
  const texts: ParameterText[] = [];
  for (const [index, value] of values.entries()) {
    const text = !needsType(value) ? scalar(value) : isMuch ? await inSlices(structure(value)) : atOnce(structure(value));
    if (text?.includes('\0')) throw new ServiceError('invalid_request', `params[${index}] contains a NUL character`, { sqlstate: '22021' });
    texts.push(text);
  }
  return texts;
}

function* structure(value: JsonValue): Writing {
  const text = new JsonText();
  if (Array.isArray(value)) yield* writeArray(value, text);
  else yield* writeJson(value, text);
  return text.toString();
}

/** Only strings and objects need quotes; a nested array is a further dimension. */
function* writeArray(values: readonly JsonValue[], text: JsonText): Generator<void, void> {
  text.add('{');
  for (const [at, value] of values.entries()) {
    if (at > 0) text.add(',');
    if (Array.isArray(value)) yield* writeArray(value, text);
    else text.add(needsType(value) ? quoteElement(yield* structure(value)) : element(value));
    if (text.isDue) yield;
  }
  text.add('}');
}

function element(value: JsonValue): string {
  if (value === null) return 'NULL';
  return typeof value === 'string' ? quoteElement(value) : (scalar(value) ?? 'NULL');
}

/** Neither an array nor an object. */
function scalar(value: JsonValue): ParameterText {
  if (value === null || typeof value === 'string') return value;
  return isLosslessNumber(value) ? value.toString() : JSON.stringify(value);
}

interface OutputMode {
  /** All values are strings in Postgres' text format; the client converts them. */
  readonly raw: boolean;
  readonly rowAsArray: boolean;
}

/** A result as Neon's proxy writes it: `{fields, rowAsArray, rows, command, rowCount}`. */
function neonFormat({ raw, rowAsArray }: OutputMode): ResultFormat {
  const encoders = raw ? asText : asJson;
  return {
    losesRepeatedNames: false,
    needsTypes: !raw,
    separator: COMMA,
    rows: (fields) => (rowAsArray ? arrayRows(fields, encoders) : objectRows(fields, encoders)),
    open(out, fields) {
      out.text(`{"fields":${JSON.stringify(fields.map(describe))},"rowAsArray":${rowAsArray},"rows":[`);
    },
    close(out, { command, rowCount }) {
      // As in node-postgres: CREATE, not CREATE TABLE.
      const [firstWord = ''] = command.split(' ', 1);
      out.text(`],"command":${JSON.stringify(firstWord)},"rowCount":${rowCount}}`);
    },
  };
}

const asText = () => encodeText;

/** More types are strings than in other replies of the HTTP door. */
const asJson = encodersBy(
  new Map([
    [16, encodeBoolean],
    [21, encodeVerbatim], // int2
    [23, encodeVerbatim], // int4
    [700, encodeFloat],
    [701, encodeFloat],
    [114, encodeVerbatim], // json
    [3802, encodeVerbatim], // jsonb
  ]),
);

/** The names are node-postgres'. */
function describe({ name, dataTypeOid, tableOid, columnNumber, dataTypeSize, typeModifier }: Field) {
  return {
    name,
    dataTypeID: dataTypeOid,
    tableID: tableOid,
    columnID: columnNumber,
    dataTypeSize,
    dataTypeModifier: typeModifier,
    format: 'text',
  };
}

/** The fields that Neon's client copies into its NeonDbError. */
const FIELDS = [
  'severity',
  'code',
  'detail',
  'hint',
  'position',
  'internalPosition',
  'internalQuery',
  'where',
  'schema',
  'table',
  'column',
  'dataType',
  'constraint',
  'file',
  'line',
  'routine',
] as const satisfies (keyof ErrorFields)[];

interface NeonError {
  readonly status: number;
  readonly body: Readonly<Record<string, string | null>>;
  readonly sqlstate: string;
  /** The error is internal or unexpected, and must be logged in full. */
  readonly internal: boolean;
}

/**
 * Any error as the flat document that Neon's client expects. The client reads it only with status 400, so nearly all have that status.
 * @param maxBodyBytes the limit of a request's body
 */
function renderNeonError(error: unknown, maxBodyBytes: number): NeonError {
  const cause = error instanceof StatementFailure ? error.error : error;
  if (cause instanceof PostgresError) return { status: 400, body: flat(cause.fields), sqlstate: cause.fields.code, internal: false };
  const known = serviceError(cause);
  const [status, message] = shapeOf(known, maxBodyBytes);
  const internal = known.kind === 'internal';
  const { sqlstate: code, detail, hint } = known;
  const notes = internal ? {} : { ...(detail === undefined ? {} : { detail }), ...(hint === undefined ? {} : { hint }) };
  return { status, body: flat({ severity: 'ERROR', code, message, ...notes }), sqlstate: code, internal };
}

/** The statuses that Neon's proxy uses for these errors. */
function shapeOf({ kind, message }: ServiceError, maxBodyBytes: number): [status: number, message: string] {
  switch (kind) {
    case 'payload_too_large':
      return [413, `request is too large (max is ${maxBodyBytes} bytes)`];
    case 'response_too_large':
      return [507, `response is too large (max is ${RESULTS_MAX_BYTES} bytes)`];
    case 'internal':
      return [500, 'internal error'];
    default:
      return [400, message];
  }
}

/** All values are strings, as in the wire protocol's text format. */
function flat(fields: ErrorFields): Record<string, string | null> {
  const values = FIELDS.map((name) => [name, fields[name] === undefined ? null : String(fields[name])] as const);
  return { message: fields.message, ...Object.fromEntries(values) };
}
