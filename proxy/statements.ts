import type { BackendConnection } from '../src/backend/connection.ts';
import { Disposition, Request, type RequestKind } from '../src/backend/reply-queue.ts';
import { definitionToReprepare, type ServerStatement, type SessionState } from '../src/backend/session-state.ts';
import type { Counted } from '../src/catalog/statement-counters.ts';
import { ServiceError } from '../src/errors.ts';
import { type ErrorFields, isSameShape } from '../src/protocol/backend.ts';
import { type FrameScanner, HEADER_BYTES, latin1String, stringEnd } from '../src/protocol/framing.ts';
import {
  CLOSE_UNNAMED_PORTAL,
  FrontendType,
  parseMessage,
  queryMessage,
  statementNameStart,
  withStatementName,
} from '../src/protocol/frontend.ts';
import {
  canBePreparedAgain,
  isPreparable,
  mayChangeObjects,
  NO_TRAITS,
  prepareStatements,
  type SessionTraits,
  sessionTraitsOf,
  traitsOfBeginning,
} from '../src/syntax/session-traits.ts';
import { MAX_KEPT_DEFINITION_BYTES, PIECE_BYTES } from './audited-text.ts';
import {
  ClientStatements,
  type Effect,
  NamedParse,
  type NamedStatement,
  type ParseEffect,
  PendingNames,
  protocolName,
  type RepeatedStatement,
  SentParse,
  type StringsReply,
  shapeOf,
  shapeOfPortal,
  shapeTold,
  UnnamedChange,
  type UnnamedStatement,
} from './client-statements.ts';
import type { Inspected, Inspection, RequestEnd } from './inspection.ts';
import type { FoundStatements } from './pins.ts';
import { NO_SIGNALS } from './process-ids.ts';
import { type ShownRows, shownRows } from './reply-rewriting.ts';
import { ServerStatements, type StatementsSession } from './server-statements.ts';
import { SqlStatements } from './sql-statements.ts';

const NO_NAME = Buffer.alloc(0);
const OVERSIZED = { definition: NO_NAME, isOversized: true, changed: false, edits: [], signals: [], deallocates: [] };
const TRANSACTION_END = /^\s*(?:rollback|commit|end|abort|prepare\s+transaction)\b/i;

/** Longer texts are not looked up in the registry. */
const MAX_LOOKED_UP_BYTES = 16_384;

const PREPARE = /\bprepare\b/i;
/** Of longer texts the names are not looked for. */
const PREPARE_MAX_CHARACTERS = 65_536;

function preparedNames(text: string, { options }: Inspection): readonly string[] {
  return text.length > PREPARE_MAX_CHARACTERS ? [] : [...prepareStatements(text, options)].map(({ name }) => name);
}

function differs({ shape }: ServerStatement, { shape: told }: ServerStatement): boolean {
  return shape !== undefined && told !== undefined && !isSameShape(shape, told);
}

const NONE = -1;
/** Of longer texts only the beginning is kept for the list of sessions. */
const SHOWN_MAX_CHARACTERS = 8_192;
/** The messages with which a request can begin. */
const REQUEST_STARTS: ReadonlySet<number> = new Set([
  FrontendType.Query,
  FrontendType.Parse,
  FrontendType.Bind,
  FrontendType.Describe,
  FrontendType.Execute,
  FrontendType.Close,
  FrontendType.FunctionCall,
]);

/** The portal name in a Bind or an Execute, as Latin-1. */
function portalName({ buffer, start, end }: FrameScanner): string {
  return protocolName(buffer, start + HEADER_BYTES, end);
}

/** Whether one of the parameters may name the schema. */
function mentionsPublic({ buffer, start, end }: FrameScanner): boolean {
  return buffer.subarray(start, end).includes('public');
}

/** @param definition shares the message's memory and begins with the text; a caller that keeps it makes a copy */
function preparedOf(
  { traits, audited, sent, edits, signals, hasEscapes, deallocates }: Inspected,
  text: string,
  definition: Buffer,
): UnnamedStatement {
  const changed = sent !== text;
  return {
    definition: changed ? Buffer.concat([Buffer.from(sent, 'latin1'), definition.subarray(text.length)]) : definition,
    changed,
    traits,
    edits,
    signals,
    hasEscapes,
    deallocates,
    watched: audited,
  };
}

/** Portals that need special treatment. Names are Latin-1 strings. */
interface SpecialPortals {
  /** The portal whose execution deallocates all prepared statements. */
  deallocating: string | undefined;
  /** The portal bound last, if its rows are changed for the client. */
  shown: { readonly portal: string; readonly rows: ShownRows } | undefined;
  /** A Bind since the last Query or Sync has replaced the unnamed portal that a failed Query may have left. */
  replacesDangling: boolean;
}

/**
 * The statements and portals of a wire session: those that its client has prepared, by name and without one, and those that take their
 * places on its backend. It forwards the messages that are about them.
 */
export class Statements {
  readonly #session: StatementsSession;
  readonly #client: ClientStatements;
  readonly #names: PendingNames;
  readonly #server: ServerStatements;
  readonly #sql: SqlStatements;
  #portals: SpecialPortals | undefined;
  /** A statement was used that Postern has prepared itself. */
  #usesRepeated = false;
  /** The last batch whose Query or FunctionCall has come without a Sync behind extended-protocol messages. */
  #joinedBatch = NONE;
  #count = 0;
  /** The text sent last, as Latin-1, or the definition bound last. */
  #sent: string | Buffer | undefined;
  #isSentWhole = true;
  #sentBatch = NONE;

  constructor(session: StatementsSession) {
    this.#session = session;
    this.#client = new ClientStatements(session.services.statementMemory, session);
    this.#names = new PendingNames(this.#client, session.replies);
    this.#sql = new SqlStatements(session);
    this.#server = new ServerStatements(session, this.#client, this.#names, this.#sql);
  }

  /* What others ask. */

  get(name: string): NamedStatement | undefined {
    return this.#client.get(name);
  }

  /** @returns the client's name for a server statement; empty if the client has no name for it */
  nameOf(serverName: string): string {
    return this.#client.nameOf(serverName) || this.#sql.nameOf(serverName);
  }

  /* Those that SQL prepares. */

  /** The session has got this backend. */
  backendTaken(state: SessionState): void {
    this.#sql.taken(state);
  }

  /** The session gives it up. */
  backendLeft(state: SessionState): void {
    if (!this.#sql.isEmpty) this.#sql.left(state);
  }

  /** The server has been asked what the session has on its backend. */
  found(statements: FoundStatements): void {
    const { backend } = this.#session;
    if (backend !== undefined) this.#sql.found(statements, backend.session);
  }

  /** As {@link ServerStatements.describeBySql}. */
  describeBySql(): boolean {
    return this.#server.describeBySql();
  }

  /** As {@link SqlStatements.mustStay}. */
  mustStay({ session }: BackendConnection): boolean {
    return this.#sql.mustStay(session);
  }

  /** Whether an unanswered Execute may deallocate all names. */
  get mayAllBeGone(): boolean {
    return this.#names.mayAllBeGone;
  }

  /** The input that was handled last has used a statement that Postern has prepared itself. */
  get usesRepeated(): boolean {
    return this.#usesRepeated;
  }

  /** As {@link ServerStatements.awaitedStrings}. */
  get awaitedStrings(): StringsReply | undefined {
    return this.#server.awaitedStrings;
  }

  /** As {@link ServerStatements.refusalOf}. */
  refusalOf(error: ErrorFields): ErrorFields | undefined {
    return this.#server.refusalOf(error);
  }

  /** The text sent last, as Latin-1, or the definition bound last; undefined once all has been answered. */
  get sent(): string | Buffer | undefined {
    return this.#sent;
  }

  /** It is not only the beginning of one. */
  get isSentWhole(): boolean {
    return this.#isSentWhole;
  }

  /** It may be what the backend runs: nothing has been sent behind its batch. */
  get mayRunSent(): boolean {
    const { replies } = this.#session;
    // The server ignores a Sync that goes out with the Execute of a COPY FROM STDIN.
    return this.#sentBatch === replies.oldestBatch || replies.copyIn;
  }

  /** How many statements the client has had executed. */
  get count(): number {
    return this.#count;
  }

  /** Whether a Query or FunctionCall that has come behind extended-protocol messages, without a Sync between, is being answered. */
  get isAnsweringJoined(): boolean {
    return this.#joinedBatch === this.#session.replies.oldestBatch;
  }

  /* Whether the client's next message has to wait. */

  /** Whether the scanner's message has to wait until earlier requests have been answered. */
  mustWait(scanner: FrameScanner): boolean {
    const session = this.#session;
    const { replies } = session;
    if (!scanner.first) return false;
    if (replies.oldestBatch === replies.batch) return session.unknownStringsBatch === replies.batch && this.#server.awaitsStrings(scanner);
    return (
      this.#server.awaitsStrings(scanner) ||
      this.#followsReset(scanner) ||
      (this.#joinedBatch >= replies.oldestBatch && this.#names.waitForAll()) ||
      this.#names.mustWait(scanner)
    );
  }

  /** RESET and DISCARD go back to the server's defaults. The client's startup settings are restored before its next request. */
  #followsReset({ type }: FrameScanner): boolean {
    const { pins, hasUnsynced } = this.#session;
    return pins.settingsState === 'reset' && !hasUnsynced && REQUEST_STARTS.has(type) && this.#names.waitForAll();
  }

  /** The message that had to wait still has to. */
  get isWaiting(): boolean {
    return this.#names.isWaiting || this.#server.isWaiting;
  }

  /** As {@link ServerStatements.awaitsStrings}. */
  awaitsStrings(scanner: FrameScanner): boolean {
    return this.#server.awaitsStrings(scanner);
  }

  /** The next message waits until all that has been sent is answered. */
  waitForAll(): void {
    this.#names.waitForAll();
  }

  /* The client's messages. */

  /** Input is going to be handled. */
  inputBegins(): void {
    this.#usesRepeated = false;
  }

  /** A message is going to be forwarded. */
  messageBegins(backend: BackendConnection): void {
    if (this.#names.deallocations !== undefined && this.#session.startsPipeline) this.#names.settled();
    if (backend.session.staleNames.size > 0 && this.#session.startsPipeline) this.#server.closeStaleNames(backend);
  }

  bind(scanner: FrameScanner, backend: BackendConnection): boolean {
    this.#noteBind(scanner);
    const isSent = this.#forwardNamed(scanner, backend, Request.bind);
    if (isSent) this.#session.services.usage.totals.counted.binds += 1;
    return isSent;
  }

  describe(scanner: FrameScanner, backend: BackendConnection): boolean {
    return this.#forwardNamed(scanner, backend, Request.describe);
  }

  sync(): void {
    const session = this.#session;
    session.unsyncedBatch = NONE;
    if (this.#portals !== undefined) this.#portals.replacesDangling = false;
    session.replies.push(Request.sync, Disposition.forward, session.inspection.isAuditing ? session.inspection.endRequest() : undefined);
  }

  /** A FunctionCall. @param traits those of a text that calls the function by name @returns false if it has to wait */
  call(traits: SessionTraits): boolean {
    if (this.#server.mustEndPipeline(traits, true)) return false;
    this.#countStatement();
    this.#server.sendTraits(traits);
    this.#noteJoined();
    this.#session.replies.push(Request.call, Disposition.forward, this.#session.inspection.endRequest());
    return true;
  }

  #pass({ buffer, start, end }: FrameScanner): void {
    const { toBackend } = this.#session;
    toBackend.add(buffer, start, end);
  }

  #countStatement(): void {
    this.#count += 1;
    this.#session.services.usage.statements += 1;
  }

  /** Notes that an extended-protocol message will be answered. */
  #expectReply(kind: RequestKind, subject?: unknown, counted?: Counted): void {
    const session = this.#session;
    session.unsyncedBatch = session.replies.batch;
    session.replies.push(kind, Disposition.forward, subject, counted);
  }

  #noteSent(text: string | Buffer | undefined, isWhole: boolean): void {
    this.#sent = text;
    this.#isSentWhole = isWhole;
    this.#sentBatch = this.#session.replies.batch;
  }

  /** Notes that a Query or FunctionCall is no request of its own. */
  #noteJoined(): void {
    const session = this.#session;
    const { replies } = session;
    if (session.unsyncedBatch === replies.batch || replies.missingSync === 'ignored') this.#joinedBatch = replies.batch;
  }

  /** A Query also destroys the unnamed statement, of the client and of the backend. @returns false if it has to wait */
  query(scanner: FrameScanner, backend: BackendConnection): boolean {
    const session = this.#session;
    const { replies, toBackend, inspection } = session;
    if (this.#portals !== undefined) this.#portals.replacesDangling = false;
    const { buffer, start, last } = scanner;
    const maxBytes = inspection.beginning === undefined ? MAX_KEPT_DEFINITION_BYTES : PIECE_BYTES;
    const isWhole = last && scanner.length <= maxBytes;
    const end = isWhole ? scanner.end - 1 : Math.min(scanner.end, start + maxBytes);
    const text = buffer.toString('latin1', start + HEADER_BYTES, end);
    inspection.demandWhole(scanner);
    const inspected = inspection.inspect(text, isWhole);
    if (inspection.awaitsBlockers(inspected)) return false;
    const { traits, sent, edits, deallocates } = inspected;
    if (session.unsyncedBatch === replies.batch && this.#server.mustEndPipeline(isWhole ? traits : sessionTraitsOf(text), true))
      return false;
    if (this.#server.awaitsSessions(traits) || this.#server.awaitsClientNames(traits)) return false;
    if (isWhole) this.#server.sendText(inspected);
    else this.#server.sendLongText(text, inspected, scanner, end);
    if (traits.listsSessions) this.#server.tellSessions(backend);
    const isShownWhole = isWhole && text.length <= SHOWN_MAX_CHARACTERS;
    this.#noteSent(isShownWhole ? text : this.#beginningOf(text), isShownWhole);
    if (traits.deallocatesAll) this.#names.changesAll();
    if (this.#client.unnamed !== undefined || this.#client.settledUnnamed !== undefined) this.#names.changes('');
    if (deallocates.length > 0) for (const name of this.#server.preparePlaceholders(deallocates, backend)) this.#names.changes(name);
    if (isWhole && !this.#sql.isEmpty && PREPARE.test(text)) this.#server.takeNames(preparedNames(sent, inspection), deallocates, backend);
    if (replies.missingSync !== 'discarding') {
      if (this.#client.unnamed !== undefined) this.#client.setUnnamed(undefined);
      backend.session.unnamed = undefined;
    }
    this.#noteJoined();
    const isPlain = traits === NO_TRAITS && !inspection.isAuditing && edits.length === 0;
    const requestEnd = isPlain ? undefined : inspection.endRequest(deallocates, edits, traits.shows);
    replies.push(Request.query, Disposition.forward, requestEnd, session.counting.query(text));
    this.#countStatement();
    if (sent === text) this.#pass(scanner);
    else toBackend.insert(queryMessage(Buffer.from(sent, 'latin1')));
    return true;
  }

  /** A copy, so that long texts are not kept. */
  #beginningOf(text: string): string {
    const { inspection } = this.#session;
    return inspection.beginning ?? Buffer.from(text.slice(0, SHOWN_MAX_CHARACTERS), 'latin1').toString('latin1');
  }

  /** Bind, and Describe of a statement, under the name that the statement has on the server. @returns false if it has to wait */
  #forwardNamed(scanner: FrameScanner, backend: BackendConnection, kind: typeof Request.bind | typeof Request.describe): boolean {
    const session = this.#session;
    const { buffer, start, end } = scanner;
    const nameStart = statementNameStart(buffer, start, end);
    const nameEnd = nameStart < 0 ? -1 : stringEnd(buffer, nameStart, end);
    if (nameEnd < 0) {
      this.#expectReply(kind, kind === Request.describe ? shapeOfPortal(this.#client.unnamed, session.replies.batch, scanner) : undefined);
      this.#pass(scanner);
      return true;
    }
    const isNamed = nameEnd > nameStart;
    const { replies } = session;
    const { unnamed } = this.#client;
    const name = protocolName(buffer, nameStart, nameEnd);
    const named = isNamed ? this.#statementNamed(name) : undefined;
    const statement = isNamed ? named : unnamed;
    const traits = statement === undefined && isNamed ? this.#sql.get(name)?.traits : statement?.traits;
    if (traits !== undefined) {
      if (this.#server.mustEndPipeline(traits) || (kind === Request.bind && this.#server.awaitsSessions(traits))) return false;
      if (this.#server.awaitsClientNames(traits)) return false;
    }
    if (kind === Request.bind) this.#server.bound();
    this.#server.sendTraits(traits);
    const server = isNamed ? this.#useNamed(name, named, backend, kind) : this.#useUnnamed(backend, kind);
    if (server === 'asked' || server === 'changed') {
      session.unsyncedBatch = session.replies.batch;
      if (server === 'changed')
        this.#server.refuseChanged(kind, isNamed ? (named?.first?.shape ?? named?.server.shape) : unnamed && shapeTold(unnamed));
      return server === 'changed';
    }
    if (kind === Request.bind) {
      if (traits?.listsSessions === true) this.#server.tellSessions(backend);
      if (statement !== undefined) session.inspection.signalsOf(statement.signals, scanner);
      if (statement?.watched !== undefined) session.inspection.runs(statement.watched);
      else if (statement === undefined && isNamed) session.inspection.runsOversized(name);
      this.#noteSent(server?.definition ?? (isNamed ? undefined : unnamed?.definition), true);
      this.#portalBound(scanner, statement?.traits);
      session.counting.bound(scanner, server, isNamed ? undefined : unnamed);
      if (unnamed !== undefined) {
        if (buffer[start + HEADER_BYTES] === 0) unnamed.hasPortal = !isNamed;
        unnamed.isBound = !isNamed && unnamed.server === undefined;
      }
      this.#expectReply(kind, this.#deallocationOf(statement?.deallocates, backend));
    } else this.#expectReply(kind, isNamed || unnamed === undefined || server !== undefined ? undefined : shapeOf(unnamed, replies.batch));
    // The server refuses a name that the client has not prepared.
    if (server === undefined) this.#pass(scanner);
    else session.toBackend.insert(withStatementName(buffer, start, end, server.name));
    return true;
  }

  /** @returns the server statement; undefined if the server knows the statement by the client's own name */
  #useNamed(
    name: string,
    named: NamedStatement | undefined,
    backend: BackendConnection,
    kind: RequestKind,
  ): ServerStatement | 'asked' | 'changed' | undefined {
    const session = this.#session;
    // A statement that lists prepared statements must not appear among them under a name of Postern's.
    if (named?.traits.listsPrepared === true && backend.session.staleNames.has(name)) return undefined;
    if (named === undefined) {
      this.#server.closeIfStale(Buffer.from(name, 'latin1'), backend);
      return undefined;
    }
    if (kind === Request.describe && this.#server.describesPlaceholder(name, named, backend)) {
      session.timed = 'none';
      this.#client.used(name);
      return undefined;
    }
    const server = this.#resolveStatement(name, named, backend);
    if (server === 'asked' || server === 'changed') return server;
    this.#noteTimed(server);
    if (named.isUsed !== true) this.#client.used(name);
    return server;
  }

  /** @returns as {@link #useNamed} */
  #useUnnamed(backend: BackendConnection, kind: RequestKind): ServerStatement | 'asked' | 'changed' | undefined {
    const session = this.#session;
    const { unnamed } = this.#client;
    const server = unnamed?.server;
    // One of an earlier request is used as an unnamed statement, because its tables may have changed since then.
    if (server !== undefined && this.#usesRepeated && !this.#names.mayAllBeGone && backend.session.prepared.use(server)) {
      this.#noteTimed(server);
      return server;
    }
    session.timed = 'none';
    if (kind === Request.describe && unnamed !== undefined && this.#server.describesUnnamedPlaceholder(unnamed, backend)) return undefined;
    const readiness = this.#server.ensureUnnamed(backend);
    return readiness === 'ready' ? undefined : readiness;
  }

  #noteTimed(statement: ServerStatement): void {
    const session = this.#session;
    if (session.timed !== 'none') session.timed = statement;
  }

  #statementNamed(name: string): NamedStatement | undefined {
    return this.#names.hasTaken(name) ? undefined : (this.#client.get(name) ?? this.#sql.absent(name, this.#session.backend?.session));
  }

  /** A DEALLOCATE takes effect here when it is bound. */
  #deallocationOf(deallocates: readonly string[] | undefined, backend: BackendConnection): Effect | undefined {
    if (deallocates === undefined || deallocates.length === 0) return undefined;
    const names = this.#server.preparePlaceholders(deallocates, backend);
    for (const name of names) this.#names.changes(name);
    const undos = names.map((name) => this.#ownerOf(name).delete(name));
    return { undo: () => undos.map((undo) => undo()) };
  }

  /** Those of the protocol, or of SQL. */
  #ownerOf(name: string): ClientStatements | SqlStatements {
    return this.#client.get(name) === undefined && this.#sql.get(name) !== undefined ? this.#sql : this.#client;
  }

  execute(scanner: FrameScanner): void {
    const session = this.#session;
    const { replies } = session;
    this.#countStatement();
    session.unknownStringsBatch = replies.batch;
    this.#closeDanglingPortal();
    this.#server.executed();
    const { unnamed } = this.#client;
    if (unnamed?.isBound === true && unnamed.shape === undefined) this.#server.describeUnnamed(unnamed);
    if (this.#deallocatesAll(scanner)) this.#names.executesDeallocateAll();
    if (this.#names.mayAllBeGone) this.#names.changesAll();
    this.#expectReply(Request.execute, this.#shownOf(scanner), session.counting.executed(scanner));
    this.#pass(scanner);
  }

  close(scanner: FrameScanner, backend: BackendConnection): void {
    const session = this.#session;
    const { replies } = session;
    const { buffer, start, end } = scanner;
    const nameStart = statementNameStart(buffer, start, end);
    const name = nameStart < 0 ? undefined : protocolName(buffer, nameStart, stringEnd(buffer, nameStart, end));
    const isKnown = name !== undefined && name !== '' && this.#statementNamed(name) !== undefined;
    session.unsyncedBatch = replies.batch;
    if (isKnown || name === '') this.#names.changes(name);
    if (isKnown) {
      // Other clients may use the statement, so it remains on the server.
      const owner = this.#ownerOf(name);
      let undo = owner.delete(name);
      const redo = () => {
        undo = owner.delete(name);
      };
      replies.push(Request.close, Disposition.simulate, { undo: () => undo(), redo });
      return;
    }
    if (name === '') {
      const change = new UnnamedChange(this.#client, undefined, backend.session);
      change.note();
      replies.push(Request.close, Disposition.forward, change);
    } else {
      // The server is asked afterwards whether SQL's statement with this name is gone.
      if (name !== undefined && this.#sql.get(name) !== undefined) session.pins.suspected = true;
      replies.push(Request.close);
    }
    this.#pass(scanner);
  }

  /**
   * Answers a named Parse without a backend if its statement is proven to be valid. The statement is prepared on the backend
   * that first executes it. So a client that only prepares does not wait for a backend: a program with many connections in one thread
   * (pgbench) may wait for that while its other connections have all backends in transactions, which it cannot end meanwhile.
   * @returns false when the Parse has to go to a backend
   */
  prepareWithoutBackend({ buffer, start, end, length, last }: FrameScanner): boolean {
    const { pins, services, inspection } = this.#session;
    const nameStart = start + HEADER_BYTES;
    if (!last || length > MAX_LOOKED_UP_BYTES || buffer[nameStart] === 0) return false;
    const nameEnd = stringEnd(buffer, nameStart, end);
    if (nameEnd < 0) return false;
    const name = protocolName(buffer, nameStart, nameEnd);
    if (this.#client.get(name) !== undefined || !this.#client.hasRoomFor(name, length)) return false;
    const text = latin1String(buffer, nameEnd + 1, end);
    const { context } = pins;
    if (context === undefined || !canBePreparedAgain(text) || mayChangeObjects(text)) return false;
    const inspected = inspection.inspect(text, true);
    if (inspected.asksBlockers) return false;
    const { definition, traits, signals, deallocates } = preparedOf(inspected, text, buffer.subarray(nameEnd + 1, end));
    const server = services.registry.find(definition, context);
    if (server === undefined || !server.proven) return false;
    inspection.signal(inspected.due);
    this.#client.set(name, { server, traits, signals, deallocates });
    services.usage.totals.counted.parses += 1;
    return true;
  }

  /** Notes a Bind that is forwarded, of any statement. */
  #noteBind({ buffer, start }: FrameScanner): void {
    if (this.#mayDangle() && buffer[start + HEADER_BYTES] === 0) this.#portalsOf().replacesDangling = true;
  }

  #portalsOf(): SpecialPortals {
    this.#portals ??= { deallocating: undefined, shown: undefined, replacesDangling: false };
    return this.#portals;
  }

  /** @param traits those of the bound statement, if Postern knows it */
  #portalBound(bind: FrameScanner, traits: SessionTraits | undefined): void {
    const session = this.#session;
    const shows = traits?.shows ?? (traits?.asksByParameter === true && mentionsPublic(bind) ? 'names' : undefined);
    const rows = shows && shownRows(session.services, shows);
    const isSpecial = traits?.deallocatesAll === true || rows !== undefined;
    if (!isSpecial && this.#portals === undefined) return;
    const portals = this.#portalsOf();
    if (traits?.deallocatesAll === true) portals.deallocating = portalName(bind);
    else if (this.#deallocatesAll(bind)) portals.deallocating = undefined;
    portals.shown = rows === undefined ? undefined : { portal: portalName(bind), rows };
  }

  /** Whether an Execute deallocates all prepared statements. */
  #deallocatesAll(execute: FrameScanner): boolean {
    return this.#portals?.deallocating !== undefined && portalName(execute) === this.#portals.deallocating;
  }

  /** Stands in the reply queue beside an Execute whose rows are changed for the client. */
  #shownOf(execute: FrameScanner): Pick<RequestEnd, 'shown'> | undefined {
    const shown = this.#portals?.shown;
    return shown !== undefined && portalName(execute) === shown.portal ? { shown: shown.rows } : undefined;
  }

  /**
   * A Query that fails inside a transaction leaves an unnamed portal whose plan has been freed. Executing that portal
   * crashes the server (seen with PostgreSQL 15.20 and 18.4), and with it the sessions of all organizations. Postern closes
   * the portal before an Execute that may refer to it.
   */
  #closeDanglingPortal(): void {
    const { replies, toBackend } = this.#session;
    if (!this.#mayDangle() || replies.copyIn || this.#portals?.replacesDangling === true) return;
    replies.push(Request.close, Disposition.skip);
    toBackend.insert(CLOSE_UNNAMED_PORTAL);
  }

  /** Whether a Query has left the unnamed portal without its plan, or may yet. */
  #mayDangle(): boolean {
    const { replies } = this.#session;
    return replies.failedQuery !== 'none' || replies.owesQuery;
  }

  /** @returns false if the message has to wait: until the backend has described a statement, or has answered what was sent before */
  parse(scanner: FrameScanner, backend: BackendConnection): boolean {
    const isSent = this.#parse(scanner, backend);
    this.#session.unsyncedBatch = this.#session.replies.batch;
    if (isSent) this.#session.services.usage.totals.counted.parses += 1;
    return isSent;
  }

  #parse(scanner: FrameScanner, backend: BackendConnection): boolean {
    const session = this.#session;
    const { inspection } = session;
    inspection.demandWhole(scanner);
    const { buffer, start, length } = scanner;
    const isKept = scanner.last && length <= MAX_KEPT_DEFINITION_BYTES;
    const end = isKept ? scanner.end : Math.min(scanner.end, start + MAX_KEPT_DEFINITION_BYTES);
    const nameStart = start + HEADER_BYTES;
    const mayRepeat = buffer[nameStart] === 0 && isKept && session.startsPipeline && this.#mayBeRepeated();
    const known = mayRepeat ? this.#recall(scanner) : undefined;
    if (known !== undefined) return this.#parseRepeated(scanner, known, backend);
    const nameEnd = stringEnd(buffer, nameStart, end);
    if (nameEnd < 0 && isKept) {
      this.#forwardMalformed(scanner);
      return true;
    }
    if (nameEnd < 0) throw new ServiceError('payload_too_large', `a statement's name may have at most ${MAX_KEPT_DEFINITION_BYTES} bytes`);
    const text = latin1String(buffer, nameEnd + 1, end);
    const inspected = inspection.inspect(text, isKept || nameEnd + 1 + text.length < end);
    if (inspection.awaitsBlockers(inspected)) return false;
    if (session.unsyncedBatch === session.replies.batch && this.#server.mustEndPipeline(isKept ? inspected.traits : sessionTraitsOf(text)))
      return false;
    if (!isKept) {
      this.#parseOversized(scanner, backend, text, protocolName(buffer, nameStart, nameEnd), inspected);
      return true;
    }
    const prepared = preparedOf(inspected, text, buffer.subarray(nameEnd + 1, end));
    const name = protocolName(buffer, nameStart, nameEnd);
    if (!this.#client.hasRoomFor(name, length)) {
      this.#parseOverBudget(scanner, backend, name, inspected, prepared);
      return true;
    }
    if (this.#server.awaitsClientNames(prepared.traits)) return false;
    this.#server.sendText(inspected);
    if (name !== '') {
      const isAgainTheSame = canBePreparedAgain(text);
      // Prepared on another backend, it would have the moment of that.
      if (!isAgainTheSame) session.pins.keep('constant');
      const server = this.#server.serverStatementOf(
        prepared.definition,
        isAgainTheSame && !prepared.traits.namesPrepared,
        prepared.hasEscapes,
      );
      return this.#parseNamed(scanner, backend, name, prepared, server);
    }
    const repeated = mayRepeat && isPreparable(text, prepared.traits) ? this.#repeatedOf(prepared) : undefined;
    if (repeated === undefined) {
      this.#parseUnnamed(scanner, backend, prepared);
      return true;
    }
    if (prepared.watched === undefined && prepared.traits === NO_TRAITS) this.#remember(scanner, repeated);
    return this.#parseRepeated(scanner, repeated, backend);
  }

  /** The server refuses a Parse in which no name ends. */
  #forwardMalformed({ buffer, start, end }: FrameScanner): void {
    const { replies, toBackend } = this.#session;
    replies.push(Request.parse);
    toBackend.add(buffer, start, end);
  }

  /**
   * Whether an unnamed statement that starts a pipeline may refer to a shared server statement. It must be possible to run it
   * again, because a table may have changed without Postern's knowledge.
   */
  #mayBeRepeated(): boolean {
    const { status, pins } = this.#session;
    return status === 'I' && !this.#names.mayAllBeGone && !pins.namesAreOwn;
  }

  /** Finds the statement that the same bytes referred to recently. */
  #recall(scanner: FrameScanner): RepeatedStatement | undefined {
    const { pins, services } = this.#session;
    const { registry, parseCache } = services;
    // Sessions from before the role's default had this setting off have it in no setting of theirs either.
    if (pins.startStrings === 'off') return undefined;
    return parseCache.find(scanner, pins.context, registry.generation);
  }

  #remember(scanner: FrameScanner, repeated: RepeatedStatement): void {
    const { pins, services } = this.#session;
    const { registry, parseCache } = services;
    const { context } = pins;
    if (context !== undefined) parseCache.keep(scanner, context, registry.generation, repeated);
  }

  /**
   * An unnamed statement for the client that has a name on the server, so that it is not planned each time. If the backend does
   * not have it yet, it is prepared for the next time, and this request uses the unnamed statement.
   */
  #parseRepeated(scanner: FrameScanner, repeated: RepeatedStatement, backend: BackendConnection): boolean {
    const { server } = repeated;
    if (!backend.session.prepared.use(server)) {
      const { server: _, ...unnamed } = repeated;
      // The client's own Parse is first: where it fails, it takes the former unnamed statement with it.
      this.#parseUnnamed(scanner, backend, unnamed);
      this.#server.prepareStatement(server, backend, false, unnamed.edits);
      return true;
    }
    this.#names.changes('');
    this.#parseOnce(server, backend, new UnnamedChange(this.#client, repeated));
    this.#usesRepeated = true;
    return true;
  }

  /** Sends a Parse only if the backend does not have the statement; otherwise Postern makes the reply. */
  #parseOnce(server: ServerStatement, backend: BackendConnection, parse: ParseEffect): void {
    const session = this.#session;
    const { replies, toBackend } = session;
    parse.note();
    const { prepared } = backend.session;
    const isThere = prepared.use(server) !== undefined;
    if (isThere && !this.#names.mayAllBeGone) {
      const isRefused = this.#isRefusedInFailedTransaction(server);
      replies.push(Request.parse, isRefused ? Disposition.forward : Disposition.simulate, parse);
      if (isRefused) toBackend.insert(parseMessage(server.name, server.definition));
      return;
    }
    if (isThere) this.#server.closeStatement(server, backend);
    else this.#server.closeIfStale(server.name, backend);
    const evicted = prepared.set(server, server);
    this.#names.prepares(server);
    replies.push(Request.parse, Disposition.forward, new SentParse(parse, server, prepared));
    toBackend.insert(parseMessage(server.name, definitionToReprepare(server.definition, server.shape)));
    this.#server.closeEvicted(evicted, backend);
    this.#server.describeStatement(server, backend);
  }

  /** In a failed transaction the server accepts only statements that end it. */
  #isRefusedInFailedTransaction({ definition }: ServerStatement): boolean {
    const { status, replies } = this.#session;
    return status === 'E' && replies.length === 0 && !TRANSACTION_END.test(definition.toString('latin1'));
  }

  #parseUnnamed(scanner: FrameScanner, backend: BackendConnection, prepared: UnnamedStatement): void {
    const session = this.#session;
    const kept = { ...prepared, definition: Buffer.from(prepared.definition) };
    this.#noteUnnamed(kept, backend);
    if (prepared.changed) session.toBackend.insert(parseMessage(NO_NAME, kept.definition));
    else session.toBackend.add(scanner.buffer, scanner.start, scanner.end);
  }

  /** The Parse that is sent replaces the unnamed statement of the client and of the backend. */
  #noteUnnamed(unnamed: UnnamedStatement, backend: BackendConnection): void {
    const { replies } = this.#session;
    const change = new UnnamedChange(this.#client, unnamed, backend.session);
    this.#names.changes('');
    change.note();
    replies.push(Request.parse, Disposition.forward, change);
  }

  /**
   * Forwards a Parse that is too large to keep. A named statement exists only on this backend, under the client's own name, so
   * the session is pinned. An unnamed one is valid up to the Sync.
   */
  #parseOversized(scanner: FrameScanner, backend: BackendConnection, text: string, name: string, inspected: Inspected): void {
    const session = this.#session;
    const { audited: watched } = inspected;
    const traits = { ...traitsOfBeginning(text), cannotBePreparedAgain: name !== '' };
    const end = Math.min(scanner.end, scanner.start + MAX_KEPT_DEFINITION_BYTES);
    this.#server.sendLongText(text, { ...inspected, traits, due: NO_SIGNALS }, scanner, end);
    if (name !== '' && watched !== undefined) session.inspection.isOversized(name, watched);
    if (name !== '') session.replies.push(Request.parse);
    else this.#noteUnnamed({ ...OVERSIZED, traits, watched }, backend);
    session.toBackend.add(scanner.buffer, scanner.start, scanner.end);
  }

  /** The organization has reached its memory limit for statements. The Parse is treated like one that is too large. */
  #parseOverBudget(
    scanner: FrameScanner,
    backend: BackendConnection,
    name: string,
    inspected: Inspected,
    prepared: UnnamedStatement,
  ): void {
    const session = this.#session;
    const { edits, traits, watched } = prepared;
    if (name !== '' && watched !== undefined) session.inspection.isOversized(name, watched);
    this.#server.sendText(name === '' ? inspected : { ...inspected, traits: { ...traits, cannotBePreparedAgain: true } });
    if (name === '') this.#noteUnnamed({ ...prepared, definition: NO_NAME, isOversized: true }, backend);
    else session.replies.push(Request.parse, Disposition.forward, { undo: () => {}, edits });
    this.#sendParse(scanner, name, prepared);
  }

  #parseNamed(
    scanner: FrameScanner,
    backend: BackendConnection,
    name: string,
    prepared: UnnamedStatement,
    server: ServerStatement,
  ): boolean {
    const { traits, signals, deallocates, edits, watched } = prepared;
    if (this.#client.get(name) !== undefined && !this.#names.hasTaken(name)) {
      this.#parseTakenName(scanner, backend, name, prepared);
      return true;
    }
    if (!this.#names.mayAllBeGone && this.#server.mustDescribeFirst(server, backend, edits)) return false;
    this.#names.changes(name);
    this.#names.gives(name);
    this.#parseOnce(server, backend, new NamedParse(this.#client, name, { server, traits, signals, deallocates, watched }, edits));
    return true;
  }

  /**
   * The client uses the name already. The error should come from PostgreSQL, which may find another error first. So an empty
   * statement takes the name on the server; it is closed before the next request.
   */
  #parseTakenName(scanner: FrameScanner, backend: BackendConnection, name: string, prepared: UnnamedStatement): void {
    const session = this.#session;
    this.#server.preparePlaceholder(name, backend);
    session.replies.push(Request.parse, Disposition.forward, { undo: () => {}, edits: prepared.edits });
    this.#sendParse(scanner, name, prepared);
  }

  /** Sends the Parse under the client's own name. */
  #sendParse({ buffer, start, end }: FrameScanner, name: string, { changed, definition }: UnnamedStatement): void {
    const { toBackend } = this.#session;
    if (changed) toBackend.insert(parseMessage(Buffer.from(name, 'latin1'), definition));
    else toBackend.add(buffer, start, end);
  }

  /** The server statement of a text that clients send repeatedly without a name. */
  #repeatedOf(prepared: UnnamedStatement): RepeatedStatement | undefined {
    const { pins, services } = this.#session;
    const { context } = pins;
    if (context === undefined || prepared.hasEscapes === true || prepared.definition.length > MAX_LOOKED_UP_BYTES) return undefined;
    const server = services.registry.repeated(prepared.definition, context);
    return server === undefined ? undefined : { ...prepared, definition: server.definition, server };
  }

  /**
   * The server statement for a client's named statement on this backend. It is usually the one that the client prepared.
   *
   * PostgreSQL reads constants when it prepares a statement (`'2025-01-01'::timestamptz` in the TimeZone of that moment). If the
   * backend lacks the statement and the session's settings have changed since, preparing it now would change what it means for the other
   * clients that share it. So a stand-in is prepared.
   */
  #serverStatementFor(name: string, statement: NamedStatement, backend: BackendConnection): ServerStatement {
    const session = this.#session;
    const { server, first = server } = statement;
    const { pins, status } = session;
    const isAsPrepared = first.context === undefined || first.context === pins.context || backend.session.prepared.use(first) !== undefined;
    if (isAsPrepared) return this.#standIn(name, statement, first);
    // A stand-in without a context belongs to this client alone. It was made within a transaction, and is used up to its end.
    const isStandIn = server !== first && (server.context === undefined ? status !== 'I' : server.context === pins.context);
    if (isStandIn) return server;
    return this.#standIn(name, statement, this.#server.serverStatementOf(first.definition, true, first.hasEscapes));
  }

  #standIn(name: string, statement: NamedStatement, server: ServerStatement): ServerStatement {
    const { first = statement.server } = statement;
    if (server !== statement.server) this.#client.set(name, { ...statement, server, first });
    return server;
  }

  /**
   * Finds the server statement for a client's name. A client decodes rows by the columns that it was told once. If the
   * statement has other columns by now, it is refused, as PostgreSQL refuses a cached plan whose result type has changed.
   * @returns the server statement, once the backend has it; `asked`, `changed`: as {@link ServerStatements.ensurePrepared}
   * @see https://github.com/postgres/postgres/blob/master/src/backend/utils/cache/plancache.c RevalidateCachedQuery
   */
  #resolveStatement(name: string, statement: NamedStatement, backend: BackendConnection): ServerStatement | 'asked' | 'changed' {
    const { isUsed = false, first = statement.server } = statement;
    const server = this.#server.takeAsked(name) ?? this.#serverStatementFor(name, statement, backend);
    let readiness = this.#server.ensurePrepared(server, backend, server !== first);
    if (readiness === 'ready' && server !== first && differs(server, first)) readiness = 'changed';
    if (readiness === 'ready') return server;
    if (readiness === 'asked') this.#server.asksFor(name, server);
    if (readiness === 'asked' || isUsed) return readiness;
    // The client has not been told its columns, so the client cannot tell whether the statement is prepared now or was before.
    const renewed = this.#server.renewStatement(name, statement);
    readiness = this.#server.ensurePrepared(renewed, backend);
    return readiness === 'ready' ? renewed : readiness;
  }

  /* The backend's replies. */

  /** All that was asked has been answered. */
  answered(): void {
    this.#sent = undefined;
  }

  /** A Query has been answered: it has destroyed the unnamed statement. */
  queryDone(): void {
    if (this.#client.unnamed !== undefined || this.#client.settledUnnamed !== undefined) this.#client.unnamedSettled(undefined);
  }

  /** The server has ignored a Query. */
  queryDropped(): void {
    this.#client.unnamedUndone(undefined, false);
  }

  /** SQL has deallocated a name. */
  deallocated(name: string): void {
    this.#ownerOf(name).delete(name);
  }

  /** SQL has deallocated all named statements. */
  allDeallocated(): void {
    this.#client.clear();
    this.#sql.clear();
    this.#session.backend?.session.prepared.clear();
  }

  /** The session is over. */
  end(): void {
    this.#client.end();
    this.#sql.end();
  }
}
