import { mentionsServerStatement } from '../src/backend/prepared-statements.ts';
import { type ErrorNotes, ServiceError } from '../src/errors.ts';
import { type ErrorFields, encodeBackendMessage, PostgresError } from '../src/protocol/backend.ts';

/**
 * Errors, ours and those that Postgres raised while we prepared its session, as Postgres would send them. FATAL ends the connection, ERROR only the request.
 * @see https://www.postgresql.org/docs/current/protocol-error-fields.html
 */
export function errorResponse(error: unknown, severity: 'ERROR' | 'FATAL'): Buffer {
  if (error instanceof PostgresError) return encodeBackendMessage({ name: 'ErrorResponse', fields: { ...error.fields, severity } });
  const told = error instanceof ServiceError ? error : new ServiceError('internal', 'internal error');
  return encodeBackendMessage({
    name: 'ErrorResponse',
    fields: {
      severity,
      code: told.sqlstate,
      message: told.message,
      ...(told.detail === undefined ? {} : { detail: told.detail }),
      ...(told.hint === undefined ? {} : { hint: told.hint }),
    },
  });
}

export function protocolViolation(message: string, notes?: ErrorNotes): ServiceError {
  return new ServiceError('protocol_violation', message, notes);
}

/** What PostgreSQL says where a statement's columns are not those that its client was told; drivers go by the routine. */
export const STALE_PLAN: ErrorFields = {
  severity: 'ERROR',
  code: '0A000',
  message: 'cached plan must not change result type',
  file: 'plancache.c',
  routine: 'RevalidateCachedQuery',
};

/** A statement's result has another shape than when it was prepared. */
export function isStalePlan({ code, message }: ErrorFields): boolean {
  return code === '0A000' && message.startsWith('cached plan');
}

/** There is no statement of that name. */
export function isMissing({ code }: ErrorFields): boolean {
  return code === '26000';
}

/** A statement that was prepared for clients is gone: `DEALLOCATE ALL` in a function or a DO block has taken it away unseen. */
export function isTakenAway(fields: ErrorFields): boolean {
  return isMissing(fields) && mentionsServerStatement(fields.message);
}

/** Somebody has asked for it; not a timeout of the server's. */
export function isCanceled({ code, message }: ErrorFields): boolean {
  return code === '57014' && !message.includes('timeout');
}
