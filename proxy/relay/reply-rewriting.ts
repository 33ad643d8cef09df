import { SERVER_STATEMENT } from '../../src/backend/server-statement.ts';
import { decodeNotification, encodeBackendMessage } from '../../src/protocol/backend.ts';
import { decodeErrorFields, type ErrorFields } from '../../src/protocol/error-fields.ts';
import { message as encodeMessage } from '../../src/protocol/frontend-encoder.ts';
import { HEADER_BYTES } from '../../src/protocol/message-framing.ts';
import type { Edits } from '../../src/router/schema-rewriting/edits/edits.ts';
import type { SchemaRewriter } from '../../src/router/schema-rewriting/schema-rewriter.ts';
import type { ClientStatements } from '../prepared/client-statements.ts';
import type { SessionServices } from '../sessions/session-services.ts';

/* These functions replace the server's names in complete backend messages by the names that the client knows. */

export function noticeForClient(message: Buffer, rewriter: SchemaRewriter): Buffer {
  return encodeBackendMessage({ name: 'NoticeResponse', fields: rewriter.error(decodeErrorFields(message.subarray(HEADER_BYTES))) });
}

/** Puts the notifying session's process id in the place of the backend's. @returns undefined for another organization's channel */
export function notificationForClient(
  message: Buffer,
  { rewriter, processIds }: Pick<SessionServices, 'rewriter' | 'processIds'>,
): Buffer | undefined {
  const { processId, channel, payload } = decodeNotification(message.subarray(HEADER_BYTES));
  const seen = rewriter === undefined ? channel : rewriter.channel(channel);
  if (seen === undefined) return undefined;
  const sender = processIds.userOf(processId) ?? processId;
  return encodeBackendMessage({ name: 'NotificationResponse', processId: sender, channel: seen, payload });
}

/**
 * Rewrites an error that mentions a server statement or the placement's schema.
 * @param edits the replacements made in the statement that the error is about
 */
export function errorForClient(
  message: Buffer,
  fields: ErrorFields,
  {
    rewriter,
    statements,
    edits,
  }: { readonly rewriter: SchemaRewriter | undefined; readonly statements: ClientStatements; readonly edits: Edits },
): Buffer {
  const name = (text: string) => text.replace(SERVER_STATEMENT, (server) => statements.nameOf(server));
  if (rewriter === undefined) return rewriteBody(message, name);
  return encodeBackendMessage({ name: 'ErrorResponse', fields: rewriter.error({ ...fields, message: name(fields.message) }, edits) });
}

/** Follows the header, the number of columns and the length of the first column. */
const SHOW_VALUE_OFFSET = HEADER_BYTES + 2 + 4;

/** The row of SHOW search_path, which has one column. */
export function searchPathRowForClient(row: Buffer, rewriter: SchemaRewriter | undefined): Buffer {
  const value = row.toString('utf8', SHOW_VALUE_OFFSET);
  const shown = Buffer.from(rewriter?.clientSetting('search_path', value) ?? value);
  const message = Buffer.concat([row.subarray(0, SHOW_VALUE_OFFSET), shown]);
  message.writeInt32BE(message.length - 1, 1);
  message.writeInt32BE(shown.length, SHOW_VALUE_OFFSET - 4);
  return message;
}

/** A whole message with another body; `change` sees the body as Latin-1, so that bytes stay as they are. */
function rewriteBody(original: Buffer, change: (body: string) => string): Buffer {
  return encodeMessage(original[0] ?? 0, Buffer.from(change(original.toString('latin1', 5)), 'latin1'));
}
