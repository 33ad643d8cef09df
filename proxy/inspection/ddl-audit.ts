import { listCommands, type RecordedText, recordTogether } from '../../src/catalog/audit/records.ts';
import { BoundedMap } from '../../src/runtime/bounded-map.ts';
import type { AuditedText } from './audited-ddl-text.ts';

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
