import type { ErrorCode } from '../errors.ts';

/** Errors before there is a database session. */
export const LEASE_ERRORS: readonly ErrorCode[] = [
  'pool_timeout',
  'too_many_connections',
  'backend_lost',
  'database_busy',
  'database_unavailable',
];

/** Errors while SQL runs. */
export const SQL_ERRORS: readonly ErrorCode[] = [
  'sql_error',
  'forbidden',
  'unsupported_statement',
  'statement_canceled',
  'lock_not_available',
  'serialization_failure',
  'deadlock_detected',
  'statement_timeout',
  'response_too_large',
];

/** Errors of an Idempotency-Key. */
export const IDEMPOTENCY_ERRORS: readonly ErrorCode[] = ['idempotency_in_progress', 'idempotency_key_reused'];
