import { LatencyBaseline, newServerStatement, type ServerStatement, StatementLatency } from '../backend/session-state.ts';
import type { Organization } from '../catalog/organization.ts';
import { stringEnd } from '../protocol/framing.ts';
import { BoundedMap } from '../runtime/bounded-map.ts';
import { mayShare } from '../syntax/side-effects.ts';

const MAX_ENTRIES = 5_000;
const MAX_BYTES = 16 * 1024 * 1024;
/** After this many unnamed Parses of a text, it becomes a server statement. */
const SIGHTINGS = 3;

/** A text in a context: its server statement and its latency. */
interface Entry {
  statement: ServerStatement | undefined;
  sightings: number;
  /** null: the text may not share a pipeline. It is in the entry of the text without its literals, in no context. */
  latency: StatementLatency | null | undefined;
  /** The size of what is kept for it besides its text. */
  bytes: number;
  /** The registry's, when the statement was found or counted. A statement of an earlier version is no longer found. */
  schemaVersion: number;
}

/** Longer texts of Query messages share no pipeline. */
const MAX_QUERY_CHARACTERS = 2_048;

/** Command tags of statements that change tables or types, or may do so, or may hide one behind another of the same name. */
export const SCHEMA_CHANGE = /^(?:(?:ALTER|DROP|CREATE) |DO$)/;

/** How often the defaults of any organization's sessions have changed. */
let defaultsChanged = 0;

/** A registry is kept as long as the organization's credential is. */
const registries = new WeakMap<Organization, StatementRegistry>();

/** The registry that both doors use for an organization. */
export function registryOf(organization: Organization): StatementRegistry {
  let registry = registries.get(organization);
  if (registry === undefined) {
    registry = new StatementRegistry();
    registries.set(organization, registry);
  }
  return registry;
}

/**
 * The server statements of one organization, for both doors. The same text and types in the same context (the settings that
 * texts depend on) give the same server statement, so that clients share prepared statements of backends. A text has one
 * latency, whoever runs it. The registry is bounded; a forgotten text gets another name the next time.
 */
export class StatementRegistry {
  /** Increases when statements that were found before are no longer found. */
  generation = 0;
  /** Increases when tables or types have changed. What was found out about a text before may not hold any more. */
  schemaVersion = 0;
  /** Changes when the settings with which new sessions start may have changed. Only {@link defaultsChanged} sets it. */
  defaultsVersion = ++defaultsChanged;
  readonly baseline = new LatencyBaseline();
  readonly #entries = new BoundedMap<string, Entry>({
    maxEntries: MAX_ENTRIES,
    maxWeight: MAX_BYTES,
    weightOf: (key, { bytes }) => key.length + bytes,
  });

  /**
   * Called when tables or types have changed. A text that is prepared from now on gets a new server statement. Statements that clients
   * already have keep their shape, because clients may rely on its description; PostgreSQL reports when it has changed (0A000).
   */
  invalidate(): void {
    this.generation += 1;
    this.schemaVersion += 1;
  }

  /** The settings with which new sessions start may have changed. */
  defaultsChanged(): void {
    defaultsChanged += 1;
    this.defaultsVersion = defaultsChanged;
  }

  find(definition: Buffer, context: string): ServerStatement | undefined {
    return this.#find(keyOf(definition, context));
  }

  /** As {@link find}, for a text without parameter types. */
  findText(sql: string, context: string): ServerStatement | undefined {
    return this.#find(keyOfText(sql, context));
  }

  #find(key: string): ServerStatement | undefined {
    const entry = this.#entries.use(key);
    return entry?.schemaVersion === this.schemaVersion ? entry.statement : undefined;
  }

  /** @param definition may be in a buffer that is reused; a copy is kept */
  intern(definition: Buffer, context: string): ServerStatement {
    const entry = this.#entryOf(keyOf(definition, context));
    entry.statement ??= newServerStatement(Buffer.from(definition), context);
    return entry.statement;
  }

  /** Counts an unnamed Parse. @returns the text's server statement, once there have been enough */
  repeated(definition: Buffer, context: string): ServerStatement | undefined {
    const entry = this.#entryOf(keyOf(definition, context));
    entry.sightings += 1;
    if (entry.sightings >= SIGHTINGS) entry.statement ??= newServerStatement(Buffer.from(definition), context);
    return entry.statement;
  }

  /** Counts the size of what is kept for a statement as long as it is in the registry. */
  weigh({ definition, context }: ServerStatement, bytes: number): void {
    const key = context === undefined ? undefined : keyOf(definition, context);
    const entry = key === undefined ? undefined : this.#entries.get(key);
    if (key !== undefined && entry !== undefined) this.#entries.set(key, { ...entry, bytes });
  }

  /** Has the text get another server statement the next time it is prepared. */
  forget(statement: ServerStatement): void {
    const { definition, context } = statement;
    if (context === undefined) return;
    const key = keyOf(definition, context);
    if (this.#entries.get(key)?.statement !== statement) return;
    this.#entries.delete(key);
    this.generation += 1;
  }

  /** @returns the latency of a statement's text; undefined where it may not share a pipeline */
  latencyOf(statement: ServerStatement): StatementLatency | undefined {
    if (statement.latency === undefined) {
      const { definition } = statement;
      statement.latency = this.#latencyOf(definition.toString('latin1', 0, stringEnd(definition, 0, definition.length)));
    }
    return statement.latency ?? undefined;
  }

  /**
   * As {@link latencyOf}, for the text of a Query.
   * @param isPlain whether a text has no effect that the caller would have to know of
   */
  latencyOfQuery(text: string, isPlain: (text: string) => boolean): StatementLatency | undefined {
    return text.length <= MAX_QUERY_CHARACTERS && isPlain(text) ? (this.#latencyOf(text) ?? undefined) : undefined;
  }

  /** Texts that differ only in their literals have one latency. */
  #latencyOf(text: string): StatementLatency | null {
    if (text.includes('\\')) return null;
    const entry = this.#entryOf(text.replace(LITERAL, '$1?'));
    if (entry.latency === undefined) entry.latency = mayShare(text) ? new StatementLatency() : null;
    return entry.latency;
  }

  #entryOf(key: string): Entry {
    let entry = this.#entries.use(key);
    if (entry === undefined || entry.schemaVersion !== this.schemaVersion) {
      entry = { statement: undefined, sightings: 0, latency: entry?.latency, bytes: 0, schemaVersion: this.schemaVersion };
      this.#entries.set(key, entry);
    }
    return entry;
  }
}

/** A literal, or a quoted name: no literal begins in a name. */
const LITERAL = /("[^"]*")|'[^']*'|\b\d+\b/g;
/** The end of a definition without types: the NUL of the text, and the number of types. */
const NO_TYPES_BYTES = 3;
const NOT_ASCII = /[^\0-\x7f]/;

/** The text alone, where it has neither context nor types. Other keys contain a NUL, which no text does. */
function keyOf(definition: Buffer, context: string): string {
  const textEnd = definition.length - NO_TYPES_BYTES;
  // A malformed message may end behind another number.
  const hasTypes = textEnd < 0 || definition.readUInt16BE(textEnd + 1) !== 0;
  if (context === '' && !hasTypes && definition.indexOf(0) === textEnd) return definition.toString('latin1', 0, textEnd);
  return `${context}\0${definition.toString('latin1')}`;
}

/** As {@link keyOf}, which reads the text's UTF-8 as Latin-1. */
function keyOfText(sql: string, context: string): string {
  const text = NOT_ASCII.test(sql) ? Buffer.from(sql).toString('latin1') : sql;
  return context === '' ? text : `${context}\0${text}\0\0\0`;
}
