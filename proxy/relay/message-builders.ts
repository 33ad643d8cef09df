import { FrontendType } from '../../src/protocol/frontend.ts';
import { message } from '../../src/protocol/frontend-encoder.ts';

export const PARSE_COMPLETE = Buffer.from([0x31, 0, 0, 0, 4]);
export const CLOSE_COMPLETE = Buffer.from([0x33, 0, 0, 0, 4]);
export const READY_IDLE = Buffer.from([0x5a, 0, 0, 0, 5, 0x49]);

/** A whole message with another body; `change` sees the body as Latin-1, so that bytes stay as they are. */
export function rewriteBody(original: Buffer, change: (body: string) => string): Buffer {
  return message(original[0] ?? 0, Buffer.from(change(original.toString('latin1', 5)), 'latin1'));
}

/** A Query or Parse message with its text rewritten. */
export async function rewrittenMessage(
  original: Buffer,
  rewrite: (sql: Buffer) => Promise<{ readonly sql: Buffer }> | undefined,
): Promise<Buffer> {
  const start = original[0] === FrontendType.Parse ? original.indexOf(0, 5) + 1 : 5;
  const end = original.indexOf(0, start);
  const rewritten = await rewrite(original.subarray(start, end));
  return message(original[0] ?? 0, original.subarray(5, start), rewritten?.sql ?? original.subarray(start, end), original.subarray(end));
}
