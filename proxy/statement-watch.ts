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
  readonly startedAt: number;
  command: string | undefined;
  sqlstate: string | undefined;
}

/** Statements about objects and roles; found in text only to know what to keep, the command tags tell what really ran. */
const WATCHED_TEXT = /\b(?:create|alter|drop|grant|revoke|reassign|truncate|comment\s+on|security\s+label|import\s+foreign)\b/i;
const WATCHED_TAG = /^(?:CREATE|ALTER|DROP|GRANT|REVOKE|REASSIGN|TRUNCATE|COMMENT|SECURITY LABEL|IMPORT)\b/;
const KEPT_CHARACTERS = 4_096;
const MAX_TEXTS = 100;

/** Hears of each finished batch that is worth an audit entry. */
export interface WatchListener {
  watched(batch: WatchedBatch): void;
}

/** Follows a wire session's statements and tells of those that belong in the audit: DDL and role statements. */
export class StatementWatch {
  readonly #listener: WatchListener;
  #texts: string[] = [];

  constructor(listener: WatchListener) {
    this.#listener = listener;
  }

  /** @param text as Latin-1 @returns whether it may change objects or roles */
  statement(text: string): boolean {
    if (!WATCHED_TEXT.test(text)) return false;
    if (this.#texts.length < MAX_TEXTS) this.#texts.push(Buffer.from(text.slice(0, KEPT_CHARACTERS), 'latin1').toString('utf8'));
    return true;
  }

  /** The texts up to here go together. @returns undefined when there is nothing to follow */
  take(): Batch | undefined {
    if (this.#texts.length === 0) return undefined;
    const sql = this.#texts.join(';\n');
    this.#texts = [];
    return { sql, startedAt: performance.now(), command: undefined, sqlstate: undefined };
  }

  completed(batch: Batch, tag: string): void {
    if (batch.command === undefined && WATCHED_TAG.test(tag)) batch.command = tag;
  }

  /** Text that only looked like it, e.g. in a literal, and ran well, is no DDL. */
  done({ sql, command, sqlstate, startedAt }: Batch): void {
    if (command === undefined && sqlstate === undefined) return;
    this.#listener.watched({
      sql,
      durationMs: performance.now() - startedAt,
      ...(command === undefined ? {} : { command }),
      ...(sqlstate === undefined ? {} : { sqlstate }),
    });
  }
}
