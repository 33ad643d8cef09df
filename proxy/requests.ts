import type { BackendConnection } from '../src/backend/connection.ts';
import { newServerStatement, type ServerStatement, type StatementRegistry } from '../src/backend/prepared-statements.ts';
import { Fate, type ReplyQueue, Request } from '../src/backend/reply-queue.ts';
import { ServiceError } from '../src/errors.ts';
import type { TransactionStatus } from '../src/protocol/backend.ts';
import { stringEnd } from '../src/protocol/body.ts';
import { type FrameScanner, HEADER_BYTES } from '../src/protocol/frame.ts';
import { decodeFrontendMessage, FrontendType, statementNameStart, withStatementName } from '../src/protocol/frontend.ts';
import type { Edit } from '../src/router/search-path/edits.ts';
import type { PlaceView } from '../src/router/search-path/view.ts';
import type { ClientStatements, UnnamedStatement } from './client-statements.ts';
import { type Errand, shortErrand } from './errand.ts';
import { MAX_REWRITTEN_BYTES } from './limits.ts';
import { CLOSE_UNNAMED_PORTAL, EMPTY_DEFINITION, parseMessage, queryMessage } from './messages.ts';
import type { Paces } from './paces.ts';
import { type Effect, NamedParse, type ParseEffect, SentParse, UnnamedParse } from './parse-effects.ts';
import type { Pins } from './pins.ts';
import { type ParameterSignal, type ProcessIds, processIdOf, translateProcessIds } from './process-ids.ts';
import type { RecentParses, RepeatedStatement } from './recent-parses.ts';
import type { Run } from './run.ts';
import { ServerStatements } from './server-statements.ts';
import { isPreparable, OVERSIZED_TRAITS, PLAIN, staysTheSame, type TextTraits, traitsOf, UNKNOWN_TRAITS } from './statement-text.ts';
import type { Batch, StatementWatch } from './statement-watch.ts';

/** What the requests tell the relay as they go by. */
export interface RequestListener {
  /** A statement is about to be sent, or executed again, of which more is to be known than that it runs. */
  statement(traits: TextTraits): void;
  readonly processIds: ProcessIds;
  /** Where `public` is another schema. */
  readonly view: PlaceView | undefined;
  readonly pins: Pins;
  /** As of the last ReadyForQuery. */
  readonly status: TransactionStatus;
}

/** What goes with a Sync, Query or FunctionCall through the reply queue. */
export interface RequestEnd {
  readonly batch: Batch | undefined;
  /** Names of the client's statements that a Query takes away, in order; those that are gone are not here any more. */
  readonly deallocations: string[];
  /** What was replaced in the text of a Query. */
  readonly edits: readonly Edit[];
  /** The rows are values of search_path, which the client knows in other words. */
  readonly showsSearchPath: boolean;
}

/**
 * Carries a client's messages over to whatever backend it has at the moment: notes which replies are due, gives prepared
 * statements the names that they have on the server, and prepares them where they are missing. Everything else goes
 * through as it came.
 */
export class Requests {
  readonly counts = { statements: 0, ends: 0 };
  /** A statement that was prepared behind the client's back has been used since {@link begin}. */
  usesRepeated = false;
  /** Nothing of which more is to be known than that it runs has been asked since {@link begin}. */
  isPlain = true;
  /** The statement bound last since {@link begin}, if backends know it by a name. */
  bound: ServerStatement | undefined;
  #unsynced = false;
  /** The text that comes next has been rewritten before. */
  alreadyPlaced = false;
  /** A Bind has made the unnamed portal since the last Query or Sync, or everything up to the next Sync is thrown away. */
  #bindsUnnamed = false;
  /** A request that may take all named statements away has not been answered yet. */
  #mayForget = false;
  /** Or those with these names. */
  #mayForgetNames: readonly string[] = [];
  /** The portal that would do so when it is executed. */
  #forgetfulPortal: string | undefined;
  /** A statement since the last end shows the search path. */
  #showsSearchPath = false;
  readonly #statements: ClientStatements;
  readonly #registry: StatementRegistry;
  readonly #recent: RecentParses;
  readonly #onServer: ServerStatements;
  readonly #queue: ReplyQueue;
  readonly #watch: StatementWatch;
  readonly #listener: RequestListener;
  readonly #out: Run;

  constructor(
    statements: ClientStatements,
    { registry, recent }: { readonly registry: StatementRegistry; readonly recent: RecentParses },
    queue: ReplyQueue,
    watch: StatementWatch,
    listener: RequestListener,
    out: Run,
  ) {
    this.#statements = statements;
    this.#registry = registry;
    this.#recent = recent;
    this.#onServer = new ServerStatements(statements, queue, out);
    this.#queue = queue;
    this.#watch = watch;
    this.#listener = listener;
    this.#out = out;
  }

  /** Extended-protocol messages have been sent that no Sync has followed yet, or none that counted. */
  get unsynced(): boolean {
    return this.#unsynced || this.#queue.awaitsSync;
  }

  /** More has come from the client. */
  begin(): void {
    this.usesRepeated = false;
    this.isPlain = true;
    this.bound = undefined;
  }

  /** What a chunk from the client asks for, if that is short and leaves nothing behind. */
  shortErrand(chunk: Buffer, paces: Paces): Errand | undefined {
    const { pins } = this.#listener;
    if (pins.holdsState || pins.context === undefined || this.#mayForget || this.#mayForgetNames.length > 0) return undefined;
    return shortErrand(chunk, {
      statements: this.#statements,
      recent: this.#recent,
      registry: this.#registry,
      settings: pins.context,
      paces,
    });
  }

  /** Sends on the fragment that the scanner stands at; Terminate is the caller's. */
  forward(scanner: FrameScanner, backend: BackendConnection): void {
    if (!scanner.first) {
      this.#pass(scanner);
      return;
    }
    if ((this.#mayForget || this.#mayForgetNames.length > 0) && !this.#unsynced && this.#queue.onlyOurs) this.#forgotten();
    if (backend.session.leftovers.length > 0 && !this.#unsynced && this.#queue.onlyOurs) this.#onServer.closeLeftovers(backend);
    switch (scanner.type) {
      case FrontendType.Query:
        this.#query(scanner, backend);
        break;
      case FrontendType.Parse:
        this.#parse(scanner, backend);
        break;
      case FrontendType.Bind:
        this.#bindsUnnamed ||= scanner.buffer[scanner.start + HEADER_BYTES] === 0;
        this.#named(scanner, backend, Request.bind);
        break;
      case FrontendType.Describe:
        this.#named(scanner, backend, Request.describe);
        break;
      case FrontendType.Execute:
        this.counts.statements += 1;
        this.#guardPortal();
        this.#mayForget ||= this.#forgetfulPortal !== undefined && this.#forgetfulPortal === portalName(scanner);
        this.#extended(Request.execute);
        this.#pass(scanner);
        break;
      case FrontendType.Close:
        this.#close(scanner, backend);
        break;
      case FrontendType.Sync:
        this.#unsynced = false;
        this.#bindsUnnamed = false;
        this.#queue.push(Request.sync, Fate.forward, this.#end());
        this.#pass(scanner);
        break;
      case FrontendType.Flush:
        this.#unsynced = true;
        this.#pass(scanner);
        break;
      case FrontendType.FunctionCall:
        this.counts.statements += 1;
        this.#queue.push(Request.call, Fate.forward, this.#end());
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
  }

  /** What was to take names away has been answered. */
  #forgotten(): void {
    this.#mayForget = false;
    this.#mayForgetNames = [];
  }

  /**
   * Answers a named Parse without a backend: its statement is known to be good, and will be prepared where it is first
   * executed. A client that prepares before it needs a backend thus does not have to wait for one.
   * @returns false when a backend has to see it
   */
  parseKnown({ type, buffer, start, end, last }: FrameScanner): boolean {
    const nameStart = start + HEADER_BYTES;
    if (type !== FrontendType.Parse || !last || buffer[nameStart] === 0) return false;
    const nameEnd = stringEnd(buffer, nameStart, end);
    if (nameEnd < 0) return false;
    const name = buffer.toString('latin1', nameStart, nameEnd);
    if (this.#statements.get(name) !== undefined) return false;
    const text = buffer.toString('latin1', nameEnd + 1, textEnd(buffer, nameEnd + 1, end));
    const { context } = this.#listener.pins;
    if (context === undefined || !staysTheSame(text)) return false;
    const { definition, traits, signals } = this.#prepared(text, buffer.subarray(nameEnd + 1, end));
    const server = this.#registry.find(definition, context);
    if (server === undefined || !server.proven) return false;
    this.#statements.set(name, { server, traits, signals });
    return true;
  }

  /** As {@link ServerStatements.materialize}, for what comes next. */
  materialize(backend: BackendConnection, alone: boolean): void {
    this.#onServer.materialize(backend, alone, !this.#unsynced);
  }

  #pass(scanner: FrameScanner): void {
    this.#out.add(scanner.buffer, scanner.start, scanner.end);
  }

  /** What follows in the same transaction may see other tables than other sessions do. */
  #look(text: string): boolean {
    const isWatched = this.#watch.statement(text);
    if (isWatched) {
      this.#listener.pins.unsettled = true;
      this.isPlain = false;
    }
    return isWatched;
  }

  #tell(traits: TextTraits | undefined): void {
    if (traits === undefined || traits === PLAIN) return;
    this.isPlain = false;
    this.#listener.statement(traits);
  }

  #extended(kind: (typeof Request)[keyof typeof Request], subject?: unknown): void {
    this.#unsynced = true;
    this.#queue.push(kind, Fate.forward, subject);
  }

  #end(deallocations: string[] = [], edits: readonly Edit[] = NO_EDITS): RequestEnd | undefined {
    this.counts.ends += 1;
    const batch = this.#watch.take();
    const showsSearchPath = this.#showsSearchPath;
    this.#showsSearchPath = false;
    const plain = batch === undefined && deallocations.length === 0 && edits.length === 0 && !showsSearchPath;
    return plain ? undefined : { batch, deallocations, edits, showsSearchPath };
  }

  /**
   * A Query that fails inside a transaction leaves an unnamed portal behind whose plan has been freed: to execute that
   * crashes the server (seen with PostgreSQL 15.20 and 18.4), and every organization's sessions with it. Where that may be
   * what a client is about to do, the portal is closed first.
   */
  #guardPortal(): void {
    if (this.#bindsUnnamed || this.#queue.copyIn || !(this.#queue.strayPortal || this.#queue.owes(Request.query))) return;
    this.#queue.push(Request.close, Fate.skip);
    this.#out.insert(CLOSE_UNNAMED_PORTAL);
  }

  /** A Query also does away with the unnamed statement, on both sides. */
  #query(scanner: FrameScanner, backend: BackendConnection): void {
    this.counts.statements += 1;
    this.#bindsUnnamed = false;
    const text = scanner.buffer.toString('latin1', scanner.start + HEADER_BYTES, scanner.last ? scanner.end - 1 : scanner.end);
    this.#look(text);
    const traits = scanner.last ? traitsOf(text) : UNKNOWN_TRAITS;
    this.#tell(traits);
    this.#mayForget ||= traits.deallocatesAll;
    const { sql, edits } = this.#placed(text, scanner.last);
    const sent = traits.mentionsPids ? translateProcessIds(sql, this.#listener.processIds).text : sql;
    const deallocations = this.#onServer.standIns(text, traits, backend);
    if (deallocations.length > 0) this.#mayForgetNames = [...this.#mayForgetNames, ...deallocations];
    if (!this.#queue.discarding) {
      this.#statements.unnamed = undefined;
      backend.session.unnamed = undefined;
    }
    this.#queue.push(Request.query, Fate.forward, this.#end(deallocations, edits));
    if (sent === text) this.#pass(scanner);
    else this.#out.insert(queryMessage(Buffer.from(sent, 'latin1')));
  }

  #parse(scanner: FrameScanner, backend: BackendConnection): void {
    const { buffer, start, end } = scanner;
    const nameStart = start + HEADER_BYTES;
    const known = buffer[nameStart] === 0 && scanner.last && this.#mayRepeat ? this.#recalled(scanner) : undefined;
    if (known !== undefined) {
      this.#parseRepeated(known, backend);
      return;
    }
    const nameEnd = stringEnd(buffer, nameStart, end);
    const text = nameEnd < 0 ? '' : buffer.toString('latin1', nameEnd + 1, textEnd(buffer, nameEnd + 1, end));
    const isWatched = this.#look(text);
    if (!scanner.last || nameEnd < 0) {
      this.#parseOversized(scanner, backend, nameEnd !== nameStart);
      return;
    }
    const prepared = this.#prepared(text, buffer.subarray(nameEnd + 1, end));
    this.#tell(prepared.traits);
    if (nameEnd === nameStart) {
      const repeated = isPreparable(text, prepared.traits) ? this.#repeated(prepared) : undefined;
      if (repeated === undefined) this.#parseUnnamed(scanner, backend, prepared);
      else {
        if (!isWatched && prepared.traits === PLAIN) this.#remember(scanner, repeated);
        this.#parseRepeated(repeated, backend);
      }
      return;
    }
    const server = this.#statementOf(prepared.definition, staysTheSame(text));
    this.#parseNamed(scanner, backend, buffer.toString('latin1', nameStart, nameEnd), prepared, server);
  }

  /** @param definition a view; what is kept of it is a copy */
  #prepared(text: string, definition: Buffer): UnnamedStatement {
    const traits = traitsOf(text);
    const { sql, edits } = this.#placed(text, true);
    const translated = traits.mentionsPids ? translateProcessIds(sql, this.#listener.processIds) : { text: sql, signals: [] };
    const changed = translated.text !== text;
    return {
      definition: changed ? Buffer.concat([Buffer.from(translated.text, 'latin1'), definition.subarray(text.length)]) : definition,
      changed,
      traits,
      edits,
      signals: translated.signals,
    };
  }

  /** The text as it has to be where the organization's `public` is a schema of another name. */
  #placed(text: string, whole: boolean): { readonly sql: string; readonly edits: readonly Edit[] } {
    const { view } = this.#listener;
    if (view === undefined || this.alreadyPlaced) return { sql: text, edits: NO_EDITS };
    if (!whole) throw new ServiceError('payload_too_large', `a statement may have at most ${MAX_REWRITTEN_BYTES} bytes in this placement`);
    if (SHOWS_SEARCH_PATH.test(text)) this.#showsSearchPath = true;
    const { sql, edits } = view.rewrite(Buffer.from(text, 'latin1'));
    return { sql: edits.length === 0 ? text : sql.toString('latin1'), edits };
  }

  /**
   * Whether a text without a name may stand for a statement that others have prepared: where it begins a request that can
   * be run again, should a table have changed by a way unknown here.
   */
  get #mayRepeat(): boolean {
    const { status, pins } = this.#listener;
    return status === 'I' && !this.#unsynced && this.#queue.onlyOurs && !this.#mayForget && !pins.namesAreOwn;
  }

  /** What the very same message has been before. */
  #recalled(scanner: FrameScanner): RepeatedStatement | undefined {
    return this.#recent.find(scanner, this.#listener.pins.context, this.#registry.generation);
  }

  #remember(scanner: FrameScanner, repeated: RepeatedStatement): void {
    const { context } = this.#listener.pins;
    if (context !== undefined) this.#recent.keep(scanner, context, this.#registry.generation, repeated);
  }

  /** The statement of a text that comes again and again without a name. */
  #repeated(prepared: UnnamedStatement): RepeatedStatement | undefined {
    const { context } = this.#listener.pins;
    if (!this.#mayRepeat || context === undefined || prepared.definition.length > MAX_REPEATED_BYTES) return undefined;
    const server = this.#registry.repeated(prepared.definition, context);
    return server === undefined ? undefined : { ...prepared, definition: server.definition, server };
  }

  /** Shared with whoever prepares the same text in the same settings, unless it would not be the same there. */
  #statementOf(definition: Buffer, staysTheSame: boolean): ServerStatement {
    const { namesAreOwn, context } = this.#listener.pins;
    if (namesAreOwn || context === undefined || !staysTheSame) return newServerStatement(Buffer.from(definition));
    return this.#registry.intern(definition, context);
  }

  /** To the client it has no name; on the server it has one, so that it is not planned anew each time. */
  #parseRepeated(repeated: RepeatedStatement, backend: BackendConnection): void {
    this.usesRepeated = true;
    this.#parseOnce(repeated.server, backend, new UnnamedParse(this.#statements, repeated));
  }

  /** A Parse that is sent only where the statement is missing; elsewhere its reply is ours to make. */
  #parseOnce(server: ServerStatement, backend: BackendConnection, parse: ParseEffect): void {
    parse.redo();
    const { prepared } = backend.session;
    const isThere = prepared.use(server);
    if (isThere && !this.#mayForget) {
      this.#unsynced = true;
      const isRefused = this.#isRefused(server);
      this.#queue.push(Request.parse, isRefused ? Fate.forward : Fate.simulate, parse);
      if (isRefused) this.#out.insert(parseMessage(server.name, server.definition));
      return;
    }
    if (isThere) this.#onServer.closeOnServer(server, backend);
    else this.#onServer.closeLeftover(server, backend);
    const evicted = prepared.add(server);
    this.#extended(Request.parse, new SentParse(parse, server, prepared));
    this.#out.insert(parseMessage(server.name, server.definition));
    this.#onServer.evict(evicted, backend);
  }

  /** In a transaction that has failed the server parses nothing but what ends it. */
  #isRefused({ definition }: ServerStatement): boolean {
    return this.#listener.status === 'E' && this.#queue.length === 0 && !TRANSACTION_END.test(definition.toString('latin1'));
  }

  #parseUnnamed(scanner: FrameScanner, backend: BackendConnection, prepared: UnnamedStatement): void {
    const kept = { ...prepared, definition: Buffer.from(prepared.definition) };
    const undo = this.#statements.setUnnamed(kept);
    backend.session.unnamed = kept;
    this.#extended(Request.parse, {
      edits: prepared.edits,
      undo: (failed: boolean) => {
        // Postgres drops the old one before it looks at the new.
        if (failed) this.#statements.unnamed = undefined;
        else undo();
        backend.session.unnamed = undefined;
      },
    });
    if (prepared.changed) this.#out.insert(parseMessage(NO_NAME, kept.definition));
    else this.#pass(scanner);
  }

  /**
   * Too large to keep. With a name it stays where it was prepared, under the client's own name, and so does the session;
   * without one it is good for what follows up to the Sync.
   */
  #parseOversized(scanner: FrameScanner, backend: BackendConnection, isNamed: boolean): void {
    this.#tell(isNamed ? OVERSIZED_TRAITS : UNKNOWN_TRAITS);
    if (isNamed) this.#extended(Request.parse);
    else {
      const unseen = { definition: NO_NAME, isOversized: true, changed: false, edits: NO_EDITS, traits: UNKNOWN_TRAITS, signals: [] };
      const undo = this.#statements.setUnnamed(unseen);
      backend.session.unnamed = unseen;
      this.#extended(Request.parse, {
        undo: (failed: boolean) => {
          if (failed) this.#statements.unnamed = undefined;
          else undo();
          backend.session.unnamed = undefined;
        },
      });
    }
    this.#pass(scanner);
  }

  #parseNamed(scanner: FrameScanner, backend: BackendConnection, name: string, prepared: UnnamedStatement, server: ServerStatement): void {
    const { traits, signals, edits } = prepared;
    if (this.#statements.get(name) !== undefined && !this.#mayForget && !this.#mayForgetNames.includes(name)) {
      this.#parseAgain(scanner, backend, name);
      return;
    }
    this.#parseOnce(server, backend, new NamedParse(this.#statements, name, { server, traits, signals }, edits));
  }

  /**
   * A name that the client has in use. The error should be Postgres' own, and only if Postgres finds no other first: so
   * the name is really taken on the server, by an empty statement, which is closed before the next request.
   */
  #parseAgain(scanner: FrameScanner, backend: BackendConnection, name: string): void {
    const taken = Buffer.from(name, 'latin1');
    this.#unsynced = true;
    this.#queue.push(Request.parse, Fate.skip);
    this.#out.insert(parseMessage(taken, EMPTY_DEFINITION));
    backend.session.leftovers.push(taken);
    this.#extended(Request.parse);
    this.#pass(scanner);
  }

  /** Bind, and Describe of a statement, under the name that the statement has on the server. */
  #named(scanner: FrameScanner, backend: BackendConnection, kind: typeof Request.bind | typeof Request.describe): void {
    const { buffer, start, end } = scanner;
    const nameStart = statementNameStart(buffer, start, end);
    const nameEnd = nameStart < 0 ? -1 : stringEnd(buffer, nameStart, end);
    if (nameEnd < 0) {
      this.#extended(kind);
      this.#pass(scanner);
      return;
    }
    const { unnamed } = this.#statements;
    // Prepared by an earlier request, it is used as what the client sees in it: its table may have changed since.
    if (nameEnd === nameStart && (unnamed?.server === undefined || !this.usesRepeated || this.#mayForget)) {
      this.#tell(unnamed?.traits);
      this.isPlain = false;
      this.#onServer.ensureUnnamed(backend);
      this.#sendSignals(unnamed, scanner);
      this.#bound(kind, unnamed?.traits, scanner);
      this.#extended(kind, kind === Request.bind ? this.#deallocation(unnamed?.definition, unnamed?.traits, backend) : undefined);
      this.#pass(scanner);
      return;
    }
    const statement = nameEnd === nameStart ? unnamed : this.#statements.get(buffer.toString('latin1', nameStart, nameEnd));
    const server = statement?.server;
    this.#tell(statement?.traits);
    this.bound = server;
    if (server !== undefined) this.#onServer.ensurePrepared(server, backend);
    this.#sendSignals(statement, scanner);
    this.#bound(kind, statement?.traits, scanner);
    this.#extended(kind, kind === Request.bind ? this.#deallocation(server?.definition, statement?.traits, backend) : undefined);
    // A name that the client has not prepared is the server's to refuse.
    if (server === undefined) this.#pass(scanner);
    else this.#out.insert(withStatementName(buffer, start, end, server.name));
  }

  #bound(kind: typeof Request.bind | typeof Request.describe, traits: TextTraits | undefined, scanner: FrameScanner): void {
    if (kind !== Request.bind) return;
    if (traits?.deallocatesAll === true) this.#forgetfulPortal = portalName(scanner);
    else if (this.#forgetfulPortal !== undefined && this.#forgetfulPortal === portalName(scanner)) this.#forgetfulPortal = undefined;
  }

  /** A DEALLOCATE that is bound is as good as executed. */
  #deallocation(text: Buffer | undefined, traits: TextTraits | undefined, backend: BackendConnection): Effect | undefined {
    if (text === undefined || traits?.deallocates !== true) return undefined;
    const names = this.#onServer.standIns(text.toString('latin1', 0, textEnd(text, 0, text.length)), traits, backend);
    const undos = names.map((name) => this.#statements.delete(name));
    return { undo: () => undos.map((undo) => undo()) };
  }

  /** A Bind of `pg_cancel_backend($1)` is a signal to a session. */
  #sendSignals(statement: { readonly signals: readonly ParameterSignal[] } | undefined, scanner: FrameScanner): void {
    if (statement === undefined || statement.signals.length === 0 || scanner.type !== FrontendType.Bind || !scanner.last) return;
    const bind = decodeFrontendMessage(scanner.type, scanner.buffer.subarray(scanner.start + HEADER_BYTES, scanner.end));
    if (bind.name !== 'Bind') return;
    for (const { parameter, signal } of statement.signals) {
      const formats = bind.parameterFormats;
      const processId = processIdOf(bind.parameters[parameter - 1], formats[formats.length === 1 ? 0 : parameter - 1] ?? 0);
      if (processId !== undefined) this.#listener.processIds.signal(processId, signal);
    }
  }

  #close(scanner: FrameScanner, backend: BackendConnection): void {
    const { buffer, start, end } = scanner;
    const nameStart = statementNameStart(buffer, start, end);
    const name = nameStart < 0 ? undefined : buffer.toString('latin1', nameStart, stringEnd(buffer, nameStart, end));
    const known = name !== undefined && name !== '' && this.#statements.get(name) !== undefined;
    this.#unsynced = true;
    if (known && name !== undefined) {
      // Others may use it: it stays on the server.
      this.#queue.push(Request.close, Fate.simulate, { undo: this.#statements.delete(name), redo: () => this.#statements.delete(name) });
      return;
    }
    if (name === '') {
      backend.session.unnamed = undefined;
      this.#queue.push(Request.close, Fate.forward, { undo: this.#statements.setUnnamed(undefined) });
    } else this.#queue.push(Request.close);
    this.#pass(scanner);
  }
}

const NO_NAME = Buffer.alloc(0);
/** Longer texts are not looked up for a statement of their own. */
const MAX_REPEATED_BYTES = 16_384;
const NO_EDITS: readonly Edit[] = [];
const TRANSACTION_END = /^\s*(?:rollback|commit|end|abort|prepare\s+transaction)\b/i;
const SHOWS_SEARCH_PATH = /^\s*show\s+(?:search_path|"search_path")\s*;?\s*$/i;

/** The portal that a Bind or Execute is about, as Latin-1. */
function portalName({ buffer, start, end }: FrameScanner): string {
  const nameStart = start + HEADER_BYTES;
  return buffer.toString('latin1', nameStart, textEnd(buffer, nameStart, end));
}

function textEnd(buffer: Buffer, from: number, end: number): number {
  const found = stringEnd(buffer, from, end);
  return found < 0 ? end : found;
}
