import { PostgresError } from '../../protocol/backend.ts';
import type { Edit } from '../../router/schema-rewriting/edits/edits.ts';
import { LARGE_SQL_BYTES } from '../../router/schema-rewriting/rewrite.ts';
import { schemaRewriterOf } from '../../router/schema-rewriting/schema-rewriter.ts';
import type { Tenant } from '../../router/tenant.ts';
import { TimeSlices } from '../../runtime/event-loop.ts';
import type { Warning } from './notices.ts';
import type { Completion } from './pipeline.ts';

export interface Rewritten {
  readonly sql: string;
  /** What was replaced, for the positions in errors. */
  readonly edits: readonly Edit[];
}

interface LargeText extends Rewritten {
  readonly original: string;
}

const NO_EDITS: readonly Edit[] = [];

/**
 * The caller's SQL as it has to be where the organization's `public` is a schema of another name, and what Postgres says
 * of it in the caller's words. In the `database` placement everything stays as it is.
 */
export class RewrittenSql {
  readonly #view: ReturnType<typeof schemaRewriterOf>;
  /** Long texts that have been rewritten bit by bit, in the order in which they will be asked for. */
  #large: LargeText[] = [];

  constructor(tenant: Tenant) {
    this.#view = schemaRewriterOf(tenant);
  }

  sql(text: string): Rewritten {
    if (this.#view === undefined) return { sql: text, edits: NO_EDITS };
    return this.#found(text) ?? this.#view.rewrite(text);
  }

  /** Not by a map: V8 tells long texts of one length apart by comparing them. The one in turn is the very same, as a rule. */
  #found(text: string): Rewritten | undefined {
    if (text.length < LARGE_SQL_BYTES) return undefined;
    const at = this.#large.findIndex(({ original }) => original === text);
    if (at < 0) return undefined;
    const placed = this.#large[at];
    // What is asked for again is the next to be asked for.
    if (at > 0) this.#large = [...this.#large.slice(at), ...this.#large.slice(0, at)];
    return placed;
  }

  /** @returns what to wait for before long texts among these can be had; undefined when there are none */
  prepare(texts: readonly string[]): Promise<void> | undefined {
    const view = this.#view;
    if (view === undefined) return undefined;
    const large = texts.filter((text) => text.length >= LARGE_SQL_BYTES);
    if (large.length === 0) return undefined;
    return (async () => {
      const rewritten: LargeText[] = [];
      const slices = new TimeSlices();
      for (const original of large) {
        const { sql, edits } = await view.rewriteLarge(Buffer.from(original));
        await slices.pause();
        rewritten.push({ original, sql: edits.length === 0 ? original : sql.toString(), edits });
        await slices.pause();
      }
      this.#large = [...rewritten, ...this.#large];
    })();
  }

  /** How a request ended. @param edits of its statement */
  ended(ended: Completion | Error, edits: readonly Edit[]): Completion | Error {
    if (this.#view === undefined) return ended;
    if (ended instanceof Error) return this.error(ended, edits);
    return { ...ended, warnings: this.warnings(ended.warnings) };
  }

  error<T>(error: T, edits: readonly Edit[] = NO_EDITS): T | PostgresError {
    if (this.#view === undefined || !(error instanceof PostgresError)) return error;
    return new PostgresError(this.#view.error(error.fields, edits));
  }

  warnings(warnings: readonly Warning[]): readonly Warning[] {
    const view = this.#view;
    if (view === undefined) return warnings;
    return warnings.map((warning) => {
      const { message, detail, hint, where } = view.error(warning);
      const notes = Object.fromEntries(Object.entries({ detail, hint, where }).filter(([, value]) => value !== undefined));
      return { severity: warning.severity, code: warning.code, message, ...notes };
    });
  }
}
