import { PostgresError, withOnlyValue } from '../../protocol/backend.ts';
import { HEADER_BYTES } from '../../protocol/framing.ts';
import { LARGE_SQL_BYTES, type RewriteOptions } from '../../rewriting/rewrite-sql.ts';
import { schemaRewriterOf } from '../../rewriting/rewriter.ts';
import type { Tenant } from '../../router/lease.ts';
import { TimeSlices } from '../../runtime/event-loop.ts';
import { type Edits, NO_EDITS } from '../../syntax/edits.ts';
import { isExplain } from '../../syntax/statements.ts';
import type { Completion, Replies } from './replies-and-completion.ts';
import type { Warning } from './warnings.ts';

export interface Rewritten {
  readonly sql: string;
  /** The replacements, from which positions in errors are computed. */
  readonly edits: Edits;
}

const WITH_ESCAPES: RewriteOptions = { standardConformingStrings: false };

function optionsOf(areStringsStandard: boolean): RewriteOptions | undefined {
  return areStringsStandard ? undefined : WITH_ESCAPES;
}

interface LargeText extends Rewritten {
  readonly original: string;
  /** The setting with which it has been read. */
  readonly areStringsStandard: boolean;
}

const DONE = Promise.resolve();

/**
 * Rewrites a client's SQL for the `schema` placement, where the organization's `public` is a schema of another name, and rewrites
 * Postgres' errors back. In the `database` placement both stay as they are.
 */
export class SessionRewriter {
  readonly #rewriter: ReturnType<typeof schemaRewriterOf>;
  /** Long texts that have been rewritten in time slices, in the order in which they will be used. */
  #large: LargeText[] = [];

  constructor(tenant: Tenant) {
    this.#rewriter = schemaRewriterOf(tenant);
  }

  /** @param areStringsStandard the value of `standard_conforming_strings` with which the server will read the text */
  sql(text: string, areStringsStandard: boolean): Rewritten {
    if (this.#rewriter === undefined) return { sql: text, edits: NO_EDITS };
    return this.#findLarge(text, areStringsStandard) ?? this.#rewriter.rewrite(text, optionsOf(areStringsStandard));
  }

  /** Whether the rewritten text depends on `standard_conforming_strings`. */
  dependsOnStrings(text: string): boolean {
    return this.#rewriter?.dependsOnStrings(text) === true;
  }

  /** Searches an array, because in a Map V8 would hash long strings by their length. Mostly the first entry is the same string. */
  #findLarge(text: string, areStringsStandard: boolean): Rewritten | undefined {
    if (text.length < LARGE_SQL_BYTES) return undefined;
    const at = this.#large.findIndex((large) => large.original === text && large.areStringsStandard === areStringsStandard);
    if (at < 0) return undefined;
    const found = this.#large[at];
    // The entry comes first from now on, because its text is likely to be used again next.
    if (at > 0) this.#large = [...this.#large.slice(at), ...this.#large.slice(0, at)];
    return found;
  }

  /** @returns a promise to await before long texts among these are used; undefined when there are none */
  rewriteAhead(texts: readonly string[], areStringsStandard: boolean): Promise<void> | undefined {
    const rewriter = this.#rewriter;
    if (rewriter === undefined) return undefined;
    const large = texts.filter((text) => text.length >= LARGE_SQL_BYTES && this.#findLarge(text, areStringsStandard) === undefined);
    if (large.length === 0) return undefined;
    return (async () => {
      const rewritten: LargeText[] = [];
      const slices = new TimeSlices();
      for (const original of large) {
        const { sql, edits } = await rewriter.rewriteLarge(Buffer.from(original), optionsOf(areStringsStandard));
        await slices.pause();
        rewritten.push({ original, areStringsStandard, sql: edits.length === 0 ? original : sql.toString(), edits });
        await slices.pause();
      }
      this.#large = [...rewritten, ...this.#large];
    })();
  }

  /** @returns the outcome of a request, in the words of the client. @param edits the edits of its statement */
  outcome(outcome: Completion | Error, edits: Edits): Completion | Error {
    if (this.#rewriter === undefined) return outcome;
    if (outcome instanceof Error) return this.error(outcome, edits);
    return { ...outcome, warnings: this.warnings(outcome.warnings) };
  }

  /** @returns what gets the rows of an EXPLAIN in the words of the client; for any other statement, the same */
  replies(sql: string, replies: Replies): Replies {
    if (this.#rewriter === undefined || !isExplain(sql)) return replies;
    const change = this.#rewriter.explained();
    return {
      parameters: (...described) => replies.parameters?.(...described),
      fields: (...described) => replies.fields?.(...described),
      bound: () => replies.bound?.(),
      row: (source, start, end) => {
        const row = withOnlyValue(source.subarray(start, end), change);
        replies.row?.(row, HEADER_BYTES, row.length);
      },
      ...(replies.largeRow && { largeRow: (...row) => replies.largeRow?.(...row) ?? DONE }),
      interrupt: () => replies.interrupt?.(),
    };
  }

  error<T>(error: T, edits: Edits = NO_EDITS): T | PostgresError {
    if (this.#rewriter === undefined || !(error instanceof PostgresError)) return error;
    return new PostgresError(this.#rewriter.error(error.fields, edits));
  }

  warnings(warnings: readonly Warning[]): readonly Warning[] {
    const rewriter = this.#rewriter;
    if (rewriter === undefined) return warnings;
    return warnings.map((warning) => {
      const { message, detail, hint, where } = rewriter.error(warning);
      const notes = Object.fromEntries(Object.entries({ detail, hint, where }).filter(([, value]) => value !== undefined));
      return { severity: warning.severity, code: warning.code, message, ...notes };
    });
  }
}
