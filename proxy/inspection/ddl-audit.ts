import { listCommands, type RecordedText, recordTogether } from '../../src/catalog/audit/entries/statement-record.ts';
import { BoundedMap } from '../../src/runtime/bounded-map.ts';
import { objectChanges } from '../../src/syntax/traits/object-changes.ts';
import { type AuditedText, auditedText, PassingAuditedText } from './audited-text.ts';

/** Statements sent together up to a Query or Sync that changed, or tried to change, objects or roles. */
export interface WatchedBatch extends RecordedText {
  /** The command tags, without counts; absent when nothing completed. */
  readonly command?: string;
  /** SQLSTATE of the error that ended the batch. */
  readonly sqlstate?: string;
  readonly durationMs: number;
}

const MAX_TEXTS = 100;
/** Each of them takes more than a megabyte of the server's memory. */
const MAX_OVERSIZED = 1_000;
/** Of a statement's name the server looks at no more bytes. @see https://www.postgresql.org/docs/current/limits.html NAMEDATALEN */
const NAME_BYTES_MAX = 63;

/** A batch on its way, of which the text is worth keeping. */
export class Batch {
  readonly #texts: ReadonlySet<AuditedText>;
  readonly #startedAt = performance.now();
  readonly #tags = new Set<string>();
  #isTold = false;
  sqlstate: string | undefined;

  constructor(texts: ReadonlySet<AuditedText>) {
    this.#texts = texts;
  }

  /** Some text in it speaks of objects or roles; of a long one that may be known only once it has passed. */
  get isWatched(): boolean {
    for (const { isWatched } of this.#texts) if (isWatched) return true;
    return false;
  }

  completed(tag: string): void {
    const name = tag.replace(COUNTS, '');
    this.#tags.add(name);
    this.#isTold ||= WATCHED_TAG.test(name) || (QUERY_TAG.test(name) && this.#createsFromQuery);
  }

  /** @returns undefined for text that only looked like it, and ran well, or was not seen whole, and failed */
  end(): WatchedBatch | undefined {
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

/** Tags of statements about objects and roles, and of blocks, which may run any. */
const WATCHED_TAG = /^(?:CREATE|ALTER|DROP|GRANT|REVOKE|REASSIGN|TRUNCATE|COMMENT|SECURITY LABEL|IMPORT|DO)\b/;
/** Of what may make a table or view from a query. */
const QUERY_TAG = /^(?:SELECT|EXPLAIN)$/;
const COUNTS = /( \d+)+$/;

/** Hears of each finished batch that is worth an audit entry. */
export interface WatchListener {
  watched(batch: WatchedBatch): void;
}

/** Follows a wire session's statements and tells of those that belong in the audit: DDL and role statements. */
export class DdlAudit {
  readonly #listener: WatchListener;
  /** Most batches have none. */
  #texts: Set<AuditedText> | undefined;
  #passing: PassingAuditedText | undefined;
  /** Texts too long to be kept, by the names under which the server has them. */
  #oversized: BoundedMap<string, AuditedText> | undefined;

  constructor(listener: WatchListener) {
    this.#listener = listener;
  }

  /**
   * @param text as Latin-1
   * @param isWhole there is no more of it; else the rest goes {@link by}
   * @returns the text, if it may change objects or roles, for {@link again}
   */
  statement(text: string, isWhole: boolean): AuditedText | undefined {
    this.#passing = isWhole ? undefined : new PassingAuditedText(text);
    const changes = this.#passing ?? objectChanges(text);
    if (changes === undefined) return undefined;
    const audited = this.#passing ?? auditedText(text, changes);
    this.again(audited);
    return audited;
  }

  /** A statement that was seen before is to be run. */
  again(text: AuditedText): void {
    this.#texts ??= new Set();
    if (this.#texts.size < MAX_TEXTS) this.#texts.add(text);
  }

  /** The server has a text that is too long to be kept under this name. @param name as Latin-1 */
  oversized(name: string, text: AuditedText): void {
    this.#oversized ??= new BoundedMap({ maxEntries: MAX_OVERSIZED });
    this.#oversized.set(name.slice(0, NAME_BYTES_MAX), text);
  }

  /** What the server has under a name is to be run. @param name as Latin-1 @returns whether it may change objects or roles */
  oversizedAgain(name: string): boolean {
    const text = this.#oversized?.get(name.slice(0, NAME_BYTES_MAX));
    if (text !== undefined) this.again(text);
    return text?.isWatched === true;
  }

  get isPassing(): boolean {
    return this.#passing !== undefined;
  }

  /** More of a text that has not come whole. @param piece as Latin-1 @returns whether by now it may change objects or roles */
  by(piece: string): boolean {
    this.#passing?.add(piece);
    return this.#passing?.isWatched === true;
  }

  /** There is no more of it. */
  passed(): void {
    this.#passing = undefined;
  }

  /** The texts up to here go together. @returns undefined when there is nothing to follow */
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
