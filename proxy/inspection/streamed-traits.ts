import { stringEnd } from '../../src/protocol/body.ts';
import { HEADER_BYTES } from '../../src/protocol/frame.ts';
import { FrontendType } from '../../src/protocol/frontend.ts';
import { TimeSlices } from '../../src/runtime/event-loop.ts';
import { NO_TRAITS, type SqlTraits, traitsOf } from '../../src/syntax/traits/sql-traits.ts';
import { type AuditedText, PassingAuditedText } from './audited-text.ts';

/** What has to be seen together: the longest word that tells something, with what may stand around it. */
const OVERLAP = 128;
const PIECE_BYTES = 65_536;

/** A text too long to be looked at as a whole before it is sent: what else it says is found as it goes by. */
export class StreamedTraits {
  #end: string;

  /** @param beginning what has been looked at */
  constructor(beginning = '') {
    this.#end = beginning.slice(-OVERLAP);
  }

  /** What the text's next bytes say, piece by piece. */
  *say(buffer: Buffer, start: number, end: number): Iterable<SqlTraits> {
    for (const piece of piecesOf(buffer, start, end)) {
      const text = this.#end + piece;
      this.#end = text.slice(-OVERLAP);
      const traits = traitsOf(text);
      if (traits !== NO_TRAITS) yield traits;
    }
  }
}

/** As Latin-1. */
export function* piecesOf(buffer: Buffer, start: number, end: number): Iterable<string> {
  for (let at = start; at < end; at += PIECE_BYTES) yield buffer.toString('latin1', at, Math.min(end, at + PIECE_BYTES));
}

/** What is known of a text that is rewritten before it is sent. */
export interface LargeText {
  readonly traits: readonly SqlTraits[];
  readonly audited: AuditedText;
}

/** Looks at the text in a whole Query or Parse, a bit at a time. */
export async function lookInSlices(message: Buffer): Promise<LargeText> {
  const traits: SqlTraits[] = [];
  const slices = new TimeSlices();
  const passing = new StreamedTraits();
  const audited = new PassingAuditedText('');
  const isQuery = message[0] === FrontendType.Query;
  const start = isQuery ? HEADER_BYTES : stringEnd(message, HEADER_BYTES, message.length) + 1;
  for (let at = start; at < message.length; at += PIECE_BYTES) {
    const end = Math.min(message.length, at + PIECE_BYTES);
    traits.push(...passing.say(message, at, end));
    for (const piece of piecesOf(message, at, end)) audited.add(piece);
    await slices.pause();
  }
  return { traits, audited };
}
