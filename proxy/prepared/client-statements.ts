import type { ServerStatement } from '../../src/backend/session-state.ts';
import type { Counted } from '../../src/catalog/statement-counters.ts';
import type { StatementShape } from '../../src/protocol/backend.ts';
import { BoundedMap } from '../../src/runtime/bounded-map.ts';
import type { Edits } from '../../src/syntax/edits.ts';
import type { SessionTraits } from '../../src/syntax/session-traits.ts';
import type { AuditedText } from '../inspection/audited-ddl-text.ts';
import type { ParameterSignal } from '../pinning/process-id-translation.ts';
import type { StatementMemory } from './statement-memory.ts';

/** A prepared statement that the client has named. */
export interface NamedStatement {
  readonly server: ServerStatement;
  /** The statement for the settings in which the client prepared it, where a stand-in has replaced that one. */
  readonly first?: ServerStatement;
  readonly traits: SessionTraits;
  readonly signals: readonly ParameterSignal[];
  /** The names of statements that it deallocates. */
  readonly deallocates: readonly string[];
  /** Its text for the audit log, if it may change objects or roles. */
  readonly watched?: AuditedText | undefined;
  /** The client has bound or described it: it relies on the columns that it was told, so these must not change. */
  isUsed?: boolean;
}

/** The unnamed prepared statement. Object identity tells whether a backend's unnamed statement is this one. */
export interface UnnamedStatement {
  /** Text, NUL and parameter types, as in the Parse message. */
  readonly definition: Buffer;
  /** The server statement that replaces it, because clients send its text repeatedly. */
  readonly server?: ServerStatement;
  /** As in {@link ServerStatement}. */
  readonly hasEscapes?: boolean;
  /** Its definition is not kept, because it is too large or because the memory limit has been reached. */
  readonly isOversized?: boolean;
  /** Postern has rewritten the text that the client sent. */
  readonly changed: boolean;
  readonly edits: Edits;
  readonly traits: SessionTraits;
  readonly signals: readonly ParameterSignal[];
  /** As in {@link NamedStatement}. */
  readonly deallocates: readonly string[];
  /** As in {@link NamedStatement}. */
  readonly watched?: AuditedText | undefined;
  /** The columns that the client has been told, and the parameters if it was told these. */
  shape?: StatementShape;
  /** Counts its runs, once one has been counted. */
  counted?: Counted | undefined;
  /** The batch in which it was last described. Until the reply is there, its shape is not known. */
  describedIn?: number;
  /** The portal bound last is one of it. */
  isBound?: boolean;
  /** The unnamed portal is one of this statement. */
  hasPortal?: boolean;
}

/** What the client was told of its unnamed statement, or what clients were told of the server statement that replaces it. */
export function shapeTold({ shape, server }: UnnamedStatement): StatementShape | undefined {
  return shape ?? server?.shape;
}

/** An unnamed statement up to this length is kept whatever the memory limit says. */
const MAX_UNCOUNTED_BYTES = 16_384;
const MAX_FORMER = 100;
/** Longer names are not kept for errors after they have been deallocated. */
const MAX_FORMER_BYTES = 1_000;

/** A client's names, as Latin-1 strings. */
interface StatementNames {
  readonly named: Map<string, NamedStatement>;
  /** The client's names for each of the server's: one error may mention many of these, and each may be one of very many. */
  readonly byServer: Map<string, string | Set<string>>;
  /** Names that were deallocated recently, by the server's name: an error that arrives later may still mention the statement. */
  former: BoundedMap<string, string> | undefined;
}

function rememberFormer(names: StatementNames, name: string, statement: NamedStatement | undefined): void {
  if (statement === undefined || name.length > MAX_FORMER_BYTES) return;
  names.former ??= new BoundedMap({ maxEntries: MAX_FORMER });
  names.former.set(statement.server.name.toString('latin1'), name);
}

interface StatementsOwner {
  readonly isOver: boolean;
}

/** The prepared statements of a client. Names are Latin-1 strings, because PostgreSQL compares them byte by byte. Most clients have no named statements. */
export class ClientStatements {
  readonly #memory: StatementMemory;
  readonly #session: StatementsOwner;
  /** Undefined while the client has given no name. */
  #names: StatementNames | undefined;
  /** The client's unnamed statement, provided that all pending requests succeed. Set by {@link setUnnamed}. */
  unnamed: UnnamedStatement | undefined;
  /** The unnamed statement according to the replies that have arrived. Set by {@link unnamedSettled}. */
  settledUnnamed: UnnamedStatement | undefined;

  /**
   * @param memory counts the statements of all clients of the organization
   * @param session once it is over, nothing is kept any more
   */
  constructor(memory: StatementMemory, session: StatementsOwner) {
    this.#memory = memory;
    this.#session = session;
  }

  /** @param statement undefined: a Query or a Close destroys the unnamed statement */
  setUnnamed(statement: UnnamedStatement | undefined): void {
    this.#changeUnnamed(statement, this.settledUnnamed);
  }

  #changeUnnamed(unnamed: UnnamedStatement | undefined, settled: UnnamedStatement | undefined): void {
    if (this.#session.isOver) return;
    const before = this.#unnamedBytes;
    this.unnamed = unnamed;
    this.settledUnnamed = settled;
    const bytes = this.#unnamedBytes;
    if (bytes !== before) this.#memory.resizeBy(bytes - before);
  }

  get #unnamedBytes(): number {
    return countedBytes(this.unnamed) + (this.settledUnnamed === this.unnamed ? 0 : countedBytes(this.settledUnnamed));
  }

  /** Whether a Parse of this size may be kept, with or without a name. One whose name is in use needs no memory, because it fails. */
  hasRoomFor(name: string, bytes: number): boolean {
    if (name === '' ? bytes <= MAX_UNCOUNTED_BYTES : this.get(name) !== undefined) return true;
    return this.#memory.hasRoomFor(bytes);
  }

  get(name: string): NamedStatement | undefined {
    return this.#names?.named.get(name);
  }

  /** @returns a function that undoes it, in case the backend fails or ignores the request */
  set(name: string, statement: NamedStatement): () => void {
    this.#names ??= { named: new Map(), byServer: new Map(), former: undefined };
    return this.#change(this.#names, name, statement);
  }

  /** @returns as {@link set} */
  delete(name: string): () => void {
    return this.#names === undefined ? () => {} : this.#change(this.#names, name, undefined);
  }

  /** The server has answered: its unnamed statement is now this one, or none. */
  unnamedSettled(statement: UnnamedStatement | undefined): void {
    // Another request with the same outcome may have been undone, and this change with it by mistake.
    this.#changeUnnamed(this.unnamed === this.settledUnnamed ? statement : this.unnamed, statement);
  }

  /** @param failed PostgreSQL destroys the old statement before it parses the new one; a request that was ignored leaves the old one */
  unnamedUndone(statement: UnnamedStatement | undefined, failed: boolean): void {
    const { unnamed } = this;
    const isCurrent = unnamed === statement || unnamed === this.settledUnnamed;
    const settled = failed ? undefined : this.settledUnnamed;
    this.#changeUnnamed(isCurrent ? settled : unnamed, settled);
  }

  /** @returns the client's name for a server statement; empty if the client has no name for it */
  nameOf(serverName: string): string {
    const found = this.#names?.byServer.get(serverName) ?? this.#names?.former?.get(serverName) ?? '';
    return typeof found === 'string' ? found : firstOf(found);
  }

  get hasNames(): boolean {
    return this.#names !== undefined && this.#names.named.size > 0;
  }

  entries(): Iterable<[string, NamedStatement]> {
    return this.#names?.named ?? [];
  }

  /** The client now relies on what it was told of a statement. */
  used(name: string): void {
    const statement = this.#names?.named.get(name);
    if (statement !== undefined) statement.isUsed = true;
  }

  /** Makes all names of one server statement refer to another. */
  replace(server: ServerStatement, by: ServerStatement): void {
    for (const [name, statement] of [...this.entries()]) if (statement.server === server) this.set(name, { ...statement, server: by });
  }

  /** Deallocates all named statements. */
  clear(): void {
    const names = this.#names;
    if (names === undefined) return;
    for (const [name, statement] of names.named) rememberFormer(names, name, statement);
    this.#forgetAll();
  }

  /** The session is over. Undoing a request has no effect any more. */
  end(): void {
    this.#forgetAll();
    this.#memory.resizeBy(-this.#unnamedBytes);
    this.unnamed = undefined;
    this.settledUnnamed = undefined;
  }

  #forgetAll(): void {
    for (const [name, statement] of this.entries()) this.#memory.delete(ownBytes(name, statement), statement.server);
    this.#names?.named.clear();
    this.#names?.byServer.clear();
  }

  #change(names: StatementNames, name: string, statement: NamedStatement | undefined): () => void {
    const { named } = names;
    const before = named.get(name);
    this.#put(names, name, statement);
    rememberFormer(names, name, before);
    return () => {
      rememberFormer(names, name, named.get(name));
      this.#put(names, name, before);
    };
  }

  #put(names: StatementNames, name: string, statement: NamedStatement | undefined): void {
    if (this.#session.isOver) return;
    const { named } = names;
    const before = named.get(name);
    if (before !== undefined) {
      this.#memory.delete(ownBytes(name, before), before.server);
      forgetServerName(names, name, before);
    }
    if (statement === undefined) named.delete(name);
    else {
      named.set(name, statement);
      this.#memory.add(ownBytes(name, statement), statement.server);
      noteServerName(names, name, statement);
    }
  }
}

function firstOf(names: ReadonlySet<string>): string {
  const [first = ''] = names;
  return first;
}

function noteServerName({ byServer }: StatementNames, name: string, { server }: NamedStatement): void {
  const serverName = server.name.toString('latin1');
  const names = byServer.get(serverName);
  if (names === undefined) byServer.set(serverName, name);
  else if (typeof names === 'string') byServer.set(serverName, new Set([names, name]));
  else names.add(name);
}

function forgetServerName({ byServer }: StatementNames, name: string, { server }: NamedStatement): void {
  const serverName = server.name.toString('latin1');
  const names = byServer.get(serverName);
  if (typeof names === 'object' && names.size > 1) names.delete(name);
  else byServer.delete(serverName);
}

const BYTES_PER_CHARACTER = 2;
/** The memory that an audited text needs in addition to its recorded beginning. */
const AUDITED_BYTES = 256;

function ownBytes(name: string, { watched }: NamedStatement): number {
  return name.length + (watched === undefined ? 0 : AUDITED_BYTES + BYTES_PER_CHARACTER * watched.recorded.sql.length);
}

/** The memory of an unnamed statement that it shares with no other, if it is large enough to be counted. */
function countedBytes(statement: UnnamedStatement | undefined): number {
  if (statement === undefined || statement.server !== undefined) return 0;
  const { length } = statement.definition;
  return length > MAX_UNCOUNTED_BYTES ? length : 0;
}
