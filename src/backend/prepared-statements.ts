import { randomBytes } from 'node:crypto';
import type { StatementShape } from '../protocol/statement-shape.ts';
import { BoundedMap } from '../runtime/bounded-map.ts';
import type { StatementLatency } from './latency.ts';

/** A query text with its parameter types, which has the same name on every backend of an organization. */
export interface ServerStatement {
  /** The part of a Parse message after the name: the text, a NUL, and the parameter types. It is compared as a whole, never by hash. */
  readonly definition: Buffer;
  /** Its name on the server, without the NUL that ends it. */
  readonly name: Buffer;
  /** The settings that the meaning of its text depends on; undefined where the statement belongs to one client alone. */
  readonly context: string | undefined;
  /** Some backend has parsed it without an error. */
  proven: boolean;
  /** It has been sent to some backend. */
  isSent: boolean;
  /**
   * The description that clients have: the one of the first backend that was sent a Describe for it. A backend on which the
   * description is another one, because tables or the search path have changed, does not keep it prepared.
   */
  shape: StatementShape | undefined;
  /** How long it takes, once that was first asked for; null where its latency must not be used. */
  latency?: StatementLatency | null;
}

/** Names have a random prefix, so that no client can use another's statement, by accident or on purpose. */
const PREFIX = `postern_${randomBytes(6).toString('hex')}_`;
/** Matches the names of server statements in a text. */
export const SERVER_STATEMENT = new RegExp(`${PREFIX}\\d+`, 'g');

export function mentionsServerStatement(text: string): boolean {
  return text.includes(PREFIX);
}

let named = 0;

/** A statement with a new, unique name. @param context undefined: it belongs to one client alone */
export function newServerStatement(definition: Buffer, context?: string): ServerStatement {
  named += 1;
  return { definition, name: Buffer.from(`${PREFIX}${named}`), context, proven: false, isSent: false, shape: undefined };
}

/**
 * The definition to prepare a statement from again. Its parameter types are those that its clients have been told, as
 * PostgreSQL keeps them when it plans a statement again.
 */
export function definitionAgain(definition: Buffer, shape: StatementShape | undefined): Buffer {
  if (shape?.parameters === undefined) return definition;
  return Buffer.concat([definition.subarray(0, definition.indexOf(0) + 1), shape.parameters]);
}

const REGISTRY_MAX_STATEMENTS = 5_000;
const REGISTRY_MAX_BYTES = 16 * 1024 * 1024;
/** After this many unnamed Parses of a text, it becomes a server statement. */
const SIGHTINGS = 3;

/** A text; its unnamed Parses are counted until it becomes a server statement. */
interface Known {
  statement: ServerStatement | undefined;
  sightings: number;
}

/**
 * The server statements of one organization. The same text and types in the same context (the settings that texts depend
 * on) give the same server statement, so that clients share prepared statements of backends. The registry is bounded; a
 * forgotten text gets another name the next time.
 */
export class StatementRegistry {
  /** Increases when statements that were found before are no longer found. */
  generation = 0;
  readonly #known = new BoundedMap<string, Known>({
    maxEntries: REGISTRY_MAX_STATEMENTS,
    maxWeight: REGISTRY_MAX_BYTES,
    weightOf: (key) => key.length,
  });

  get isEmpty(): boolean {
    return this.#known.size === 0;
  }

  /**
   * Called when tables have changed. A text that is prepared from now on gets a new server statement. Statements that clients
   * already have keep their shape, because clients may rely on its description; PostgreSQL reports when it has changed (0A000).
   */
  invalidate(): void {
    this.generation += 1;
    this.#known.clear();
  }

  find(definition: Buffer, context: string): ServerStatement | undefined {
    return this.#known.get(keyOf(definition, context))?.statement;
  }

  /** @param definition may be in a buffer that is reused; a copy is kept */
  intern(definition: Buffer, context: string): ServerStatement {
    const known = this.#know(definition, context);
    known.statement ??= newServerStatement(Buffer.from(definition), context);
    return known.statement;
  }

  /** Counts an unnamed Parse. @returns the text's server statement, once there have been enough */
  repeated(definition: Buffer, context: string): ServerStatement | undefined {
    const known = this.#know(definition, context);
    known.sightings += 1;
    if (known.sightings >= SIGHTINGS) known.statement ??= newServerStatement(Buffer.from(definition), context);
    return known.statement;
  }

  /** Has the text get another server statement the next time it is prepared. */
  forget({ definition, context }: ServerStatement): void {
    if (context === undefined) return;
    if (this.#known.delete(keyOf(definition, context))) this.generation += 1;
  }

  #know(definition: Buffer, context: string): Known {
    const key = keyOf(definition, context);
    let known = this.#known.get(key);
    if (known !== undefined) return known;
    known = { statement: undefined, sightings: 0 };
    this.#known.set(key, known);
    return known;
  }
}

/** The definition, preceded by its context if it has one. */
function keyOf(definition: Buffer, context: string): string {
  const text = definition.toString('latin1');
  return context === '' ? text : `${context}\0${text}`;
}

/** What one backend has prepared, by identity, least recently used first. */
export type PreparedStatements = BoundedMap<ServerStatement, ServerStatement>;

/** @param maxBytes limit of all definitions together; a single statement may exceed it */
export function newPreparedStatements(max: number, maxBytes: number): PreparedStatements {
  return new BoundedMap({ maxEntries: max, maxWeight: maxBytes, weightOf: definitionBytes });
}

function definitionBytes({ definition }: ServerStatement): number {
  return definition.length;
}
