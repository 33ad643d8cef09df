import type { ServerStatement } from '../src/backend/prepared-statements.ts';
import type { Edit } from '../src/router/search-path/edits.ts';
import type { ParameterSignal } from './process-ids.ts';
import type { TextTraits } from './statement-text.ts';

/** A prepared statement that the client has named. */
export interface NamedStatement {
  readonly server: ServerStatement;
  readonly traits: TextTraits;
  readonly signals: readonly ParameterSignal[];
}

/** The one without a name. Its identity tells whether a backend's unnamed statement is this one. */
export interface UnnamedStatement {
  /** Text, NUL and parameter types, as in the Parse message. */
  readonly definition: Buffer;
  /** The statement that it has become because its text comes again and again. */
  readonly server?: ServerStatement;
  /** It was too large for its definition to be kept. */
  readonly isOversized?: boolean;
  /** It is not what the client sent, to the letter. */
  readonly changed: boolean;
  readonly edits: readonly Edit[];
  readonly traits: TextTraits;
  readonly signals: readonly ParameterSignal[];
}

const MAX_FORMER = 100;

/** The prepared statements that a client has named, by name (as Latin-1, so that names are compared byte by byte). */
export class ClientStatements {
  readonly #named = new Map<string, NamedStatement>();
  /** Names given up of late, by the server's name: an error that comes now may still speak of the statement. */
  readonly #former = new Map<string, string>();
  /** What the client's unnamed statement was made from; a Query or a Close takes it away. */
  unnamed: UnnamedStatement | undefined;

  get(name: string): NamedStatement | undefined {
    return this.#named.get(name);
  }

  /** @returns what undoes it, should the request turn out to have been thrown away */
  set(name: string, statement: NamedStatement): () => void {
    return this.#change(name, () => this.#named.set(name, statement));
  }

  /** @returns as {@link set} */
  delete(name: string): () => void {
    return this.#change(name, () => this.#named.delete(name));
  }

  /** @returns as {@link set} */
  setUnnamed(statement: UnnamedStatement | undefined): () => void {
    const before = this.unnamed;
    this.unnamed = statement;
    return () => {
      this.unnamed = before;
    };
  }

  /** @returns the client's name for what the server knows under another; empty for what it has given none */
  nameOf(serverName: string): string {
    for (const [name, { server }] of this.#named) if (server.name.toString('latin1') === serverName) return name;
    return this.#former.get(serverName) ?? '';
  }

  entries(): IterableIterator<[string, NamedStatement]> {
    return this.#named.entries();
  }

  /** Takes away all that have a name. */
  clear(): void {
    for (const [name, statement] of this.#named) this.#givenUp(name, statement);
    this.#named.clear();
  }

  #givenUp(name: string, statement: NamedStatement | undefined): void {
    if (statement === undefined) return;
    const [oldest] = this.#former.keys();
    if (this.#former.size >= MAX_FORMER && oldest !== undefined) this.#former.delete(oldest);
    this.#former.set(statement.server.name.toString('latin1'), name);
  }

  #change(name: string, change: () => void): () => void {
    const before = this.#named.get(name);
    change();
    this.#givenUp(name, before);
    return () => {
      this.#givenUp(name, this.#named.get(name));
      if (before === undefined) this.#named.delete(name);
      else this.#named.set(name, before);
    };
  }
}
