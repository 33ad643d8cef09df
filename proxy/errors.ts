import { type ErrorNotes, ServiceError } from '../src/errors.ts';
import { encodeBackendMessage, PostgresError } from '../src/protocol/backend.ts';

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
