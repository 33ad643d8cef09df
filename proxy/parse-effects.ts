import type { PreparedStatements, ServerStatement } from '../src/backend/prepared-statements.ts';
import type { Edit } from '../src/router/search-path/edits.ts';
import type { ClientStatements, NamedStatement } from './client-statements.ts';
import type { RepeatedStatement } from './recent-parses.ts';

/** What goes with a Parse, Bind or Close through the reply queue. */
export interface Effect {
  /** Takes back what was noted when it was sent: it failed, or was thrown away because another had. */
  undo(failed: boolean): void;
  /** Notes it again, because all statements have been taken away by a request ahead of it. */
  redo?(): void;
  /** What a Parse that went well has shown to be a good statement. */
  readonly statement?: ServerStatement;
  /** What was replaced in the text, for the positions in errors. */
  readonly edits?: readonly Edit[];
}

/** A Parse whose name is the client's alone: to be noted with `redo`. */
export interface ParseEffect extends Effect {
  redo(): void;
}

/** A text without a name that is known to the server by one. */
export class UnnamedParse implements ParseEffect {
  readonly #statements: ClientStatements;
  readonly #statement: RepeatedStatement;
  #before: ClientStatements['unnamed'];

  constructor(statements: ClientStatements, statement: RepeatedStatement) {
    this.#statements = statements;
    this.#statement = statement;
  }

  get edits(): readonly Edit[] {
    return this.#statement.edits;
  }

  redo(): void {
    this.#before = this.#statements.unnamed;
    this.#statements.unnamed = this.#statement;
  }

  undo(failed: boolean): void {
    // Postgres drops the old one before it looks at the new.
    this.#statements.unnamed = failed ? undefined : this.#before;
  }
}

/** A statement under a name of the client's. */
export class NamedParse implements ParseEffect {
  readonly edits: readonly Edit[];
  readonly #statements: ClientStatements;
  readonly #name: string;
  readonly #statement: NamedStatement;
  #forget: () => void = () => {};

  constructor(statements: ClientStatements, name: string, statement: NamedStatement, edits: readonly Edit[]) {
    this.#statements = statements;
    this.#name = name;
    this.#statement = statement;
    this.edits = edits;
  }

  redo(): void {
    this.#forget = this.#statements.set(this.#name, this.#statement);
  }

  undo(): void {
    this.#forget();
  }
}

/** A Parse that the server gets. */
export class SentParse implements ParseEffect {
  readonly statement: ServerStatement;
  readonly #parse: ParseEffect;
  readonly #prepared: PreparedStatements;

  /** @param parse has been noted, and `statement` added to what the server has prepared */
  constructor(parse: ParseEffect, statement: ServerStatement, prepared: PreparedStatements) {
    this.#parse = parse;
    this.statement = statement;
    this.#prepared = prepared;
  }

  get edits(): readonly Edit[] {
    return this.#parse.edits ?? [];
  }

  redo(): void {
    this.#parse.redo();
    this.#prepared.add(this.statement);
  }

  undo(failed: boolean): void {
    this.#parse.undo(failed);
    this.#prepared.delete(this.statement);
  }
}
