import type { ServerStatement } from '../../src/backend/prepared-statements.ts';
import type { StatementShape } from '../../src/protocol/statement-shape.ts';
import type { Edits } from '../../src/router/schema-rewriting/edits/edits.ts';
import { BoundedMap } from '../../src/runtime/bounded-map.ts';
import type { SqlTraits } from '../../src/syntax/traits/sql-traits.ts';
import type { AuditedText } from '../inspection/audited-text.ts';
import type { ParameterSignal } from '../pinning/process-ids.ts';
import type { StatementMemory } from './statement-memory.ts';

/** A prepared statement that the client has named. */
export interface NamedStatement {
  readonly server: ServerStatement;
  /** What it stands for in the settings in which the client has prepared it, where another stands in for that. */
  readonly first?: ServerStatement;
  readonly traits: SqlTraits;
  readonly signals: readonly ParameterSignal[];
  /** Its text for the audit, where it may change objects or roles. */
  readonly watched?: AuditedText | undefined;
  /** The client has bound it, or had it described: it goes by the columns that it has, and must not get others. */
  isUsed?: boolean;
}

/** The one without a name. Its identity tells whether a backend's unnamed statement is this one. */
export interface UnnamedStatement {
  /** Text, NUL and parameter types, as in the Parse message. */
  readonly definition: Buffer;
  /** The statement that it has become because its text comes again and again. */
  readonly server?: ServerStatement;
  /** Its definition was too large to be kept, or there was no room for it. */
  readonly isOversized?: boolean;
  /** It is not what the client sent, to the letter. */
  readonly changed: boolean;
  readonly edits: Edits;
  readonly traits: SqlTraits;
  readonly signals: readonly ParameterSignal[];
  /** As of a {@link NamedStatement}. */
  readonly watched?: AuditedText | undefined;
  /** What the client has been told of it. */
  shape?: StatementShape;
}

/** A statement without a name of up to this length always has room. */
const MAX_UNCOUNTED_BYTES = 16_384;
const MAX_FORMER = 100;
/** Longer names are not told in errors once they have been given up. */
const MAX_FORMER_BYTES = 1_000;

/** The prepared statements of a client, those with a name by name (as Latin-1: names are compared byte by byte). Most have none. */
export class ClientStatements {
  readonly #kept: StatementMemory;
  #isOver = false;
  #named: Map<string, NamedStatement> | undefined;
  /** Names given up of late, by the server's name: an error that comes now may still speak of the statement. */
  #former: BoundedMap<string, string> | undefined;
  #unnamed: UnnamedStatement | undefined;
  /** What it is as far as has been answered. */
  #settled: UnnamedStatement | undefined;
  #unnamedBytes = 0;

  /** @param kept what those of all clients of the organization take */
  constructor(kept: StatementMemory) {
    this.#kept = kept;
  }

  /** What the client's unnamed statement was made from, if all goes well that has been asked; a Query or a Close takes it away. */
  get unnamed(): UnnamedStatement | undefined {
    return this.#unnamed;
  }

  set unnamed(statement: UnnamedStatement | undefined) {
    this.#unnamed = statement;
    this.#countUnnamed();
  }

  #countUnnamed(): void {
    const unnamed = this.#unnamed;
    const settled = this.#settled === unnamed ? 0 : countedBytes(this.#settled);
    const bytes = this.#isOver ? 0 : countedBytes(unnamed) + settled;
    if (bytes === this.#unnamedBytes) return;
    this.#kept.grew(bytes - this.#unnamedBytes);
    this.#unnamedBytes = bytes;
  }

  /** Whether a Parse of so many bytes may be kept under a name, or none. One whose name is in use needs no room: it is refused. */
  hasRoomFor(name: string, bytes: number): boolean {
    if (name === '' ? bytes <= MAX_UNCOUNTED_BYTES : this.get(name) !== undefined) return true;
    return this.#kept.hasRoomFor(bytes);
  }

  get(name: string): NamedStatement | undefined {
    return this.#named?.get(name);
  }

  /** @returns what undoes it, should the request turn out to have been thrown away */
  set(name: string, statement: NamedStatement): () => void {
    this.#named ??= new Map();
    return this.#change(this.#named, name, statement);
  }

  /** @returns as {@link set} */
  delete(name: string): () => void {
    return this.#named === undefined ? () => {} : this.#change(this.#named, name, undefined);
  }

  /** The server has made the unnamed statement that one, or done away with it. */
  unnamedSettled(statement: UnnamedStatement | undefined): void {
    // Where the change has been undone by mistake for another that came to the same.
    if (this.unnamed === this.#settled) this.unnamed = statement;
    this.#settled = statement;
    this.#countUnnamed();
  }

  /** @param failed Postgres does away with the old one before it looks at the new; else it has not come to that */
  unnamedUndone(statement: UnnamedStatement | undefined, failed: boolean): void {
    const { unnamed } = this;
    const isCurrent = unnamed === statement || unnamed === this.#settled;
    if (failed) this.#settled = undefined;
    if (isCurrent) this.#unnamed = this.#settled;
    this.#countUnnamed();
  }

  /** @returns the client's name for what the server knows under another; empty for what it has given none */
  nameOf(serverName: string): string {
    for (const [name, { server }] of this.entries()) if (server.name.toString('latin1') === serverName) return name;
    return this.#former?.get(serverName) ?? '';
  }

  entries(): Iterable<[string, NamedStatement]> {
    return this.#named ?? [];
  }

  /** The client has come to go by what it was told of a statement. */
  used(name: string): void {
    const statement = this.#named?.get(name);
    if (statement !== undefined) statement.isUsed = true;
  }

  /** Has all names of one statement stand for another. */
  replace(server: ServerStatement, by: ServerStatement): void {
    for (const [name, statement] of [...this.entries()]) if (statement.server === server) this.set(name, { ...statement, server: by });
  }

  /** Takes away all that have a name. */
  clear(): void {
    for (const [name, statement] of this.entries()) this.#givenUp(name, statement);
    this.#forgetAll();
  }

  /** The client is gone. What is undone now comes too late. */
  end(): void {
    this.#isOver = true;
    this.#forgetAll();
    this.#countUnnamed();
  }

  #forgetAll(): void {
    for (const [name, statement] of this.entries()) this.#kept.delete(ownBytes(name, statement), statement.server);
    this.#named?.clear();
  }

  #givenUp(name: string, statement: NamedStatement | undefined): void {
    if (statement === undefined || name.length > MAX_FORMER_BYTES) return;
    this.#former ??= new BoundedMap({ maxEntries: MAX_FORMER });
    this.#former.set(statement.server.name.toString('latin1'), name);
  }

  #change(named: Map<string, NamedStatement>, name: string, statement: NamedStatement | undefined): () => void {
    const before = named.get(name);
    this.#put(named, name, statement);
    this.#givenUp(name, before);
    return () => {
      this.#givenUp(name, named.get(name));
      this.#put(named, name, before);
    };
  }

  #put(named: Map<string, NamedStatement>, name: string, statement: NamedStatement | undefined): void {
    if (this.#isOver) return;
    const before = named.get(name);
    if (before !== undefined) this.#kept.delete(ownBytes(name, before), before.server);
    if (statement === undefined) named.delete(name);
    else {
      named.set(name, statement);
      this.#kept.add(ownBytes(name, statement), statement.server);
    }
  }
}

const BYTES_PER_CHARACTER = 2;
/** Of an audited text besides its beginning. */
const AUDITED_BYTES = 256;

function ownBytes(name: string, { watched }: NamedStatement): number {
  return name.length + (watched === undefined ? 0 : AUDITED_BYTES + BYTES_PER_CHARACTER * watched.recorded.sql.length);
}

/** What a statement without a name takes that is no other's, if that is much. */
function countedBytes(statement: UnnamedStatement | undefined): number {
  if (statement === undefined || statement.server !== undefined) return 0;
  const { length } = statement.definition;
  return length > MAX_UNCOUNTED_BYTES ? length : 0;
}
