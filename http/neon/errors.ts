import type { ServiceError } from '../../src/errors.ts';
import { type ErrorFields, PostgresError } from '../../src/protocol/backend.ts';
import { StatementFailure } from '../../src/sql/failures.ts';
import { RESULTS_MAX_BYTES } from '../../src/sql/result-budget.ts';
import { serviceError } from '../errors.ts';

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

export interface NeonError {
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
export function renderNeonError(error: unknown, maxBodyBytes: number): NeonError {
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
