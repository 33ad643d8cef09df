import { NO_TRAITS, type SessionTraits, sessionTraitsOf } from '../../src/syntax/session-traits.ts';
import type { AuditedText, StreamedAuditedText } from './audited-ddl-text.ts';

/** Pieces overlap by this many characters, so that no keyword with its surroundings is missed between two. */
const OVERLAP = 128;
export const PIECE_BYTES = 65_536;

/** Finds the traits of a text that is too long to be inspected before it is sent, piece by piece while it is forwarded. */
export class StreamedTraits {
  #end: string;

  /** @param beginning the part that has been inspected already */
  constructor(beginning = '') {
    this.#end = beginning.slice(-OVERLAP);
  }

  /** The traits found in the text's next bytes. */
  *traitsIn(buffer: Buffer, start: number, end: number): Iterable<SessionTraits> {
    for (const piece of piecesOf(buffer, start, end)) {
      const text = this.#end + piece;
      this.#end = text.slice(-OVERLAP);
      const traits = sessionTraitsOf(text);
      if (traits !== NO_TRAITS) yield traits;
    }
  }
}

/** The pieces of a text, as Latin-1. */
export function* piecesOf(buffer: Buffer, start: number, end: number): Iterable<string> {
  for (let at = start; at < end; at += PIECE_BYTES) yield buffer.toString('latin1', at, Math.min(end, at + PIECE_BYTES));
}

/** A text that is too long to be inspected at once. It is inspected before it is sent if it has to be rewritten, else while it is forwarded. */
export type LargeText = RewrittenText | StreamedText;

export class StreamedText {
  readonly traits: StreamedTraits;
  /** Undefined if the audit log needs no more of it. */
  readonly audited: StreamedAuditedText | undefined;

  /** @param beginning the part that has been inspected already */
  constructor(beginning: string, audited: StreamedAuditedText | undefined) {
    this.traits = new StreamedTraits(beginning);
    this.audited = audited;
  }
}

/** The result of inspecting a text that is rewritten before it is sent. */
export interface RewrittenText {
  readonly traits: readonly SessionTraits[];
  readonly audited: AuditedText;
  /** The beginning of the text that the client has sent, as Latin-1. */
  readonly beginning: string;
}
