import { type RecordedText, StreamedRecord } from '../../src/catalog/audit/records.ts';
import { type ObjectChanges, objectChangesInPiece } from '../../src/syntax/session-traits.ts';

/**
 * A text that may change objects or roles, as the audit log records it. Inspection only decides which texts to keep: the
 * command tags tell what really ran.
 */
export interface AuditedText extends ObjectChanges {
  readonly recorded: RecordedText;
}

/** Pieces overlap by this many characters, so that no keyword is missed between two. */
const OVERLAP = 16;

/** A text that is too long to be inspected before it is sent. Its keywords are found piece by piece while it is forwarded. */
export class StreamedAuditedText implements AuditedText {
  isWatched = false;
  createsFromQuery = false;
  #record = new StreamedRecord();
  #end = '';
  /** The record, once the whole text has been forwarded. */
  #whole: RecordedText | undefined;

  /** @param text its beginning, as Latin-1 */
  constructor(text: string) {
    this.add(text);
  }

  get recorded(): RecordedText {
    return this.#whole ?? this.#record.recorded;
  }

  /** @param piece of the message, as Latin-1: a NUL ends the text */
  add(piece: string): void {
    if (this.#whole !== undefined) return;
    const nul = piece.indexOf('\0');
    const text = nul < 0 ? piece : piece.slice(0, nul);
    this.#record.add(text);
    const seen = this.#end + text;
    this.#end = seen.slice(-OVERLAP);
    const { createsFromQuery, isWatched } = objectChangesInPiece(seen);
    this.createsFromQuery ||= createsFromQuery;
    this.isWatched ||= isWatched;
    if (nul >= 0) this.#finish();
  }

  /** Frees what only the inspection needed, because the text may be kept as long as its session. */
  #finish(): void {
    this.#whole = this.#record.recorded;
    this.#record = new StreamedRecord();
    this.#end = '';
  }
}
