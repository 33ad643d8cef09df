import { PassingRecord, type RecordedText, recordText } from '../../src/catalog/audit/entries/statement-record.ts';
import { type ObjectChanges, objectChangesInPiece } from '../../src/syntax/traits/object-changes.ts';

/**
 * A text that may change objects or roles, as the audit log will have it. That it may is found only to know what to keep:
 * the command tags tell what really ran.
 */
export interface AuditedText extends ObjectChanges {
  readonly recorded: RecordedText;
}

/** @param text whole, as Latin-1 */
export function auditedText(text: string, changes: ObjectChanges): AuditedText {
  return { ...changes, recorded: recordText(Buffer.from(text, 'latin1').toString('utf8')) };
}

/** What has to be seen together for a word to be found. */
const OVERLAP = 16;

/** A text too long to be looked at whole before it is sent. Its words are found as it goes by, and taken for what they may mean. */
export class PassingAuditedText implements AuditedText {
  isWatched = false;
  createsFromQuery = false;
  #record = new PassingRecord();
  #end = '';
  /** Set when all of it has passed. */
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

  /** It may be kept for as long as its session: without what has been looked at beyond the beginning. */
  #finish(): void {
    this.#whole = this.#record.recorded;
    this.#record = new PassingRecord();
    this.#end = '';
  }
}
