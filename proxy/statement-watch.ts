/** Statements sent together up to a Query or Sync that changed, or tried to change, objects or roles. */
export interface WatchedBatch {
  readonly sql: string;
  /** First command tag of the kind watched; absent when none completed. */
  readonly command?: string;
  /** SQLSTATE of the error that ended the batch. */
  readonly sqlstate?: string;
  readonly durationMs: number;
}

/** A batch on its way, of which the text is worth keeping. */
export interface Batch {
  readonly sql: string;
  /** Some text in it speaks of objects or roles. */
  readonly isWatched: boolean;
  /** Of a table or view made from a query, which is told of as the query. */
  readonly makesFromQuery: boolean;
  readonly startedAt: number;
  command: string | undefined;
  sqlstate: string | undefined;
}

/** Statements about objects and roles; found in text only to know what to keep, the command tags tell what really ran. */
const WATCHED_TEXT = /\b(?:create|alter|drop|grant|revoke|reassign|truncate|comment\s+on|security\s+label|import\s+foreign)\b/i;
const WATCHED_TAG = /^(?:CREATE|ALTER|DROP|GRANT|REVOKE|REASSIGN|TRUNCATE|COMMENT|SECURITY LABEL|IMPORT)\b/;
/** What may change them and has another tag: a block, and a table or view made from a query. */
const BLOCK_TAG = 'DO';
const QUERY_TAG = /^SELECT\b/;
const MADE_FROM_QUERY = /\bcreate\s+(?:(?:global|local|temp|temporary|unlogged|materialized)\s+)*(?:table|view)\b/i;
/** @param text as Latin-1 */
export function isWatchedText(text: string): boolean {
  return WATCHED_TEXT.test(text);
}

const KEPT_CHARACTERS = 4_096;
const MAX_TEXTS = 100;

/** Hears of each finished batch that is worth an audit entry. */
export interface WatchListener {
  watched(batch: WatchedBatch): void;
}

/** Follows a wire session's statements and tells of those that belong in the audit: DDL and role statements. */
export class StatementWatch {
  readonly #listener: WatchListener;
  /** Most batches have none. */
  #texts: Set<string> | undefined;
  #isWatched = false;

  constructor(listener: WatchListener) {
    this.#listener = listener;
  }

  /**
   * @param text as Latin-1
   * @param isWhole there is no more of it
   * @returns what is kept of it, if it may change objects or roles, for {@link again}
   */
  statement(text: string, isWhole: boolean): string | undefined {
    const isWatched = isWatchedText(text);
    if (!isWatched && isWhole) return undefined;
    const kept = Buffer.from(text.slice(0, KEPT_CHARACTERS), 'latin1').toString('utf8');
    if (isWatched) this.again(kept);
    else this.#keep(kept);
    return isWatched ? kept : undefined;
  }

  /** A statement that was seen before is to be run. */
  again(kept: string): void {
    this.#isWatched = true;
    this.#keep(kept);
  }

  #keep(text: string): void {
    this.#texts ??= new Set();
    if (this.#texts.size < MAX_TEXTS) this.#texts.add(text);
  }

  /** The texts up to here go together. @returns undefined when there is nothing to follow */
  take(): Batch | undefined {
    if (this.#texts === undefined) return undefined;
    const sql = [...this.#texts].join(';\n');
    const isWatched = this.#isWatched;
    this.#texts = undefined;
    this.#isWatched = false;
    const makesFromQuery = isWatched && MADE_FROM_QUERY.test(sql);
    return { sql, isWatched, makesFromQuery, startedAt: performance.now(), command: undefined, sqlstate: undefined };
  }

  completed(batch: Batch, tag: string): void {
    const { command = '' } = batch;
    if (WATCHED_TAG.test(tag)) batch.command = WATCHED_TAG.test(command) ? command : tag;
    else if (command === '' && mayTell(tag, batch)) [batch.command] = tag.split(' ');
  }

  /** Text that only looked like it, e.g. in a literal, and ran well, is no DDL; nor is what was not seen whole, and failed. */
  done({ sql, isWatched, command, sqlstate, startedAt }: Batch): void {
    if (command === undefined && (sqlstate === undefined || !isWatched)) return;
    this.#listener.watched({
      sql,
      durationMs: performance.now() - startedAt,
      ...(command === undefined ? {} : { command }),
      ...(sqlstate === undefined ? {} : { sqlstate }),
    });
  }
}

/** Whether objects or roles may have changed when a statement completes with that tag, which does not say so. */
function mayTell(tag: string, { isWatched, makesFromQuery }: Batch): boolean {
  return (isWatched && tag === BLOCK_TAG) || (makesFromQuery && QUERY_TAG.test(tag));
}
