import { randomBytes } from 'node:crypto';
import type { StatementShape } from '../protocol/statement-shape.ts';
import { BoundedMap } from '../runtime/bounded-map.ts';
import type { StatementLatency } from './latency.ts';

/** A statement text with its parameter types, known under one name on every backend of an organization. */
export interface ServerStatement {
  /** What follows the name in a Parse message: the text, a NUL, and the parameter types. Compared whole, never by hash. */
  readonly definition: Buffer;
  /** Its name on the server, without the NUL that ends it. */
  readonly name: Buffer;
  /** The settings in which its text is to be read, as far as they matter; undefined where it is one client's alone. */
  readonly context: string | undefined;
  /** Some backend has parsed it well. */
  proven: boolean;
  /** Some backend has been given it. */
  isSent: boolean;
  /**
   * What clients are told of it: what the first backend said that had it described. No backend keeps it prepared where its
   * tables, or the search path, have made something else of it since.
   */
  shape: StatementShape | undefined;
  /** How long it takes, once somebody has asked; null where nobody is to go by that. */
  latency?: StatementLatency | null;
}

/** Names begin with what no client can guess, so that none meets another's statement by accident or on purpose. */
const PREFIX = `postern_${randomBytes(6).toString('hex')}_`;
/** Names of server statements, wherever they stand in a text. */
export const SERVER_STATEMENT = new RegExp(`${PREFIX}\\d+`, 'g');

export function mentionsServerStatement(text: string): boolean {
  return text.includes(PREFIX);
}

let named = 0;

/** A statement under a name that no other has. @param context absent: it is for one client alone */
export function newServerStatement(definition: Buffer, context?: string): ServerStatement {
  named += 1;
  return { definition, name: Buffer.from(`${PREFIX}${named}`), context, proven: false, isSent: false, shape: undefined };
}

/**
 * What to prepare a statement from once more: the types of its parameters are those that its clients have been told, as
 * PostgreSQL keeps them when it plans a statement anew.
 */
export function definitionAgain(definition: Buffer, shape: StatementShape | undefined): Buffer {
  if (shape?.parameters === undefined) return definition;
  return Buffer.concat([definition.subarray(0, definition.indexOf(0) + 1), shape.parameters]);
}

const REGISTRY_MAX_STATEMENTS = 5_000;
const REGISTRY_MAX_BYTES = 16 * 1024 * 1024;
/** How often a text has come without a name when it is given one. */
const SIGHTINGS = 3;

/** A text that has come without a name is counted until it is worth a statement. */
interface Known {
  statement: ServerStatement | undefined;
  sightings: number;
}

/**
 * The statements of one organization: the same text and types, prepared in the same context (settings that texts depend
 * on), give the same server statement, so that clients share what backends have prepared. Bounded; one that has been
 * forgotten simply gets another name next time.
 */
export class StatementRegistry {
  /** Changes when statements that were found before are not to be found any more. */
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
   * The tables have changed: who prepares a text from now on gets a statement that has not been seen before. Those that
   * clients have keep their shape, and Postgres tells when it is gone (0A000): a client may know it by heart.
   */
  invalidate(): void {
    this.generation += 1;
    this.#known.clear();
  }

  find(definition: Buffer, context: string): ServerStatement | undefined {
    return this.#known.get(keyOf(definition, context))?.statement;
  }

  /** @param definition may lie in a buffer that is reused: what is kept is a copy */
  intern(definition: Buffer, context: string): ServerStatement {
    const known = this.#know(definition, context);
    known.statement ??= newServerStatement(Buffer.from(definition), context);
    return known.statement;
  }

  /** Counts a text that is prepared without a name. @returns its statement, once it has come often enough */
  repeated(definition: Buffer, context: string): ServerStatement | undefined {
    const known = this.#know(definition, context);
    known.sightings += 1;
    if (known.sightings >= SIGHTINGS) known.statement ??= newServerStatement(Buffer.from(definition), context);
    return known.statement;
  }

  /** Who prepares that text from now on gets another statement. */
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

/** A definition ends in its parameter types and begins with its text, so that a context before it cannot be part of either. */
function keyOf(definition: Buffer, context: string): string {
  const text = definition.toString('latin1');
  return context === '' ? text : `${context}\0${text}`;
}

/** What one backend has prepared, by identity, least recently used first. */
export type PreparedStatements = BoundedMap<ServerStatement, ServerStatement>;

/** @param maxBytes of their definitions, unless there is only one */
export function newPreparedStatements(max: number, maxBytes: number): PreparedStatements {
  return new BoundedMap({ maxEntries: max, maxWeight: maxBytes, weightOf: definitionBytes });
}

function definitionBytes({ definition }: ServerStatement): number {
  return definition.length;
}
