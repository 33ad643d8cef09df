import { LatencyBaseline, StatementLatency } from '../../src/backend/latency.ts';
import type { ServerStatement } from '../../src/backend/prepared-statements.ts';
import { mayShare } from '../../src/multiplex/shareable-sql.ts';
import { stringEnd } from '../../src/protocol/body.ts';
import { BoundedMap } from '../../src/runtime/bounded-map.ts';
import { NO_TRAITS, traitsOf } from '../inspection/sql-traits.ts';

const TEXTS_MAX = 1_000;
const TEXT_MAX_CHARACTERS = 2_048;

/** How long the statements of an organization take, of those that may share a session's pipeline with others. */
export class LatencyTable {
  readonly baseline = new LatencyBaseline();
  readonly #ofTexts = new BoundedMap<string, StatementLatency | null>({ maxEntries: TEXTS_MAX });
  readonly #recent: ({ readonly text: string; readonly latency: StatementLatency | undefined } | undefined)[] = new Array(RECENT).fill(
    undefined,
  );

  /** @returns undefined for what may not share */
  ofStatement(statement: ServerStatement): StatementLatency | undefined {
    if (statement.latency === undefined) {
      const { definition } = statement;
      const text = definition.toString('latin1', 0, stringEnd(definition, 0, definition.length));
      statement.latency = mayShare(text) ? new StatementLatency() : null;
    }
    return statement.latency ?? undefined;
  }

  /** Texts that differ in their literals only are one. @returns undefined for what may not share */
  ofText(text: string): StatementLatency | undefined {
    if (text.length > TEXT_MAX_CHARACTERS) return undefined;
    // One request is looked up several times on its way.
    const slot = slotOf(text);
    const recent = this.#recent[slot];
    if (recent?.text === text) return recent.latency;
    const latency = this.#lookUp(text);
    this.#recent[slot] = { text, latency };
    return latency;
  }

  #lookUp(text: string): StatementLatency | undefined {
    if (text.includes('\\') || traitsOf(text) !== NO_TRAITS) return undefined;
    const key = text.replace(LITERAL, '$1?');
    let latency = this.#ofTexts.get(key);
    if (latency === undefined) {
      latency = mayShare(text) ? new StatementLatency() : null;
      this.#ofTexts.set(key, latency);
    }
    return latency ?? undefined;
  }
}

/** Texts that differ in their literals differ at the end more often than at the beginning. */
function slotOf(text: string): number {
  let slot = text.length;
  for (let i = Math.max(0, text.length - SLOT_CHARACTERS); i < text.length; i += 1) slot = (31 * slot + text.charCodeAt(i)) % RECENT;
  return slot;
}

const RECENT = 128;
const SLOT_CHARACTERS = 8;

/** Or a name in quotes, in which no literal begins: texts that look the same without their literals are to be of the same kind. */
const LITERAL = /("[^"]*")|'[^']*'|\b\d+\b/g;
