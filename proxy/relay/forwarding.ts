import { Buffer } from 'node:buffer';
import type { BackendConnection } from '../../src/backend/connection.ts';
import { Disposition, Request } from '../../src/backend/pending-replies.ts';
import type { ServerStatement } from '../../src/backend/prepared-statements.ts';
import type { ReplyQueue } from '../../src/backend/reply-queue.ts';
import type { StatementRegistry } from '../../src/multiplex/statement-registry.ts';
import type { TransactionStatus } from '../../src/protocol/backend.ts';
import { latin1Name, latin1String, stringEnd } from '../../src/protocol/body.ts';
import { type FrameScanner, HEADER_BYTES } from '../../src/protocol/frame.ts';
import { FrontendType, statementNameStart } from '../../src/protocol/frontend.ts';
import { queryMessage, withStatementName } from '../../src/protocol/frontend-encoder.ts';
import { MAX_KEPT_DEFINITION_BYTES } from '../buffer-limits.ts';
import type { DdlAudit } from '../inspection/ddl-audit.ts';
import { traitsOfCall } from '../inspection/function-call-traits.ts';
import { NO_TRAITS, type SqlTraits } from '../inspection/sql-traits.ts';
import type { LargeText } from '../inspection/streamed-traits.ts';
import type { LatencyTable } from '../multiplex/latency-table.ts';
import { type ShareableRequest, shareableRequest } from '../multiplex/shareable-request.ts';
import { sendSignals, translateProcessIds } from '../pinning/process-ids.ts';
import { type InspectionListener, QueryInspection, type RequestEnd } from '../pinning/query-inspection.ts';
import type { ClientStatements, NamedStatement, UnnamedStatement } from '../prepared/client-statements.ts';
import { type Effect, UnnamedChange } from '../prepared/effects.ts';
import type { ParseCache } from '../prepared/parse-cache.ts';
import { ParseMessages } from '../prepared/parse-message.ts';
import { PendingDeallocations } from '../prepared/pending-deallocations.ts';
import { PendingNames } from '../prepared/pending-names.ts';
import { Portals } from '../prepared/portals.ts';
import { ServerStatements } from '../prepared/server-statements.ts';
import { ShapeReader } from '../prepared/shape-reader.ts';
import { StatementUse } from '../prepared/statement-use.ts';
import type { WriteBuffer } from './write-buffer.ts';

/** What the requests tell the relay as they go by. */
export interface ForwardingListener extends InspectionListener {
  /** As of the last ReadyForQuery. */
  readonly status: TransactionStatus;
}

/**
 * Carries a client's messages over to whatever backend it has at the moment: notes which replies are due, gives prepared
 * statements the names that they have on the server, and prepares them where they are missing. Everything else goes
 * through as it came.
 */
export class Forwarding {
  readonly counts = { statements: 0, ends: 0 };
  /** A statement that was prepared behind the client's back has been used since {@link begin}. */
  usesRepeated = false;
  /** The statement bound last since {@link begin}, if backends know it by a name. */
  bound: ServerStatement | undefined;
  /** In which batch extended-protocol messages have been sent that no Sync has followed yet. */
  #unsyncedBatch = NONE;
  /** The client's unnamed statement has been used since {@link begin} as one that has no name on the server either. */
  #usesUnnamed = false;
  readonly #statements: ClientStatements;
  readonly #registry: StatementRegistry;
  readonly #recent: ParseCache;
  readonly #onServer: ServerStatements;
  readonly #queue: ReplyQueue;
  readonly #listener: ForwardingListener;
  readonly #texts: QueryInspection;
  readonly #deallocations = new PendingDeallocations();
  readonly #names: PendingNames;
  readonly #portals: Portals;
  readonly #parses: ParseMessages;
  readonly #use: StatementUse;
  readonly #out: WriteBuffer;

  constructor(
    statements: ClientStatements,
    { registry, recent }: { readonly registry: StatementRegistry; readonly recent: ParseCache },
    queue: ReplyQueue,
    watch: DdlAudit,
    listener: ForwardingListener,
    out: WriteBuffer,
  ) {
    this.#statements = statements;
    this.#registry = registry;
    this.#recent = recent;
    this.#names = new PendingNames(statements, queue);
    this.#onServer = new ServerStatements(statements, this.#names, registry, queue, out);
    this.#queue = queue;
    this.#listener = listener;
    this.#texts = new QueryInspection(watch, listener);
    this.#portals = new Portals(queue, out);
    this.#out = out;
    this.#parses = new ParseMessages({
      session: listener,
      statements,
      deallocations: this.#deallocations,
      names: this.#names,
      texts: this.#texts,
      registry,
      recent,
      onServer: this.#onServer,
      queue,
      out,
    });
    this.#use = new StatementUse(this.#parses, this.#onServer);
  }

  /** Extended-protocol messages have been sent that no Sync has followed yet, or none that counted. */
  get unsynced(): boolean {
    return this.#isUnsynced || this.#queue.awaitsSync;
  }

  /** A Query ends them, too, once it has been answered. */
  get #isUnsynced(): boolean {
    return this.#unsyncedBatch >= this.#queue.oldestBatch;
  }

  /** Nothing of which more is to be known than that it runs has been asked since {@link begin}. */
  get isPlain(): boolean {
    return this.#texts.isPlain && !this.#usesUnnamed;
  }

  /** As {@link QueryInspection.placedBefore}. */
  get placedBefore(): LargeText | undefined {
    return this.#texts.placedBefore;
  }

  set placedBefore(said: LargeText | undefined) {
    this.#texts.placedBefore = said;
  }

  /** All that the client has asked has been answered, and what comes next belongs to none of it. */
  get #startsPipeline(): boolean {
    return !this.unsynced && this.#queue.onlyOurs;
  }

  /** More has come from the client. */
  begin(): void {
    this.usesRepeated = false;
    this.#usesUnnamed = false;
    this.#texts.begin();
    this.bound = undefined;
  }

  /** The request that a chunk from the client is, if it is a short one that leaves nothing in the session. */
  shareable(chunk: Buffer, latencies: LatencyTable): ShareableRequest | undefined {
    const { pins } = this.#listener;
    if (!pins.isShareable || pins.context === undefined || this.#deallocations.all) return undefined;
    return shareableRequest(chunk, {
      statements: this.#statements,
      recent: this.#recent,
      registry: this.#registry,
      settings: pins.context,
      latencies,
    });
  }

  /** Whether the message that the scanner stands at cannot be sent until something else has been answered. */
  mustWait(scanner: FrameScanner): boolean {
    if (!scanner.first || this.#queue.oldestBatch === this.#queue.batch) return false;
    return this.#followsReset(scanner) || this.#names.mustWait(scanner);
  }

  /** RESET and DISCARD go back to what the server knows as the session's start: what it really was has to be restored first. */
  #followsReset({ type }: FrameScanner): boolean {
    return this.#listener.pins.restores && !this.#isUnsynced && BEGINNINGS.has(type) && this.#names.waitForAll();
  }

  /** What had to wait, as {@link mustWait} or {@link forward} told last, has to wait on. */
  get isWaiting(): boolean {
    return this.#names.isWaiting || this.#onServer.isAsking;
  }

  /**
   * Sends on the fragment that the scanner stands at; Terminate is the caller's.
   * @returns false where the message cannot be sent before the backend has said what it makes of its statement
   */
  forward(scanner: FrameScanner, backend: BackendConnection): boolean {
    if (!scanner.first) {
      this.#texts.by(scanner, scanner.start);
      this.#pass(scanner);
      return true;
    }
    if (this.#deallocations.all && this.#startsPipeline) this.#deallocations.answered();
    if (backend.session.staleNames.size > 0 && this.#startsPipeline) this.#onServer.closeLeftovers(backend);
    switch (scanner.type) {
      case FrontendType.Query:
        this.#query(scanner, backend);
        break;
      case FrontendType.Parse:
        return this.#parse(scanner, backend);
      case FrontendType.Bind:
        this.#portals.binds(scanner);
        return this.#named(scanner, backend, Request.bind);
      case FrontendType.Describe:
        return this.#named(scanner, backend, Request.describe);
      case FrontendType.Execute:
        this.counts.statements += 1;
        this.#portals.guard();
        if (this.#portals.deallocatesAll(scanner)) this.#deallocations.executed(this.#queue.batch);
        if (this.#deallocations.all) this.#names.changesAll();
        this.#extended(Request.execute, this.#portals.showsSearchPath(scanner) ? SEARCH_PATH : undefined);
        this.#pass(scanner);
        break;
      case FrontendType.Close:
        this.#close(scanner, backend);
        break;
      case FrontendType.Sync:
        this.#unsyncedBatch = NONE;
        this.#portals.end();
        this.#queue.push(Request.sync, Disposition.forward, this.#end());
        this.#pass(scanner);
        break;
      case FrontendType.FunctionCall:
        this.counts.statements += 1;
        this.#texts.tell(traitsOfCall(scanner));
        this.#queue.push(Request.call, Disposition.forward, this.#end());
        this.#pass(scanner);
        break;
      case FrontendType.CopyDone:
      case FrontendType.CopyFail:
        this.#queue.push(Request.copyEnd);
        this.#pass(scanner);
        break;
      default:
        this.#pass(scanner);
    }
    return true;
  }

  #parse(scanner: FrameScanner, backend: BackendConnection): boolean {
    const outcome = this.#parses.parse(scanner, backend, this.#startsPipeline);
    if (outcome === 'repeated') this.usesRepeated = true;
    this.#unsyncedBatch = this.#queue.batch;
    return outcome !== 'asked';
  }

  /** As {@link ParseMessages.parseKnown}. */
  parseKnown(scanner: FrameScanner): boolean {
    return this.#parses.parseKnown(scanner);
  }

  /** As {@link ServerStatements.materialize}, for what comes next. */
  materialize(backend: BackendConnection, alone: boolean): void {
    this.#onServer.materialize(backend, alone, !this.unsynced);
    // Any of them may be the one that is executed.
    for (const [, { traits }] of this.#statements.entries()) if (traits !== NO_TRAITS) this.#listener.noticed(traits);
  }

  /** As {@link ServerStatements.discardSequences}, ahead of what comes next. */
  discardSequences(backend: BackendConnection): void {
    this.#onServer.discardSequences(backend, !this.unsynced);
  }

  #pass(scanner: FrameScanner): void {
    this.#out.add(scanner.buffer, scanner.start, scanner.end);
  }

  #extended(kind: (typeof Request)[keyof typeof Request], subject?: unknown): void {
    this.#unsyncedBatch = this.#queue.batch;
    this.#queue.push(kind, Disposition.forward, subject);
  }

  #end(deallocations?: string[], edits?: RequestEnd['edits'], showsSearchPath?: boolean): RequestEnd | undefined {
    this.counts.ends += 1;
    return this.#texts.end(deallocations, edits, showsSearchPath);
  }

  /** A Query also does away with the unnamed statement, on both sides. */
  #query(scanner: FrameScanner, backend: BackendConnection): void {
    this.#texts.demandWhole(scanner);
    this.counts.statements += 1;
    this.#portals.end();
    const { buffer, start, last } = scanner;
    const isWhole = last && scanner.length <= MAX_KEPT_DEFINITION_BYTES;
    const end = isWhole ? scanner.end - 1 : Math.min(scanner.end, start + MAX_KEPT_DEFINITION_BYTES);
    const text = buffer.toString('latin1', start + HEADER_BYTES, end);
    this.#texts.look(text, isWhole);
    const traits = isWhole ? this.#texts.tellWhole(text) : this.#texts.tellBeginning(text);
    if (!isWhole) this.#texts.by(scanner, end);
    const { sql, edits } = this.#texts.placed(text);
    const sent = traits.mentionsPids ? translateProcessIds(sql, this.#listener.processIds).text : sql;
    const deallocations = this.#onServer.placeholders(text, traits, backend);
    if (traits.deallocatesAll) this.#names.changesAll();
    this.#names.changes('');
    for (const name of deallocations) this.#names.changes(name);
    if (!this.#queue.discarding) {
      this.#statements.unnamed = undefined;
      backend.session.unnamed = undefined;
    }
    this.#queue.push(Request.query, Disposition.forward, this.#end(deallocations, edits, traits.showsSearchPath));
    if (sent === text) this.#pass(scanner);
    else this.#out.insert(queryMessage(Buffer.from(sent, 'latin1')));
  }

  /** Bind, and Describe of a statement, under the name that the statement has on the server. @returns as {@link forward} */
  #named(scanner: FrameScanner, backend: BackendConnection, kind: typeof Request.bind | typeof Request.describe): boolean {
    const { buffer, start, end } = scanner;
    const nameStart = statementNameStart(buffer, start, end);
    const nameEnd = nameStart < 0 ? -1 : stringEnd(buffer, nameStart, end);
    if (nameEnd < 0) {
      this.#extended(kind);
      this.#pass(scanner);
      return true;
    }
    const isNamed = nameEnd > nameStart;
    const { unnamed } = this.#statements;
    const name = latin1Name(buffer, nameStart, nameEnd);
    const named = isNamed ? this.#statementNamed(name) : undefined;
    const statement = isNamed ? named : unnamed;
    this.#texts.tell(statement?.traits);
    const server = isNamed ? this.#useNamed(name, named, backend) : this.#useUnnamed(backend);
    if (server === 'asked' || server === 'changed') {
      this.#unsyncedBatch = this.#queue.batch;
      if (server === 'changed') this.#onServer.refuse(kind);
      return server === 'changed';
    }
    if (kind === Request.bind) {
      if (statement !== undefined) sendSignals(statement.signals, scanner, this.#listener.processIds);
      if (statement?.watched !== undefined) this.#texts.lookAgain(statement.watched);
      else if (statement === undefined && isNamed) this.#texts.lookAgainByName(name);
      this.#portals.bound(scanner, statement?.traits);
      this.#extended(kind, this.#deallocation(server?.definition ?? unnamed?.definition, statement?.traits, backend));
    } else this.#extended(kind, isNamed || unnamed === undefined || server !== undefined ? undefined : shapeOf(unnamed));
    // A name that the client has not prepared is the server's to refuse.
    if (server === undefined) this.#pass(scanner);
    else this.#out.insert(withStatementName(buffer, start, end, server.name));
    return true;
  }

  /** @returns what the server knows it by; undefined where that is the client's own name for it */
  #useNamed(
    name: string,
    named: NamedStatement | undefined,
    backend: BackendConnection,
  ): ServerStatement | 'asked' | 'changed' | undefined {
    const { staleNames } = backend.session;
    // What lists the statements is not to be among them under a name of ours.
    if (named?.traits.listsPrepared === true && staleNames.has(name)) return undefined;
    if (named === undefined) {
      this.#onServer.closeIfLeft(Buffer.from(name, 'latin1'), backend);
      return undefined;
    }
    const server = this.#use.begin(name, named, backend);
    if (server === 'asked' || server === 'changed') return server;
    this.bound = server;
    if (named.isUsed !== true) this.#statements.used(name);
    return server;
  }

  /** @returns as {@link #useNamed} */
  #useUnnamed(backend: BackendConnection): ServerStatement | 'asked' | 'changed' | undefined {
    const server = this.#statements.unnamed?.server;
    // Prepared by an earlier request, it is used as what the client sees in it: its table may have changed since.
    if (server !== undefined && this.usesRepeated && !this.#deallocations.all && backend.session.prepared.use(server)) {
      this.bound = server;
      return server;
    }
    this.#usesUnnamed = true;
    const readiness = this.#onServer.ensureUnnamed(backend);
    return readiness === 'ready' ? undefined : readiness;
  }

  #statementNamed(name: string): NamedStatement | undefined {
    return this.#deallocations.hasTaken(name, this.#queue.batch) ? undefined : this.#statements.get(name);
  }

  /** A DEALLOCATE that is bound is as good as executed. */
  #deallocation(text: Buffer | undefined, traits: SqlTraits | undefined, backend: BackendConnection): Effect | undefined {
    if (text === undefined || traits?.deallocates !== true) return undefined;
    const names = this.#onServer.placeholders(latin1String(text, 0, text.length), traits, backend);
    for (const name of names) this.#names.changes(name);
    const undos = names.map((name) => this.#statements.delete(name));
    return { undo: () => undos.map((undo) => undo()) };
  }

  #close(scanner: FrameScanner, backend: BackendConnection): void {
    const { buffer, start, end } = scanner;
    const nameStart = statementNameStart(buffer, start, end);
    const name = nameStart < 0 ? undefined : buffer.toString('latin1', nameStart, stringEnd(buffer, nameStart, end));
    const known = name !== undefined && name !== '' && this.#statements.get(name) !== undefined;
    this.#unsyncedBatch = this.#queue.batch;
    if (known || name === '') this.#names.changes(name);
    if (known) {
      // Others may use it: it stays on the server.
      this.#queue.push(Request.close, Disposition.simulate, {
        undo: this.#statements.delete(name),
        redo: () => this.#statements.delete(name),
      });
      return;
    }
    if (name === '') {
      const change = new UnnamedChange(this.#statements, undefined, backend.session);
      change.note();
      this.#queue.push(Request.close, Disposition.forward, change);
    } else this.#queue.push(Request.close);
    this.#pass(scanner);
  }
}

/** Remembers what the client is told of its statement without a name, which may come to be prepared elsewhere. */
function shapeOf(unnamed: UnnamedStatement): ShapeReader {
  return new ShapeReader((shape) => {
    unnamed.shape ??= shape;
  });
}

const NONE = -1;
/** What goes with an Execute whose rows are values of search_path. */
const SEARCH_PATH = { showsSearchPath: true };
/** What a client's requests begin with. */
const BEGINNINGS: ReadonlySet<number> = new Set([
  FrontendType.Query,
  FrontendType.Parse,
  FrontendType.Bind,
  FrontendType.Describe,
  FrontendType.Execute,
  FrontendType.Close,
  FrontendType.FunctionCall,
]);
