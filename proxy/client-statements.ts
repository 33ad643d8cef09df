import { Buffer } from 'node:buffer';
import type { ReplyQueue } from '../src/backend/reply-queue.ts';
import type { PreparedStatements, ServerStatement, SessionState } from '../src/backend/session-state.ts';
import type { Counted } from '../src/catalog/statement-counters.ts';
import { BackendType, decodeTextRow, type StatementShape, statementShape, UNKNOWN_SHAPE } from '../src/protocol/backend.ts';
import { type FrameScanner, HEADER_BYTES, latin1String, stringEnd } from '../src/protocol/framing.ts';
import { FrontendType, queryText, statementNameStart } from '../src/protocol/frontend.ts';
import { BoundedMap } from '../src/runtime/bounded-map.ts';
import type { MemoryBounds, MemoryReservation } from '../src/runtime/memory-budget.ts';
import type { Edits } from '../src/syntax/edits.ts';
import { type SessionTraits, sessionTraitsOf } from '../src/syntax/session-traits.ts';
import type { AuditedText } from './audited-text.ts';
import type { ParameterSignal } from './process-ids.ts';

/** NAMEDATALEN - 1: PostgreSQL keeps and compares this many bytes of the names of statements and portals. */
const NAME_MAX_BYTES = 63;

/** The name of a statement or portal that starts there, as Latin-1, as far as PostgreSQL reads it. @param end the offset behind it */
export function protocolName(buffer: Buffer, start: number, end: number): string {
  return latin1String(buffer, start, Math.min(end, start + NAME_MAX_BYTES));
}

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
  /** What is known of it besides, if SQL has prepared it. */
  readonly bySql?: { readonly statement: string | undefined };
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

/** Lies before all batches. */
const NEVER = -1;

/** The last batch that changed something, and the last one before it. */
interface ChangingBatches {
  last: number;
  before: number;
}

interface NameChanges extends ChangingBatches {
  /** The batch in which each name was changed last. */
  readonly byName: Map<string, number>;
}

interface Deallocations extends ChangingBatches {
  /** The batch with an unanswered Execute that may deallocate all names; {@link NEVER} if there is none. */
  executeIn: number;
  /** Names defined since that Execute, as Latin-1. */
  givenSince: Set<string> | undefined;
}

function noteBatch(batches: ChangingBatches, batch: number): void {
  if (batch > batches.last) batches.before = batches.last;
  batches.last = batch;
}

/** The last batch before this one that changed something. */
function lastBefore(batches: ChangingBatches | undefined, batch: number): number {
  if (batches === undefined) return NEVER;
  return batches.last < batch ? batches.last : batches.before;
}

/**
 * Statement names that unanswered requests define or close. The requests up to a Sync are one batch: if one fails, the server
 * ignores the rest. So a later batch cannot know what a name refers to until the earlier one has been answered, nor whether
 * the server has the statement.
 */
export class PendingNames {
  readonly #statements: ClientStatements;
  readonly #queue: ReplyQueue;
  /** The changes of names. Most sessions never need these. */
  #named: NameChanges | undefined;
  /** The batch in which the unnamed statement was changed last. */
  #unnamed = NEVER;
  /** What may have deallocated all names; undefined for clients that never do that. Only this class sets it. */
  deallocations: Deallocations | undefined;
  /** The batch for whose end the client has to wait. */
  #awaited = NEVER;

  constructor(statements: ClientStatements, queue: ReplyQueue) {
    this.#statements = statements;
    this.#queue = queue;
  }

  /** The next message defines or closes a name (as Latin-1; empty: the unnamed statement). */
  changes(name: string): void {
    const { batch, oldestBatch } = this.#queue;
    if (name === '') {
      this.#unnamed = batch;
      return;
    }
    if (this.#named === undefined || this.#named.last < oldestBatch) this.#named = { last: NEVER, before: NEVER, byName: new Map() };
    this.#named.byName.set(name, batch);
    noteBatch(this.#named, batch);
  }

  /** The next message prepares a server statement. */
  prepares({ name }: ServerStatement): void {
    this.changes(name.toString('latin1'));
  }

  /** Whether an unanswered earlier batch prepares or closes this server statement. */
  isUnsettled({ name }: ServerStatement): boolean {
    const { batch, oldestBatch } = this.#queue;
    if (oldestBatch === batch) return false;
    const changed = this.#changedIn(name.toString('latin1'));
    return changed >= oldestBatch && changed < batch;
  }

  /** The next message may deallocate all names. */
  changesAll(): void {
    noteBatch(this.#deallocated(), this.#queue.batch);
  }

  #deallocated(): Deallocations {
    this.deallocations ??= { last: NEVER, before: NEVER, executeIn: NEVER, givenSince: undefined };
    return this.deallocations;
  }

  /** Whether an unanswered Execute may deallocate all names. */
  get mayAllBeGone(): boolean {
    return this.deallocations !== undefined && this.deallocations.executeIn !== NEVER;
  }

  /** The next message is an Execute that deallocates all names. */
  executesDeallocateAll(): void {
    const deallocations = this.#deallocated();
    deallocations.executeIn = this.#queue.batch;
    deallocations.givenSince = undefined;
  }

  /** The next message defines a name. */
  gives(name: string): void {
    const deallocations = this.deallocations;
    if (deallocations === undefined || deallocations.executeIn === NEVER) return;
    deallocations.givenSince ??= new Set();
    deallocations.givenSince.add(name);
  }

  /** Whether the next message in the batch cannot find the name: all names were deallocated, or the server ignores the message. */
  hasTaken(name: string): boolean {
    const deallocations = this.deallocations;
    return deallocations !== undefined && deallocations.executeIn === this.#queue.batch && deallocations.givenSince?.has(name) !== true;
  }

  /** All requests have been answered. */
  settled(): void {
    this.deallocations = undefined;
  }

  /** Whether the scanner's message refers to a name whose meaning depends on replies that have not arrived. */
  mustWait({ type, buffer, start, end, last }: FrameScanner): boolean {
    if (type === FrontendType.Query)
      return this.#awaits(this.#anyChanged) && last && speaksOfNames(sessionTraitsOf(queryText(buffer.subarray(start, end))));
    const nameStart = statementNameStart(buffer, start, end);
    const nameEnd = nameStart < 0 ? -1 : stringEnd(buffer, nameStart, end);
    if (nameEnd < 0) return false;
    const isUnnamed = nameEnd === nameStart;
    if (
      type === FrontendType.Parse &&
      this.#awaits(this.#anyChanged) &&
      speaksOfNames(sessionTraitsOf(latin1String(buffer, nameEnd + 1, end)))
    )
      return true;
    if (isUnnamed && (type === FrontendType.Parse || type === FrontendType.Close)) return false;
    const name = protocolName(buffer, nameStart, nameEnd);
    const traits = (isUnnamed ? this.#statements.unnamed : this.#statements.get(name))?.traits;
    if (traits !== undefined && type === FrontendType.Bind && speaksOfNames(traits) && this.#awaits(this.#anyChanged)) return true;
    return this.#awaits(isUnnamed ? this.#unnamed : Math.max(this.#changedIn(name), this.#servedIn(name), this.#allChanged));
  }

  /** The last batch before the current one that changed any name. */
  get #anyChanged(): number {
    return Math.max(lastBefore(this.#named, this.#queue.batch), this.#allChanged);
  }

  /** The last batch before the current one that may have deallocated all names. */
  get #allChanged(): number {
    return lastBefore(this.deallocations, this.#queue.batch);
  }

  #changedIn(name: string): number {
    return this.#named?.byName.get(name) ?? NEVER;
  }

  /** The batch in which the name's statement was prepared on the server. */
  #servedIn(name: string): number {
    const server = this.#statements.get(name)?.server;
    return server === undefined ? NEVER : this.#changedIn(server.name.toString('latin1'));
  }

  /** Makes the next message wait for all earlier batches. */
  waitForAll(): boolean {
    return this.#awaits(this.#queue.batch - 1);
  }

  /** The message that had to wait still has to. */
  get isWaiting(): boolean {
    return this.#isOwed(this.#awaited);
  }

  #awaits(batch: number): boolean {
    if (batch >= this.#queue.batch || !this.#isOwed(batch)) return false;
    this.#awaited = batch;
    return true;
  }

  /** During COPY FROM STDIN nothing waits, because the server needs the data to go on. */
  #isOwed(batch: number): boolean {
    return batch >= this.#queue.oldestBatch && !this.#queue.copyIn;
  }
}

/** DEALLOCATE ALL depends on no particular name. */
function speaksOfNames({ namesPrepared, deallocates, deallocatesAll }: SessionTraits): boolean {
  return namesPrepared || (deallocates && !deallocatesAll);
}

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

/** A statement that is unnamed for the client and has a name on the server. */
export interface RepeatedStatement extends UnnamedStatement {
  readonly server: ServerStatement;
}

interface RecentParse {
  /** The whole message. */
  readonly message: Buffer;
  readonly context: string;
  /** The registry's generation when the statement was found there. */
  readonly generation: number;
  readonly statement: RepeatedStatement;
}

/** The position of a message in a buffer. */
type Fragment = Pick<FrameScanner, 'buffer' | 'start' | 'end'>;

const SLOTS = 64;

/**
 * The statements that an organization's clients parsed recently, by the bytes of the Parse message. The same bytes in the
 * same context are the same statement, so they are not inspected again.
 */
export class ParseCache {
  readonly #slots: (RecentParse | undefined)[] = new Array(SLOTS).fill(undefined);

  find({ buffer, start, end }: Fragment, context: string | undefined, generation: number): RepeatedStatement | undefined {
    const recent = this.#slots[slotOf(buffer, start, end)];
    if (recent === undefined || recent.context !== context || recent.generation !== generation) return undefined;
    return recent.message.compare(buffer, start, end) === 0 ? recent.statement : undefined;
  }

  keep({ buffer, start, end }: Fragment, context: string, generation: number, statement: RepeatedStatement): void {
    const message = Buffer.from(buffer.subarray(start, end));
    this.#slots[slotOf(buffer, start, end)] = { message, context, generation, statement };
  }
}

/** The statements of one program usually differ in their length or in their middle byte. */
function slotOf(buffer: Buffer, start: number, end: number): number {
  return (end - start + 7 * (buffer[(start + end) >> 1] ?? 0)) % SLOTS;
}

/** A thousand clients, each with two hundred statements of fifty bytes that no other client has, need about this much. */
export const STATEMENT_BOUNDS: MemoryBounds = { perOrganizationBytes: 64 * 1024 * 1024, allBytes: Number.POSITIVE_INFINITY };
/** The memory that a name needs in addition to its bytes. */
const NAME_BYTES = 256;

/** Counts the memory that the prepared statements of an organization's clients need. A definition counts once, however many names it has. */
export class StatementMemory {
  readonly #reservation: MemoryReservation;
  /** The number of names that each statement has. */
  readonly #names = new Map<ServerStatement, number>();

  /** @param held the organization's reservation */
  constructor(reservation: MemoryReservation) {
    this.#reservation = reservation;
  }

  /** Whether the memory limit allows a Parse of this size to be kept. */
  hasRoomFor(bytes: number): boolean {
    return this.#reservation.exhaustedBy(NAME_BYTES + bytes) === undefined;
  }

  /** The statements need this many bytes more; fewer, if negative. */
  resizeBy(bytes: number): void {
    this.#reservation.resize(this.#reservation.bytes + bytes);
  }

  /** @param ownBytes the memory that belongs to this name alone: its own bytes and what is kept with it */
  add(ownBytes: number, statement: ServerStatement): void {
    const names = this.#names.get(statement) ?? 0;
    this.#names.set(statement, names + 1);
    this.resizeBy(NAME_BYTES + ownBytes + (names === 0 ? statement.definition.length : 0));
  }

  /** @param ownBytes as in {@link add} */
  delete(ownBytes: number, statement: ServerStatement): void {
    const names = this.#names.get(statement) ?? 0;
    if (names > 1) this.#names.set(statement, names - 1);
    else this.#names.delete(statement);
    this.resizeBy(-NAME_BYTES - ownBytes - (names > 1 ? 0 : statement.definition.length));
  }
}

/** A Describe whose reply the client's next message waits for, and what that message finds when it is handled again. */
export interface ShapeQuestion {
  readonly reply: DescribeReply;
  /** The server statement of the name that the message uses. */
  named: { readonly name: string; readonly server: ServerStatement } | undefined;
  /** The statement, if the backend has described it differently from what clients were told. */
  changed: object | undefined;
}

/** Stands beside a Describe in the reply queue, and reads its reply. */
export class DescribeReply {
  readonly own = 'shape';
  /** The client's next request waits for the reply. */
  readonly isAwaited: boolean;
  readonly #told: (shape: StatementShape) => void;
  /** Undefined for a portal. */
  #parameters: Buffer | undefined;
  #shape: StatementShape | undefined;
  #isOver = false;

  /** @param told is called with the statement's shape, unless the Describe fails or is ignored */
  constructor(told: (shape: StatementShape) => void, isAwaited = false) {
    this.#told = told;
    this.isAwaited = isAwaited;
  }

  /** The reply has arrived, or never will. */
  get isOver(): boolean {
    return this.#isOver;
  }

  /** Reads a ParameterDescription, then a RowDescription or NoData. A message that is too long is incomplete. */
  read({ type, buffer, start, end, last }: FrameScanner): void {
    if (!last) this.#shape = UNKNOWN_SHAPE;
    const body = buffer.subarray(start + HEADER_BYTES, end);
    if (type === BackendType.ParameterDescription) this.#parameters = Buffer.from(body);
    else this.#shape ??= statementShape(this.#parameters, type === BackendType.NoData ? undefined : body);
  }

  done(): void {
    this.#isOver = true;
    this.#told(this.#shape ?? UNKNOWN_SHAPE);
  }

  dropped(): void {
    this.#isOver = true;
  }
}

/** As {@link DescribeReply}, for the question how the server reads strings. It stands beside the last message of the question. */
export class StringsReply extends DescribeReply {
  areStandard = true;

  constructor(told: (areStandard: boolean) => void) {
    super(() => told(this.areStandard), true);
  }

  /** @param body of a DataRow */
  row(body: Buffer): void {
    this.areStandard = decodeTextRow(body, 0)[0] !== 'off';
  }
}

/** Records the shape that the client is told of its unnamed statement, which may be prepared on another backend later. */
export function shapeOf(unnamed: UnnamedStatement, batch: number): DescribeReply {
  unnamed.describedIn = batch;
  return new DescribeReply((shape) => {
    if (unnamed.shape?.parametersDigest === undefined) unnamed.shape = shape;
  });
}

/** As {@link shapeOf}, for a Describe of the unnamed portal. */
export function shapeOfPortal(
  unnamed: UnnamedStatement | undefined,
  batch: number,
  { buffer, start, end }: FrameScanner,
): DescribeReply | undefined {
  const nameStart = start + HEADER_BYTES + 1;
  const isOfUnnamed = unnamed?.hasPortal === true && unnamed.server === undefined && unnamed.shape === undefined;
  if (!isOfUnnamed || nameStart >= end || buffer[nameStart - 1] !== PORTAL || buffer[nameStart] !== 0) return undefined;
  unnamed.describedIn = batch;
  return new DescribeReply((shape) => {
    if (shape !== UNKNOWN_SHAPE) unnamed.shape ??= shape;
  });
}

/** What a Describe is about. */
const PORTAL = 0x50;
