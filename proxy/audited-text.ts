import { listCommands, type RecordedText, recordTogether, StreamedRecord } from '../src/catalog/audit/records.ts';
import { BoundedMap } from '../src/runtime/bounded-map.ts';
import { NO_TRAITS, type ObjectChanges, objectChangesInPiece, type SessionTraits, sessionTraitsOf } from '../src/syntax/session-traits.ts';

/** Statements sent together up to a Query or Sync that changed, or tried to change, objects or roles. */
export interface AuditedBatch extends RecordedText {
  /** The command tags, without counts; absent when nothing completed. */
  readonly command?: string;
  /** SQLSTATE of the error that ended the batch. */
  readonly sqlstate?: string;
  readonly durationMs: number;
}

const MAX_TEXTS = 100;
/** Each of these statements takes more than a megabyte of the server's memory. */
const MAX_OVERSIZED = 1_000;
/** The server truncates longer names. @see https://www.postgresql.org/docs/current/limits.html NAMEDATALEN */
const NAME_BYTES_MAX = 63;

/** An unanswered batch whose texts may belong in the audit log. */
export class Batch {
  readonly #texts: ReadonlySet<AuditedText>;
  readonly #startedAt = performance.now();
  readonly #tags = new Set<string>();
  #isTold = false;
  sqlstate: string | undefined;

  constructor(texts: ReadonlySet<AuditedText>) {
    this.#texts = texts;
  }

  /** Whether a text mentions objects or roles. For a long text this may be known only after it has been forwarded. */
  get isWatched(): boolean {
    for (const { isWatched } of this.#texts) if (isWatched) return true;
    return false;
  }

  completed(tag: string): void {
    const name = tag.replace(COUNTS, '');
    this.#tags.add(name);
    this.#isTold ||= WATCHED_TAG.test(name) || (QUERY_TAG.test(name) && this.#createsFromQuery);
  }

  /** @returns undefined if nothing was changed, and no failed text is known to have tried it */
  end(): AuditedBatch | undefined {
    const { sqlstate } = this;
    if (!this.#isTold && (sqlstate === undefined || !this.isWatched)) return undefined;
    const command = listCommands(this.#tags);
    return {
      ...this.#recorded(),
      durationMs: performance.now() - this.#startedAt,
      ...(command === undefined ? {} : { command }),
      ...(sqlstate === undefined ? {} : { sqlstate }),
    };
  }

  get #createsFromQuery(): boolean {
    for (const { createsFromQuery } of this.#texts) if (createsFromQuery) return true;
    return false;
  }

  /** The same text may have come more than once. */
  #recorded(): RecordedText {
    const texts = new Map<string, RecordedText>();
    for (const { recorded } of this.#texts) texts.set(recorded.sqlHash, recorded);
    return recordTogether([...texts.values()]);
  }
}

/** Command tags of statements that change objects or roles, and of DO blocks, which may run any statement. */
const WATCHED_TAG = /^(?:CREATE|ALTER|DROP|GRANT|REVOKE|REASSIGN|TRUNCATE|COMMENT|SECURITY LABEL|IMPORT|DO)\b/;
/** Command tags of statements that may create a table or view from a query. */
const QUERY_TAG = /^(?:SELECT|EXPLAIN)$/;
const COUNTS = /(?: \d{1,20}){1,2}$/;

/** Is told of each finished batch that needs an audit entry. */
export interface AuditListener {
  watched(batch: AuditedBatch): void;
}

/** Finds those of a wire session's statements that belong in the audit log: DDL and role statements. */
export class DdlAudit {
  readonly #listener: AuditListener;
  /** Undefined for most batches. */
  #texts: Set<AuditedText> | undefined;
  /** Records of statements that are too long to keep, by their names on the server. */
  #oversized: BoundedMap<string, AuditedText> | undefined;

  constructor(listener: AuditListener) {
    this.#listener = listener;
  }

  /** A statement runs that may change objects or roles. */
  runs(text: AuditedText): void {
    this.#texts ??= new Set();
    if (this.#texts.size < MAX_TEXTS) this.#texts.add(text);
  }

  /** A statement that is too long to keep was prepared on the server. @param name as Latin-1 */
  oversized(name: string, text: AuditedText): void {
    this.#oversized ??= new BoundedMap({ maxEntries: MAX_OVERSIZED });
    this.#oversized.set(name.slice(0, NAME_BYTES_MAX), text);
  }

  /** The statement with this name on the server runs. @param name as Latin-1 @returns whether it may change objects or roles */
  oversizedAgain(name: string): boolean {
    const text = this.#oversized?.get(name.slice(0, NAME_BYTES_MAX));
    if (text !== undefined) this.runs(text);
    return text?.isWatched === true;
  }

  /** Ends the batch. @returns undefined when none of its texts belong in the audit log */
  take(): Batch | undefined {
    if (this.#texts === undefined) return undefined;
    const batch = new Batch(this.#texts);
    this.#texts = undefined;
    return batch;
  }

  done(batch: Batch): void {
    const ended = batch.end();
    if (ended !== undefined) this.#listener.watched(ended);
  }
}

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

/** The largest definition of a prepared statement that is kept, and the longest text that is inspected as a whole. */
export const MAX_KEPT_DEFINITION_BYTES = 1_048_576;
/** The longest statement that can be rewritten for the `schema` placement, because it is held in memory as a whole. */
export const MAX_REWRITTEN_BYTES = 32 * 1024 * 1024;

/** Pieces overlap by this many characters, so that no keyword with its surroundings is missed between two. */
const PIECE_OVERLAP = 128;
export const PIECE_BYTES = 65_536;

/** Finds the traits of a text that is too long to be inspected before it is sent, piece by piece while it is forwarded. */
export class StreamedTraits {
  #end: string;

  /** @param beginning the part that has been inspected already */
  constructor(beginning = '') {
    this.#end = beginning.slice(-PIECE_OVERLAP);
  }

  /** The traits found in the text's next bytes. */
  *traitsIn(buffer: Buffer, start: number, end: number): Iterable<SessionTraits> {
    for (const piece of piecesOf(buffer, start, end)) {
      const text = this.#end + piece;
      this.#end = text.slice(-PIECE_OVERLAP);
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
