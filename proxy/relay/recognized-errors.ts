import { mentionsServerStatement } from '../../src/backend/session-state.ts';
import type { ErrorFields } from '../../src/protocol/backend.ts';

/* Errors of the server that the relay recognizes: it runs the request again, or prepares its statement again. */

/** PostgreSQL's error when a statement's columns are not those that the client has been sent. Drivers recognize it by the routine. */
export const STALE_PLAN: ErrorFields = {
  severity: 'ERROR',
  code: '0A000',
  message: 'cached plan must not change result type',
  file: 'plancache.c',
  routine: 'RevalidateCachedQuery',
};

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
