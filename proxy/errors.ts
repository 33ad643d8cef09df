import { mentionsServerStatement } from '../src/backend/prepared-statements.ts';
import { type ErrorNotes, ServiceError } from '../src/errors.ts';
import { encodeBackendMessage } from '../src/protocol/backend.ts';
import { type ErrorFields, PostgresError } from '../src/protocol/error-fields.ts';

/**
 * An ErrorResponse for an error of Postern, or for one that Postgres raised while a session was prepared. FATAL ends the connection,
 * ERROR only the request.
 * @see https://www.postgresql.org/docs/current/protocol-error-fields.html
 */
export function errorResponse(error: unknown, severity: 'ERROR' | 'FATAL'): Buffer {
  if (error instanceof PostgresError) return encodeBackendMessage({ name: 'ErrorResponse', fields: { ...error.fields, severity } });
  const shown = error instanceof ServiceError ? error : new ServiceError('internal', 'internal error');
  return encodeBackendMessage({
    name: 'ErrorResponse',
    fields: {
      severity,
      code: shown.sqlstate,
      message: shown.message,
      ...(shown.detail === undefined ? {} : { detail: shown.detail }),
      ...(shown.hint === undefined ? {} : { hint: shown.hint }),
    },
  });
}

export function tooManyClients(): ServiceError {
  return new ServiceError('too_many_connections', 'sorry, too many clients already');
}

export function protocolViolation(message: string, notes?: ErrorNotes): ServiceError {
  return new ServiceError('protocol_violation', message, notes);
}

/** PostgreSQL's error when a statement's columns are not those that the client has been sent. Drivers recognize it by the routine. */
export const STALE_PLAN: ErrorFields = {
  severity: 'ERROR',
  code: '0A000',
  message: 'cached plan must not change result type',
  file: 'plancache.c',
  routine: 'RevalidateCachedQuery',
};

/** Whether the error says that a statement's result type has changed since it was prepared. */
export function isStalePlan({ code, message }: ErrorFields): boolean {
  return code === '0A000' && message.startsWith('cached plan');
}

/** Whether the error says that a prepared statement does not exist. */
export function isMissing({ code }: ErrorFields): boolean {
  return code === '26000';
}

/** Whether a server statement no longer exists: `DEALLOCATE ALL` in a function or a DO block may have removed it unnoticed. */
export function isServerStatementMissing(fields: ErrorFields): boolean {
  return isMissing(fields) && mentionsServerStatement(fields.message);
}

/** Whether the error is that of a cancel request, and not of a timeout of the server. */
export function isCanceled({ code, message }: ErrorFields): boolean {
  return code === '57014' && !message.includes('timeout');
}
