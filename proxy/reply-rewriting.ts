import { SERVER_STATEMENT } from '../src/backend/session-state.ts';
import { decodeErrorFields, decodeNotification, type ErrorFields, encodeBackendMessage } from '../src/protocol/backend.ts';
import { type FrameScanner, HEADER_BYTES } from '../src/protocol/framing.ts';
import { message as encodeMessage } from '../src/protocol/frontend.ts';
import type { SchemaRewriter } from '../src/rewriting/rewriter.ts';
import type { Edits } from '../src/syntax/edits.ts';
import type { SessionTraits } from '../src/syntax/session-traits.ts';
import type { ClientStatements } from './client-statements.ts';
import type { SessionServices } from './session-services.ts';

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
  }: { readonly rewriter: SchemaRewriter | undefined; readonly statements: Pick<ClientStatements, 'nameOf'>; readonly edits: Edits },
): Buffer {
  const name = (text: string) => text.replace(SERVER_STATEMENT, (server) => statements.nameOf(server));
  if (rewriter === undefined) return rewriteBody(message, name);
  return encodeBackendMessage({ name: 'ErrorResponse', fields: rewriter.error({ ...fields, message: name(fields.message) }, edits) });
}

/** A longer row is forwarded as it is: it would be held in memory. */
export const SHOWN_ROW_MAX_BYTES = 131_072;

/** Rows which the client gets with other values. Stands in the reply queue beside a Query or an Execute. */
export class ShownRows {
  readonly #change: (body: Buffer) => Buffer;
  /** Of a row that has not arrived whole. */
  #parts: Buffer[] = [];

  /** @param change makes a whole message of the body of a DataRow */
  constructor(change: (body: Buffer) => Buffer) {
    this.#change = change;
  }

  /** @returns the row for the client; undefined: its end has not arrived, and {@link add} gets the rest */
  add({ buffer, start, end, last }: FrameScanner): Buffer | undefined {
    const part = buffer.subarray(start, end);
    if (!last) {
      this.#parts.push(Buffer.from(part));
      return undefined;
    }
    const row = this.#parts.length === 0 ? part : Buffer.concat([...this.#parts, part]);
    this.#parts = [];
    return this.#change(row.subarray(HEADER_BYTES));
  }
}

/** @returns undefined if the client gets the rows as they are */
export function shownRows(
  { rewriter }: Pick<SessionServices, 'rewriter'>,
  shows: NonNullable<SessionTraits['shows']>,
): ShownRows | undefined {
  return rewriter && new ShownRows(rewriter.rows(shows));
}

/** A whole message with another body; `change` sees the body as Latin-1, so that bytes stay as they are. */
function rewriteBody(original: Buffer, change: (body: string) => string): Buffer {
  return encodeMessage(original[0] ?? 0, Buffer.from(change(original.toString('latin1', 5)), 'latin1'));
}
