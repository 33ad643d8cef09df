import { type ErrorKind, ServiceError } from '../src/errors.ts';
import { OVER_QUOTA } from '../src/placement/disk-quota.ts';
import { type ErrorFields, PostgresError } from '../src/protocol/backend.ts';
import { type FailurePlace, StatementFailure } from '../src/sql/failures.ts';
import { mayCommitInPart } from '../src/syntax/http-restrictions.ts';
import { lineAndColumn } from '../src/syntax/line-and-column.ts';
import { Lexer, Token } from '../src/syntax/scanner.ts';
import type { Problem } from './reply-schemas.ts';

/** How one kind of error is shown to clients. */
export interface ErrorShape {
  readonly status: number;
  readonly title: string;
  /** Nothing of the request has been carried out, and the same request may succeed when sent again. */
  readonly retryable?: true;
  /** For `Retry-After`, if the error itself has no value. */
  readonly retryAfterS?: number;
}

/** All kinds of errors of Postern itself. */
const SERVICE_ERRORS: Readonly<Record<ErrorKind, ErrorShape>> = {
  invalid_request: { status: 400, title: 'Invalid request' },
  unsupported_statement: { status: 400, title: 'Statement not supported here' },
  unsupported_protocol: { status: 400, title: 'Unsupported protocol' },
  protocol_violation: { status: 400, title: 'Protocol violation' },
  unauthorized: { status: 401, title: 'Unauthorized' },
  organization_suspended: { status: 403, title: 'Organization suspended' },
  not_allowed: { status: 403, title: 'Not allowed' },
  forbidden: { status: 403, title: 'Forbidden' },
  too_many_login_failures: { status: 429, title: 'Too many failed logins', retryable: true, retryAfterS: 150 },
  unknown_database: { status: 404, title: 'Unknown database' },
  not_found: { status: 404, title: 'Not found' },
  misdirected_request: { status: 421, title: 'Misdirected request' },
  method_not_allowed: { status: 405, title: 'Method not allowed' },
  not_acceptable: { status: 406, title: 'Not acceptable' },
  unsupported_media_type: { status: 415, title: 'Unsupported media type' },
  signup_closed: { status: 403, title: 'Sign-up closed' },
  invite_required: { status: 403, title: 'Invitation required' },
  invite_invalid: { status: 403, title: 'Invitation not valid' },
  email_taken: { status: 409, title: 'E-mail address taken' },
  organization_busy: { status: 409, title: 'Organization busy', retryable: true, retryAfterS: 5 },
  last_admin_key: { status: 409, title: 'Last admin key' },
  too_many_keys: { status: 409, title: 'Too many keys' },
  too_many_clones: { status: 409, title: 'Too many clones' },
  too_many_queries: { status: 409, title: 'Too many saved queries' },
  precondition_failed: { status: 412, title: 'Precondition failed' },
  migration_checksum_mismatch: { status: 409, title: 'Migration checksum mismatch' },
  migration_not_reversible: { status: 409, title: 'Migration not reversible' },
  migration_not_newest: { status: 409, title: 'Migration not the newest' },
  idempotency_in_progress: { status: 409, title: 'Request still running', retryable: true, retryAfterS: 1 },
  idempotency_key_reused: { status: 422, title: 'Idempotency key reused' },
  payload_too_large: { status: 413, title: 'Request body too large' },
  response_too_large: { status: 400, title: 'Result too large' },
  insufficient_storage: { status: 507, title: 'Insufficient storage' },
  disk_quota_exceeded: { status: 507, title: 'Disk quota exceeded' },
  rate_limited: { status: 429, title: 'Too many requests', retryable: true, retryAfterS: 3_600 },
  too_many_requests: { status: 429, title: 'Too many requests at once', retryable: true, retryAfterS: 1 },
  too_many_connections: { status: 503, title: 'Too many connections', retryable: true, retryAfterS: 2 },
  pool_timeout: { status: 503, title: 'No database session free in time', retryable: true, retryAfterS: 2 },
  statement_timeout: { status: 504, title: 'Statement timeout' },
  // 499 is nginx's status for a client that has disconnected. It is recorded in logs and the audit log.
  query_canceled: { status: 499, title: 'Canceled' },
  // Of a request that is canceled or ended on request, as if Postgres had been asked to.
  statement_canceled: { status: 400, title: 'Statement canceled' },
  database_unavailable: { status: 503, title: 'Database unavailable', retryAfterS: 5 },
  idle_in_transaction_timeout: { status: 504, title: 'Idle in transaction' },
  idle_session_timeout: { status: 504, title: 'Idle session' },
  key_revoked: { status: 401, title: 'API key revoked' },
  shutting_down: { status: 503, title: 'Shutting down', retryable: true, retryAfterS: 5 },
  not_ready: { status: 503, title: 'Database not ready', retryable: true, retryAfterS: 5 },
  // It is not known whether the statement was committed before the connection broke, so it is not retryable.
  backend_lost: { status: 503, title: 'Database connection lost', retryAfterS: 2 },
  internal: { status: 500, title: 'Internal error' },
};

/** Codes for errors of Postgres. Any that is not listed in {@link postgresErrorCode} is a `sql_error`. */
type PostgresErrorCode =
  | 'sql_error'
  | 'serialization_failure'
  | 'deadlock_detected'
  | 'lock_not_available'
  | 'statement_canceled'
  | 'statement_timeout'
  | 'database_busy'
  | 'database_unavailable';

const POSTGRES_ERRORS: Readonly<Record<PostgresErrorCode, ErrorShape>> = {
  sql_error: { status: 400, title: 'SQL error' },
  serialization_failure: { status: 409, title: 'Serialization failure', retryable: true },
  deadlock_detected: { status: 409, title: 'Deadlock detected', retryable: true },
  lock_not_available: { status: 400, title: 'Lock not available', retryable: true },
  statement_canceled: { status: 400, title: 'Statement canceled' },
  statement_timeout: { status: 504, title: 'Statement timeout' },
  database_busy: { status: 503, title: 'Database busy', retryable: true, retryAfterS: 2 },
  database_unavailable: { status: 503, title: 'Database unavailable', retryAfterS: 5 },
};

/** Refusals of bytes that are no valid request. */
export type ConnectionErrorCode = 'malformed_request' | 'request_timeout' | 'headers_too_large';

const CONNECTION_ERRORS: Readonly<Record<ConnectionErrorCode, ErrorShape>> = {
  malformed_request: { status: 400, title: 'Malformed request' },
  request_timeout: { status: 408, title: 'Request timeout', retryable: true },
  headers_too_large: { status: 431, title: 'Request headers too large' },
};

export type ErrorCode = ErrorKind | PostgresErrorCode | ConnectionErrorCode;

export const ERRORS: Readonly<Record<ErrorCode, ErrorShape>> = { ...SERVICE_ERRORS, ...POSTGRES_ERRORS, ...CONNECTION_ERRORS };

/** What a problem document contains besides the error itself. */
export interface FailedCall {
  readonly requestId: string;
  /** The request's path, without its query string. */
  readonly path: string;
  /** Whether the call had credentials of any kind. */
  readonly withCredentials: boolean;
  /** The statement that an error position refers to, if the call had exactly one. */
  readonly sql?: string | undefined;
  /** Whether all of the call ran in one transaction. */
  readonly atomic?: boolean | undefined;
  /** It has an Idempotency-Key, so it is carried out at most once. */
  readonly isRepeatable?: boolean | undefined;
  /** Its organization is over its disk quota. */
  readonly isOverQuota?: boolean | undefined;
  /** Its key is of a role that owns nothing, which is why it may not do something. */
  readonly isRestricted?: boolean | undefined;
  /** The limit of its body. */
  readonly maxBodyBytes?: number | undefined;
}

export interface RenderedError {
  readonly problem: Problem;
  readonly headers: Readonly<Record<string, string>>;
  /** The error is internal or unexpected, and must be logged in full. */
  readonly internal: boolean;
}

/** An error as a problem document (RFC 9457), with its headers. The text of an unknown error is not shown. */
export function renderError(error: unknown, call: FailedCall): RenderedError {
  if (error instanceof StatementFailure) return renderFailure(error, call);
  if (error instanceof PostgresError) return renderPostgresError(error, placeIn(call.sql, error.fields.position), call);
  return renderServiceError(serviceError(error, call.maxBodyBytes), call);
}

/** The problem document for bytes that are no valid request. */
export function renderConnectionError(code: ConnectionErrorCode, message: string, requestId: string): Problem {
  return problemOf(code, CONNECTION_ERRORS[code], message, { requestId, path: '', withCredentials: false });
}

function renderFailure({ error, place }: StatementFailure, call: FailedCall): RenderedError {
  const rendered = error instanceof PostgresError ? renderPostgresError(error, place, call) : renderServiceError(error, call);
  const { statementIndex, phase, line, column, statementsApplied } = place;
  // If the connection breaks during COMMIT, it is not known whether the transaction was committed.
  const rolledBack = call.atomic === true && !(phase === 'commit' && rendered.problem.status === 503);
  const where = {
    ...(statementIndex === undefined ? {} : { statementIndex }),
    phase,
    // For errors of Postgres they are in `postgres`, beside the position.
    ...(line === undefined || error instanceof PostgresError ? {} : { line, column }),
    ...(statementsApplied === undefined ? {} : { statementsApplied }),
    ...(rolledBack ? { transactionStatus: 'rolled_back' as const } : {}),
  };
  return { ...rendered, problem: { ...rendered.problem, ...where } };
}

function renderServiceError(error: ServiceError, call: FailedCall): RenderedError {
  const shape = SERVICE_ERRORS[error.kind];
  const internal = error.kind === 'internal';
  const message = internal ? 'internal error' : error.message;
  const detail = internal || error.detail === undefined ? message : error.detail;
  const extras = { sqlstate: error.sqlstate, ...(error.hint === undefined || internal ? {} : { hint: error.hint }) };
  return {
    problem: { ...problemOf(error.kind, shape, message, call), detail, ...extras },
    headers: headersOf(shape, error.retryAfterS, call),
    internal,
  };
}

function renderPostgresError({ fields }: PostgresError, place: Pick<FailurePlace, 'line' | 'column'>, call: FailedCall): RenderedError {
  const code = codeFor(fields, call);
  const shape = ERRORS[code];
  const base = problemOf(code, shape, fields.message, call);
  const retryable = base.retryable && leavesNothing(call);
  const hint = sqlHint(fields, call.sql);
  const more = { sqlstate: fields.code, ...(hint === undefined ? {} : { hint }), postgres: postgresPart(fields, place) };
  const problem = { ...base, retryable, ...more };
  return { problem, headers: headersOf(shape, undefined, call), internal: false };
}

function codeFor(fields: ErrorFields, { isRestricted, isOverQuota }: FailedCall): ErrorCode {
  if (fields.code === '42501' && isRestricted) return 'forbidden';
  // Without a superuser's triggers it may do what its readers may.
  if (fields.code === '42501' && isOverQuota) return 'disk_quota_exceeded';
  // Where the disk itself is full, the message is PostgreSQL's.
  if (fields.code === '53100' && fields.message === OVER_QUOTA) return 'disk_quota_exceeded';
  return postgresErrorCode(fields);
}

/** Whether a failed call has changed nothing. */
function leavesNothing({ atomic, sql }: FailedCall): boolean {
  return atomic ?? !(sql !== undefined && mayCommitInPart(sql));
}

/** @see https://www.postgresql.org/docs/current/errcodes-appendix.html */
function postgresErrorCode({ code, message }: ErrorFields): PostgresErrorCode {
  switch (code) {
    case '40001':
      return 'serialization_failure';
    case '40P01':
      return 'deadlock_detected';
    case '55P03':
      return 'lock_not_available';
    // Timeouts and cancel requests have the same SQLSTATE; only the message distinguishes them.
    case '57014':
      return /statement timeout/.test(message) ? 'statement_timeout' : 'statement_canceled';
    case '53100':
    case '53200':
    case '53300':
    case '57P03':
      return 'database_busy';
    case '57P01':
    case '57P02':
    case '57P05':
      return 'database_unavailable';
    // The statement itself raised this error; a protocol violation of Postern would not be reported this way.
    case '08P01':
      return 'sql_error';
    default:
      return code.startsWith('08') ? 'database_unavailable' : 'sql_error';
  }
}

function problemOf(code: ErrorCode, shape: ErrorShape, message: string, call: FailedCall): Problem {
  return {
    type: `/docs#error-${code}`,
    title: shape.title,
    status: shape.status,
    detail: message,
    instance: call.path,
    code,
    error: shape.title,
    message,
    requestId: call.requestId,
    // A call with an unknown outcome may be repeated if it cannot be carried out twice, nor in part.
    retryable: shape.retryable === true || (shape.status === 503 && call.isRepeatable === true && call.atomic !== false),
  };
}

/** `column` is a position in the SQL text; the table column that an error names is `columnName`. */
function postgresPart(fields: ErrorFields, { line, column }: Pick<FailurePlace, 'line' | 'column'>): NonNullable<Problem['postgres']> {
  const { code: _code, message: _message, file: _file, line: _line, routine: _routine, column: columnName, ...shown } = fields;
  const place = { ...(line === undefined ? {} : { line }), ...(column === undefined ? {} : { column }) };
  return { ...shown, ...place, ...(columnName === undefined ? {} : { columnName }) };
}

function placeIn(sql: string | undefined, position: number | undefined): Pick<FailurePlace, 'line' | 'column'> {
  return sql === undefined || position === undefined ? {} : lineAndColumn(sql, position);
}

/** @see https://www.rfc-editor.org/rfc/rfc6750#section-3 and https://www.rfc-editor.org/rfc/rfc9110#field.retry-after */
function headersOf(shape: ErrorShape, retryAfterS: number | undefined, call: FailedCall): Record<string, string> {
  const seconds = retryAfterS ?? shape.retryAfterS;
  const challenge = `Bearer realm="postern"${call.withCredentials ? ', error="invalid_token"' : ''}`;
  return {
    ...(seconds === undefined ? {} : { 'retry-after': String(Math.max(1, Math.ceil(seconds))) }),
    ...(shape.status === 401 ? { 'www-authenticate': challenge } : {}),
  };
}

/** Maps errors of Fastify and Node to Postern's kinds; any other is `internal`. */
export function serviceError(error: unknown, maxBodyBytes?: number): ServiceError {
  if (error instanceof ServiceError) return error;
  switch (codeOf(error)) {
    case 'FST_ERR_CTP_BODY_TOO_LARGE':
      return new ServiceError(
        'payload_too_large',
        `the request body is larger than ${maxBodyBytes === undefined ? 'it may be' : `${maxBodyBytes} bytes`}`,
      );
    case 'FST_ERR_CTP_INVALID_MEDIA_TYPE':
      return new ServiceError('unsupported_media_type', 'the body must be sent as application/json', {
        hint: 'Add the header "Content-Type: application/json".',
      });
    case 'FST_ERR_CTP_INVALID_CONTENT_LENGTH':
      return new ServiceError('invalid_request', 'the body is not as long as Content-Length says');
    // No name that a path has room for is as long, so nothing is there.
    case 'FST_ERR_MAX_PARAM_LENGTH':
      return new ServiceError('not_found', 'there is nothing at this path: a part of it is longer than any name');
    case 'FST_ERR_BAD_URL':
      return new ServiceError('invalid_request', 'the path of the request is not a valid URL path');
    default:
      return new ServiceError('internal', 'internal error', { cause: error });
  }
}

function codeOf(error: unknown): unknown {
  return typeof error === 'object' && error !== null && 'code' in error ? error.code : undefined;
}

/** Only the beginning of a statement is searched for parameters of another style. */
const SEARCHED_MAX_CHARACTERS = 16_384;

const [SYNTAX_ERROR, INSUFFICIENT_PRIVILEGE, NOT_SUPPORTED, UNDEFINED_FUNCTION, UNDEFINED_OBJECT] = [
  '42601',
  '42501',
  '0A000',
  '42883',
  '42704',
];

/** What to do about an error of Postgres, for callers who are used to another database, to psql, or to a server of their own. */
function sqlHint({ code, message, hint }: ErrorFields, sql = ''): string | undefined {
  switch (code) {
    case SYNTAX_ERROR:
      return hintOfCommand(sql) ?? (hasOtherParameters(sql) ? PARAMETERS : hint);
    case INSUFFICIENT_PRIVILEGE:
      if (/^permission denied to (?:create|alter|drop|grant|rename) role/.test(message)) return ROLES;
      if (!message.startsWith('permission denied to create extension')) return hint;
      return hint?.includes('CREATE privilege') ? EXTENSIONS : TRUSTED;
    case NOT_SUPPORTED:
      return /^extension ".*" is not available/.test(message) ? AVAILABLE : hint;
    case UNDEFINED_FUNCTION:
      if (message.startsWith('operator') && hasOtherParameters(sql)) return PARAMETERS;
      return hintOfExtension(/^function (?:\w+\.)?(\w+)\(/.exec(message)?.[1]) ?? hint;
    case UNDEFINED_OBJECT:
      return hintOfExtension(/^type "(?:\w+\.)?(\w+)"/.exec(message)?.[1]) ?? hint;
    default:
      return hint;
  }
}

const PARAMETERS = 'Parameters are written $1, $2, … in the SQL; their values are sent in params, in that order.';
const ROLES =
  'Roles cannot be created. Further credentials are keys: POST /api/keys makes one, also one that can only read. GRANT and roles are not needed for that.';
const AVAILABLE = 'This server has not got it. What it has: select name, comment from pg_available_extensions';
const TRUSTED = 'Only trusted extensions can be created: select name from pg_available_extension_versions where trusted';

/** The server tells a trusted extension from others by what it asks for. */
const EXTENSIONS =
  'In the schema placement extensions are shared, so the operator creates them, in the database postern_shared. Those that are there: select extname from pg_extension';

/** The commands of psql that begin with a backslash never reach a server. */
function hintOfCommand(sql: string): string | undefined {
  const [command, name] = /^\s*(\\\w*\+?)(?:\s+"?(\w+))?/.exec(sql.slice(0, 1_000))?.slice(1) ?? [];
  if (command === undefined) return undefined;
  const instead =
    command.startsWith('\\d') && name !== undefined
      ? `select column_name, data_type, is_nullable from information_schema.columns where table_name = '${name}'`
      : 'select table_name, table_type from information_schema.tables where table_schema = current_schema()';
  return `${command} is a command of psql, not SQL. ${command.startsWith('\\d') ? 'Instead' : 'For a list of tables'}: ${instead}`;
}

/** Whether it has a `?`, a `:name` or a `%s` outside of strings and comments. */
function hasOtherParameters(sql: string): boolean {
  if (!/[?:%]/.test(sql)) return false;
  const lexer = new Lexer(sql.slice(0, SEARCHED_MAX_CHARACTERS));
  let mark = { text: '', end: -1 };
  while (lexer.next() !== Token.End) {
    const text = lexer.text.slice(lexer.start, lexer.end);
    const isBehindMark = lexer.kind === Token.Word && lexer.start === mark.end;
    if (isBehindMark && (mark.text === ':' || (mark.text === '%' && text === 's'))) return true;
    if (lexer.kind !== Token.Operator) continue;
    if (text.endsWith('?')) return true;
    mark = { text: text.slice(-1) === '%' ? '%' : text, end: lexer.end };
  }
  return false;
}

/** The extensions of functions and types that are often expected to be there. */
const EXTENSION_OF: ReadonlyMap<string, string> = new Map(
  Object.entries({
    'uuid-ossp': ['uuid_generate_v1', 'uuid_generate_v1mc', 'uuid_generate_v3', 'uuid_generate_v4', 'uuid_generate_v5'],
    pgcrypto: ['crypt', 'gen_salt', 'digest', 'hmac', 'gen_random_bytes', 'pgp_sym_encrypt', 'pgp_sym_decrypt'],
    pg_trgm: ['similarity', 'word_similarity', 'show_trgm'],
    unaccent: ['unaccent'],
    fuzzystrmatch: ['levenshtein', 'soundex', 'metaphone', 'dmetaphone'],
    tablefunc: ['crosstab', 'connectby', 'normal_rand'],
    citext: ['citext'],
    hstore: ['hstore'],
    ltree: ['ltree', 'lquery'],
    cube: ['cube'],
    postgis: ['geometry', 'geography', 'st_makepoint', 'st_distance', 'st_dwithin', 'st_geomfromtext'],
    vector: ['vector', 'halfvec', 'cosine_distance', 'l2_distance'],
  }).flatMap(([extension, names]) => names.map((name) => [name, extension] as const)),
);

function hintOfExtension(name = ''): string | undefined {
  const extension = EXTENSION_OF.get(name);
  if (extension === undefined) return undefined;
  const other = name === 'uuid_generate_v4' ? ' gen_random_uuid() needs none.' : '';
  return `It is in the extension "${extension}": create extension if not exists "${extension}".${other} What this server has: select name from pg_available_extensions`;
}
