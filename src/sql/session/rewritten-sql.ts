import { PostgresError } from '../../protocol/backend.ts';
import type { Edits } from '../../router/schema-rewriting/edits/edits.ts';
import { LARGE_SQL_BYTES } from '../../router/schema-rewriting/rewrite.ts';
import { schemaRewriterOf } from '../../router/schema-rewriting/schema-rewriter.ts';
import type { Tenant } from '../../router/tenant.ts';
import { TimeSlices } from '../../runtime/event-loop.ts';
import type { Warning } from './notices.ts';
import type { Completion } from './pipeline.ts';

export interface Rewritten {
  readonly sql: string;
  /** The replacements, for the positions in errors. */
  readonly edits: Edits;
}

interface LargeText extends Rewritten {
  readonly original: string;
}

const NO_EDITS: Edits = [];

/**
 * Rewrites a client's SQL for the `schema` placement, where the organization's `public` is a schema of another name, and rewrites
 * Postgres' errors back. In the `database` placement both stay as they are.
 */
export class RewrittenSql {
  readonly #view: ReturnType<typeof schemaRewriterOf>;
  /** Long texts that have been rewritten in time slices, in the order in which they will be used. */
  #large: LargeText[] = [];

  constructor(tenant: Tenant) {
    this.#view = schemaRewriterOf(tenant);
  }

  sql(text: string): Rewritten {
    if (this.#view === undefined) return { sql: text, edits: NO_EDITS };
    return this.#found(text) ?? this.#view.rewrite(text);
  }

  /** An array and not a Map, because V8 hashes long strings by their length. Mostly the first one is the same string. */
  #found(text: string): Rewritten | undefined {
    if (text.length < LARGE_SQL_BYTES) return undefined;
    const at = this.#large.findIndex(({ original }) => original === text);
    if (at < 0) return undefined;
    const placed = this.#large[at];
    // A text that is used again is the next one to be used.
    if (at > 0) this.#large = [...this.#large.slice(at), ...this.#large.slice(0, at)];
    return placed;
  }

  /** @returns a promise to await before long texts among these are used; undefined when there are none */
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

  /** The outcome of a request, for the client. @param edits the edits of its statement */
  ended(ended: Completion | Error, edits: Edits): Completion | Error {
    if (this.#view === undefined) return ended;
    if (ended instanceof Error) return this.error(ended, edits);
    return { ...ended, warnings: this.warnings(ended.warnings) };
  }

  error<T>(error: T, edits: Edits = NO_EDITS): T | PostgresError {
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
