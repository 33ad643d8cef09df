/**
 * All kinds of errors of Postern itself, with the SQLSTATE that the wire door sends
 * (https://www.postgresql.org/docs/current/errcodes-appendix.html). http/errors.ts maps the same kinds to HTTP
 * statuses. An error that Postgres raised is no ServiceError; it is passed on unchanged.
 */
const SQLSTATES = {
  invalid_request: '22023',
  unsupported_statement: '0A000',
  unsupported_protocol: '0A000',
  protocol_violation: '08P01',
  unauthorized: '28P01',
  organization_suspended: '28000',
  not_allowed: '28000',
  forbidden: '42501',
  too_many_login_failures: '28000',
  unknown_database: '3D000',
  not_found: '42704',
  misdirected_request: '28000',
  method_not_allowed: '0A000',
  not_acceptable: '0A000',
  unsupported_media_type: '0A000',
  signup_closed: '28000',
  invite_required: '28000',
  invite_invalid: '28000',
  email_taken: '23505',
  organization_busy: '55006',
  last_admin_key: '55000',
  too_many_keys: '53400',
  too_many_clones: '53400',
  too_many_queries: '53400',
  precondition_failed: '55000',
  migration_checksum_mismatch: '23505',
  migration_not_reversible: '55000',
  migration_not_newest: '55000',
  idempotency_in_progress: '55006',
  idempotency_key_reused: '22023',
  payload_too_large: '54000',
  response_too_large: '54000',
  insufficient_storage: '53100',
  disk_quota_exceeded: '53100',
  rate_limited: '53400',
  too_many_requests: '53300',
  too_many_connections: '53300',
  pool_timeout: '53300',
  statement_timeout: '57014',
  query_canceled: '57014',
  statement_canceled: '57014',
  database_unavailable: '57P01',
  idle_in_transaction_timeout: '25P03',
  idle_session_timeout: '57P05',
  key_revoked: '57P01',
  shutting_down: '57P01',
  not_ready: '57P03',
  backend_lost: '08006',
  internal: 'XX000',
} as const;

export type ErrorKind = keyof typeof SQLSTATES;

/** Additions to an error's message. All except `cause` may be sent to the client. */
export interface ErrorNotes {
  readonly detail?: string;
  readonly hint?: string;
  /** Set if it differs from the kind's usual one. */
  readonly sqlstate?: string;
  /** After how many seconds the client may try again. */
  readonly retryAfterS?: number;
  /** The error that caused it, for the log. It is never sent to the client. */
  readonly cause?: unknown;
}

/** The one error of the core. Each door renders it: proxy/errors.ts as ErrorResponse, http/errors.ts as a problem document. */
export class ServiceError extends Error {
  override readonly name = 'ServiceError';
  readonly kind: ErrorKind;
  readonly sqlstate: string;
  readonly detail: string | undefined;
  readonly hint: string | undefined;
  readonly retryAfterS: number | undefined;

  constructor(kind: ErrorKind, message: string, notes: ErrorNotes = {}) {
    super(message, notes.cause === undefined ? undefined : { cause: notes.cause });
    this.kind = kind;
    this.sqlstate = notes.sqlstate ?? SQLSTATES[kind];
    this.detail = notes.detail;
    this.hint = notes.hint;
    this.retryAfterS = notes.retryAfterS;
  }

  /** The same error with other notes. */
  with(notes: ErrorNotes): ServiceError {
    const { detail, hint, sqlstate, retryAfterS, cause } = this;
    return new ServiceError(this.kind, this.message, {
      sqlstate,
      cause,
      ...(detail === undefined ? {} : { detail }),
      ...(hint === undefined ? {} : { hint }),
      ...(retryAfterS === undefined ? {} : { retryAfterS }),
      ...notes,
    });
  }
}

/** The reason of an aborted signal, which is a ServiceError by convention. */
export function abortReason({ reason }: AbortSignal): ServiceError {
  return reason instanceof ServiceError
    ? reason
    : new ServiceError('shutting_down', 'terminating connection due to administrator command', { cause: reason });
}
