import { randomBytes } from 'node:crypto';

/** A statement text with its parameter types, known under one name on every backend of an organization. */
export interface ServerStatement {
  /** What follows the name in a Parse message: the text, a NUL, and the parameter types. Compared whole, never by hash. */
  readonly definition: Buffer;
  /** Its name on the server, without the NUL that ends it. */
  readonly name: Buffer;
  /** Some backend has parsed it well. */
  proven: boolean;
}

/** Names begin with what no client can guess, so that none meets another's statement by accident or on purpose. */
const PREFIX = `postern_${randomBytes(6).toString('hex')}_`;
/** Names of server statements, wherever they stand in a text. */
export const SERVER_STATEMENT = new RegExp(`${PREFIX}\\d+`, 'g');

export function mentionsServerStatement(text: string): boolean {
  return text.includes(PREFIX);
}

let named = 0;

/** A statement under a name that no other has. */
export function newServerStatement(definition: Buffer): ServerStatement {
  named += 1;
  return { definition, name: Buffer.from(`${PREFIX}${named}`), proven: false };
}

const REGISTRY_MAX_STATEMENTS = 5_000;
const REGISTRY_MAX_BYTES = 16 * 1024 * 1024;

/**
 * The statements of one organization: the same text and types give the same server statement, so that clients share what
 * backends have prepared. Bounded; one that has been forgotten simply gets another name next time.
 */
export class StatementRegistry {
  readonly #statements = new Map<string, ServerStatement>();
  #bytes = 0;

  /**
   * The tables have changed: who prepares a text from now on gets a statement that has not been seen before. Those that
   * clients have keep their shape, and Postgres tells when it is gone (0A000): a client may know it by heart.
   */
  invalidate(): void {
    this.#statements.clear();
    this.#bytes = 0;
  }

  find(definition: Buffer): ServerStatement | undefined {
    return this.#statements.get(definition.toString('latin1'));
  }

  /** @param definition may lie in a buffer that is reused: what is kept is a copy */
  intern(definition: Buffer): ServerStatement {
    const key = definition.toString('latin1');
    const known = this.#statements.get(key);
    if (known !== undefined) return known;
    const statement = newServerStatement(Buffer.from(definition));
    this.#statements.set(key, statement);
    this.#bytes += definition.length;
    for (const [oldest, { definition: forgotten }] of this.#statements) {
      if (this.#statements.size <= REGISTRY_MAX_STATEMENTS && this.#bytes <= REGISTRY_MAX_BYTES) break;
      this.#statements.delete(oldest);
      this.#bytes -= forgotten.length;
    }
    return statement;
  }
}

/** What one backend has prepared, least recently used first. */
export class PreparedStatements {
  readonly #max: number;
  readonly #prepared = new Set<ServerStatement>();

  constructor(max: number) {
    this.#max = max;
  }

  get size(): number {
    return this.#prepared.size;
  }

  /** Whether the statement is there; it then counts as just used. */
  use(statement: ServerStatement): boolean {
    if (!this.#prepared.delete(statement)) return false;
    this.#prepared.add(statement);
    return true;
  }

  /** @returns the statement that has to go to make room, if one has */
  add(statement: ServerStatement): ServerStatement | undefined {
    this.#prepared.add(statement);
    if (this.#prepared.size <= this.#max) return undefined;
    const [oldest] = this.#prepared;
    if (oldest !== undefined) this.#prepared.delete(oldest);
    return oldest;
  }

  delete(statement: ServerStatement): void {
    this.#prepared.delete(statement);
  }

  [Symbol.iterator](): IterableIterator<ServerStatement> {
    return this.#prepared.values();
  }

  clear(): void {
    this.#prepared.clear();
  }
}
