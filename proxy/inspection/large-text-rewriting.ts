import { type FrameScanner, HEADER_BYTES, stringEnd } from '../../src/protocol/framing.ts';
import { FrontendType, message } from '../../src/protocol/frontend.ts';
import { LARGE_SQL_BYTES } from '../../src/rewriting/rewrite-sql.ts';
import { TimeSlices } from '../../src/runtime/event-loop.ts';
import type { SessionTraits } from '../../src/syntax/session-traits.ts';
import { Reason } from '../relay/input-gate.ts';
import { endByFailure } from '../relay/session-end.ts';
import type { WireSession } from '../relay/wire-session.ts';
import { StreamedAuditedText } from './audited-ddl-text.ts';
import { PIECE_BYTES, piecesOf, type RewrittenText, StreamedTraits } from './large-text.ts';

const BEGINNING_BYTES = 8_192;

/** Whether the scanner's message, which is rewritten, has a text so long that rewriting it at once would delay other sessions. */
export function isLargeText({ largeText }: WireSession, { first, type, length, last }: FrameScanner): boolean {
  if (!first || length < LARGE_SQL_BYTES || largeText !== undefined) return false;
  return last && (type === FrontendType.Query || type === FrontendType.Parse);
}

/** Rewrites the message in time slices. It and the input behind it wait meanwhile. */
export function rewriteLarge(session: WireSession, scanner: FrameScanner): void {
  const { client, services, gate, events } = session;
  const size = scanner.end - scanner.start;
  const input = scanner.takeMessage();
  const message = input.subarray(0, size);
  gate.holdFirst(input.subarray(size), Reason.rewriting);
  gate.holdFirst(message, Reason.rewriting);
  client.pause();
  const options = { standardConformingStrings: session.standardConformingStrings };
  const rewriting = rewrittenMessage(message, (sql) => services.rewriter?.rewriteLarge(sql, options));
  Promise.all([rewriting, inspectInSlices(message)]).then(
    ([rewritten, inspected]) => {
      if (session.isOver) return;
      gate.replaceFirst(rewritten);
      session.largeText = inspected;
      events.resumeInput();
    },
    (cause: unknown) => endByFailure(session, cause),
  );
}

/** A Query or Parse message with its text rewritten. */
async function rewrittenMessage(
  original: Buffer,
  rewrite: (sql: Buffer) => Promise<{ readonly sql: Buffer }> | undefined,
): Promise<Buffer> {
  const start = original[0] === FrontendType.Parse ? original.indexOf(0, 5) + 1 : 5;
  const end = original.indexOf(0, start);
  const rewritten = await rewrite(original.subarray(start, end));
  return message(original[0] ?? 0, original.subarray(5, start), rewritten?.sql ?? original.subarray(start, end), original.subarray(end));
}

/** Inspects the text of a complete Query or Parse in time slices. */
async function inspectInSlices(message: Buffer): Promise<RewrittenText> {
  const traits: SessionTraits[] = [];
  const slices = new TimeSlices();
  const passing = new StreamedTraits();
  const audited = new StreamedAuditedText('');
  const isQuery = message[0] === FrontendType.Query;
  const start = isQuery ? HEADER_BYTES : stringEnd(message, HEADER_BYTES, message.length) + 1;
  for (let at = start; at < message.length; at += PIECE_BYTES) {
    const end = Math.min(message.length, at + PIECE_BYTES);
    traits.push(...passing.traitsIn(message, at, end));
    for (const piece of piecesOf(message, at, end)) audited.add(piece);
    await slices.pause();
  }
  return { traits, audited, beginning: message.toString('latin1', start, Math.min(start + BEGINNING_BYTES, message.length)) };
}
