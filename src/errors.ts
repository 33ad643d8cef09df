/**
 * Every way in which Postern itself can refuse or fail, with the SQLSTATE that the wire door sends for it
 * (https://www.postgresql.org/docs/current/errcodes-appendix.html). The JSON door maps the same kinds to HTTP
 * statuses in http/errors.ts. An error that Postgres raised is no ServiceError: it passes through unchanged.
 */
const SQLSTATES = {
  invalid_request: '22023',
  unsupported_statement: '0A000',
  unsupported_protocol: '0A000',
  protocol_violation: '08P01',
  unauthorized: '28P01',
  organization_suspended: '28000',
  not_allowed: '28000',
  too_many_login_failures: '28000',
  unknown_database: '3D000',
  not_found: '42704',
  misdirected_request: '28000',
  method_not_allowed: '0A000',
  not_acceptable: '0A000',
  unsupported_media_type: '0A000',
  email_taken: '23505',
  migration_checksum_mismatch: '23505',
  idempotency_in_progress: '55006',
  idempotency_key_reused: '22023',
  payload_too_large: '54000',
  response_too_large: '54000',
  rate_limited: '53400',
  too_many_requests: '53300',
  too_many_connections: '53300',
  pool_timeout: '53300',
  statement_timeout: '57014',
  query_canceled: '57014',
  idle_in_transaction_timeout: '25P03',
  key_revoked: '57P01',
  shutting_down: '57P01',
  not_ready: '57P03',
  backend_lost: '08006',
  internal: 'XX000',
} as const;

export type ErrorKind = keyof typeof SQLSTATES;

/** What an error may say besides its message; all of it may be shown to the caller. */
export interface ErrorNotes {
  readonly detail?: string;
  readonly hint?: string;
  /** Where it differs from the kind's usual one. */
  readonly sqlstate?: string;
  /** Seconds after which another try makes sense. */
  readonly retryAfterS?: number;
  /** What caused it; for the log, never for the caller. */
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
}

/** Why a signal was aborted, where that is a ServiceError by convention. */
export function abortReason({ reason }: AbortSignal): ServiceError {
  return reason instanceof ServiceError
    ? reason
    : new ServiceError('shutting_down', 'terminating connection due to administrator command', { cause: reason });
}
