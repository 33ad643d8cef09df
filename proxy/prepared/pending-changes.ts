import type { Buffer } from 'node:buffer';
import type { PreparedStatements, ServerStatement, SessionState } from '../../src/backend/session-state.ts';
import type { Edits } from '../../src/syntax/edits.ts';
import type { ClientStatements, NamedStatement, UnnamedStatement } from './client-statements.ts';

/** Stands beside a Parse, Bind or Close in the reply queue: what has to change when its reply arrives. */
export interface Effect {
  /** Takes back what was noted when the request was sent: it failed, or the server ignored it after another error. */
  undo(failed: boolean): void;
  /** Notes it again, because an earlier request has deallocated all statements. */
  redo?(): void;
  /** The request has succeeded. */
  done?(): void;
  /** The server statement that a successful Parse has proven to be valid. */
  readonly statement?: ServerStatement;
  /** Body of a ParameterDescription that comes before the error, if it fails. */
  readonly parameters?: Buffer | undefined;
  /** The replacements made in the text, to correct the positions in errors. */
  readonly edits?: Edits | undefined;
}

/** A Parse as far as the client's own names are concerned. */
export interface ParseEffect extends Effect {
  /** Is called when the Parse is sent. */
  note(): void;
}

/** Replaces or destroys the client's unnamed statement. */
export class UnnamedChange implements ParseEffect {
  readonly #statements: ClientStatements;
  readonly #unnamed: UnnamedStatement | undefined;
  readonly #session: SessionState | undefined;

  /** @param session the backend session that gets it as its unnamed statement; absent if the server knows it by a name */
  constructor(statements: ClientStatements, unnamed: UnnamedStatement | undefined, session?: SessionState) {
    this.#statements = statements;
    this.#unnamed = unnamed;
    this.#session = session;
  }

  /** The new one. */
  get unnamed(): UnnamedStatement | undefined {
    return this.#unnamed;
  }

  get edits(): Edits | undefined {
    return this.#unnamed?.edits;
  }

  note(): void {
    this.#statements.setUnnamed(this.#unnamed);
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

/** Gives a statement one of the client's names. */
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

/** A Parse that is sent to the server. */
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
