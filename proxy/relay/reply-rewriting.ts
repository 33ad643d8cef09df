import { SERVER_STATEMENT } from '../../src/backend/prepared-statements.ts';
import { decodeErrorFields, decodeNotification, type ErrorFields, encodeBackendMessage } from '../../src/protocol/backend.ts';
import { HEADER_BYTES } from '../../src/protocol/frame.ts';
import type { Edits } from '../../src/router/schema-rewriting/edits/edits.ts';
import type { SchemaRewriter } from '../../src/router/schema-rewriting/schema-rewriter.ts';
import type { ClientStatements } from '../prepared/client-statements.ts';
import type { SessionServices } from '../sessions/session-services.ts';
import { rewriteBody } from './messages.ts';

/* Whole messages from the server that speak of things by its own names for them, as the client knows those. */

export function noticeForClient(message: Buffer, view: SchemaRewriter): Buffer {
  return encodeBackendMessage({ name: 'NoticeResponse', fields: view.error(decodeErrorFields(message.subarray(HEADER_BYTES))) });
}

/** Says who has notified by the id that the notifier knows. @returns undefined for what is another organization's */
export function notificationForClient(
  message: Buffer,
  { view, processIds }: Pick<SessionServices, 'view' | 'processIds'>,
): Buffer | undefined {
  const { processId, channel, payload } = decodeNotification(message.subarray(HEADER_BYTES));
  const seen = view === undefined ? channel : view.channel(channel);
  if (seen === undefined) return undefined;
  const sender = processIds.userOf(processId) ?? processId;
  return encodeBackendMessage({ name: 'NotificationResponse', processId: sender, channel: seen, payload });
}

/**
 * An error that speaks of a statement, or of the place of its tables.
 * @param edits what was replaced in the statement that it is about
 */
export function errorForClient(
  message: Buffer,
  fields: ErrorFields,
  { view, statements, edits }: { readonly view: SchemaRewriter | undefined; readonly statements: ClientStatements; readonly edits: Edits },
): Buffer {
  const name = (text: string) => text.replace(SERVER_STATEMENT, (server) => statements.nameOf(server));
  if (view === undefined) return rewriteBody(message, name);
  return encodeBackendMessage({ name: 'ErrorResponse', fields: view.error({ ...fields, message: name(fields.message) }, edits) });
}

/** Header, number of columns, length of the first. */
const SHOW_VALUE_OFFSET = HEADER_BYTES + 2 + 4;

/** The row of SHOW search_path, which has one column. */
export function searchPathRowForClient(row: Buffer, view: SchemaRewriter | undefined): Buffer {
  const value = row.toString('utf8', SHOW_VALUE_OFFSET);
  const shown = Buffer.from(view?.clientSetting('search_path', value) ?? value);
  const message = Buffer.concat([row.subarray(0, SHOW_VALUE_OFFSET), shown]);
  message.writeInt32BE(message.length - 1, 1);
  message.writeInt32BE(shown.length, SHOW_VALUE_OFFSET - 4);
  return message;
}
