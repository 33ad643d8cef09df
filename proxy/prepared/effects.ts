import type { PreparedStatements, ServerStatement } from '../../src/backend/prepared-statements.ts';
import type { SessionState } from '../../src/backend/session-state.ts';
import type { Edits } from '../../src/router/schema-rewriting/edits/edits.ts';
import type { ClientStatements, NamedStatement, UnnamedStatement } from './client-statements.ts';

/** What goes with a Parse, Bind or Close through the reply queue. */
export interface Effect {
  /** Takes back what was noted when it was sent: it failed, or was thrown away because another had. */
  undo(failed: boolean): void;
  /** Notes it again, because all statements have been taken away by a request ahead of it. */
  redo?(): void;
  /** It has gone well. */
  done?(): void;
  /** What a Parse that went well has shown to be a good statement. */
  readonly statement?: ServerStatement;
  /** What was replaced in the text, for the positions in errors. */
  readonly edits?: Edits | undefined;
}

/** A Parse whose name is the client's alone. */
export interface ParseEffect extends Effect {
  /** To be called as it is sent. */
  note(): void;
}

/** The client's unnamed statement becomes another one, or none. */
export class UnnamedChange implements ParseEffect {
  readonly #statements: ClientStatements;
  readonly #unnamed: UnnamedStatement | undefined;
  readonly #session: SessionState | undefined;

  /** @param session whose own unnamed statement it is, too; absent where the server knows it by a name */
  constructor(statements: ClientStatements, unnamed: UnnamedStatement | undefined, session?: SessionState) {
    this.#statements = statements;
    this.#unnamed = unnamed;
    this.#session = session;
  }

  get edits(): Edits | undefined {
    return this.#unnamed?.edits;
  }

  note(): void {
    this.#statements.unnamed = this.#unnamed;
    if (this.#session !== undefined) this.#session.unnamed = this.#unnamed;
  }

  done(): void {
    this.#statements.unnamedSettled(this.#unnamed);
  }

  undo(failed: boolean): void {
    this.#statements.unnamedUndone(this.#unnamed, failed);
    if (this.#session !== undefined) this.#session.unnamed = undefined;
  }
}

/** A statement under a name of the client's. */
export class NamedParse implements ParseEffect {
  readonly edits: Edits;
  readonly #statements: ClientStatements;
  readonly #name: string;
  readonly #statement: NamedStatement;
  #forget: () => void = () => {};

  constructor(statements: ClientStatements, name: string, statement: NamedStatement, edits: Edits) {
    this.#statements = statements;
    this.#name = name;
    this.#statement = statement;
    this.edits = edits;
  }

  note(): void {
    this.#forget = this.#statements.set(this.#name, this.#statement);
  }

  redo(): void {
    this.note();
  }

  undo(): void {
    this.#forget();
  }
}

/** A Parse that the server gets. */
export class SentParse implements Effect {
  readonly statement: ServerStatement;
  readonly #parse: ParseEffect;
  readonly #prepared: PreparedStatements;

  /** @param parse has been noted, and `statement` added to what the server has prepared */
  constructor(parse: ParseEffect, statement: ServerStatement, prepared: PreparedStatements) {
    this.#parse = parse;
    this.statement = statement;
    this.#prepared = prepared;
  }

  get edits(): Edits | undefined {
    return this.#parse.edits;
  }

  redo(): void {
    this.#parse.redo?.();
    this.#prepared.restore(this.statement, this.statement);
  }

  done(): void {
    this.#parse.done?.();
  }

  undo(failed: boolean): void {
    this.#parse.undo(failed);
    this.#prepared.delete(this.statement);
  }
}
