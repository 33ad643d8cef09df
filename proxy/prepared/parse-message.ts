import type { BackendConnection } from '../../src/backend/connection.ts';
import { Disposition, Request } from '../../src/backend/pending-replies.ts';
import { definitionAgain, newServerStatement, type ServerStatement } from '../../src/backend/prepared-statements.ts';
import type { ReplyQueue } from '../../src/backend/reply-queue.ts';
import { ServiceError } from '../../src/errors.ts';
import type { StatementRegistry } from '../../src/multiplex/statement-registry.ts';
import type { TransactionStatus } from '../../src/protocol/backend.ts';
import { latin1String, stringEnd } from '../../src/protocol/body.ts';
import { type FrameScanner, HEADER_BYTES } from '../../src/protocol/frame.ts';
import { FrontendType } from '../../src/protocol/frontend.ts';
import { parseMessage } from '../../src/protocol/frontend-encoder.ts';
import { MAX_KEPT_DEFINITION_BYTES } from '../buffer-limits.ts';
import { type AuditedText, mayChangeObjects } from '../inspection/audited-text.ts';
import { isPreparable, NO_TRAITS, type SqlTraits, staysTheSame } from '../inspection/sql-traits.ts';
import type { Pins } from '../pinning/pins.ts';
import type { QueryInspection } from '../pinning/query-inspection.ts';
import type { WriteBuffer } from '../relay/write-buffer.ts';
import type { ClientStatements, NamedStatement, UnnamedStatement } from './client-statements.ts';
import { NamedParse, type ParseEffect, SentParse, UnnamedChange } from './effects.ts';
import type { ParseCache, RepeatedStatement } from './parse-cache.ts';
import type { PendingDeallocations } from './pending-deallocations.ts';
import type { PendingNames } from './pending-names.ts';
import type { ServerStatements } from './server-statements.ts';

/**
 * What has become of a Parse: it has been sent, or answered; it stands for a statement that is prepared behind the client's
 * back; or it waits until the backend has said what it makes of such a statement.
 */
export type ParseOutcome = 'sent' | 'repeated' | 'asked';

/** What Parse messages are handled with. */
export interface ParseContext {
  readonly session: {
    readonly pins: Pins;
    /** As of the last ReadyForQuery. */
    readonly status: TransactionStatus;
  };
  readonly statements: ClientStatements;
  readonly deallocations: PendingDeallocations;
  readonly names: PendingNames;
  readonly texts: QueryInspection;
  readonly registry: StatementRegistry;
  readonly recent: ParseCache;
  readonly onServer: ServerStatements;
  readonly queue: ReplyQueue;
  readonly out: WriteBuffer;
}

/**
 * A client's Parse messages: finds the server statement that each stands for, which others may have prepared before, and
 * sends what the backend at hand has to see.
 */
export class ParseMessages {
  readonly #context: ParseContext;

  constructor(context: ParseContext) {
    this.#context = context;
  }

  /**
   * Answers a named Parse without a backend: its statement is known to be good, and will be prepared where it is first
   * executed. A client that prepares before it needs a backend thus does not have to wait for one.
   * @returns false when a backend has to see it
   */
  parseKnown({ type, buffer, start, end, length, last }: FrameScanner): boolean {
    const { session, statements, texts, registry } = this.#context;
    const nameStart = start + HEADER_BYTES;
    if (type !== FrontendType.Parse || !last || length > MAX_LOOKED_UP_BYTES || buffer[nameStart] === 0) return false;
    const nameEnd = stringEnd(buffer, nameStart, end);
    if (nameEnd < 0) return false;
    const name = buffer.toString('latin1', nameStart, nameEnd);
    if (statements.get(name) !== undefined || !statements.hasRoomFor(name, length)) return false;
    const text = latin1String(buffer, nameEnd + 1, end);
    const { context } = session.pins;
    if (context === undefined || !staysTheSame(text) || mayChangeObjects(text)) return false;
    const { definition, traits, signals } = texts.prepared(text, buffer.subarray(nameEnd + 1, end));
    const server = registry.find(definition, context);
    if (server === undefined || !server.proven) return false;
    statements.set(name, { server, traits, signals });
    return true;
  }

  /** @param startsPipeline all that the client has asked before has been answered */
  parse(scanner: FrameScanner, backend: BackendConnection, startsPipeline: boolean): ParseOutcome {
    const { texts, statements } = this.#context;
    texts.demandWhole(scanner);
    const { buffer, start, length } = scanner;
    const isKept = scanner.last && length <= MAX_KEPT_DEFINITION_BYTES;
    const end = isKept ? scanner.end : Math.min(scanner.end, start + MAX_KEPT_DEFINITION_BYTES);
    const nameStart = start + HEADER_BYTES;
    const mayRepeat = buffer[nameStart] === 0 && isKept && startsPipeline && this.#mayRepeat;
    const known = mayRepeat ? this.#recalled(scanner) : undefined;
    if (known !== undefined) return this.#parseRepeated(scanner, known, backend);
    const nameEnd = stringEnd(buffer, nameStart, end);
    if (nameEnd < 0 && !isKept)
      throw new ServiceError('payload_too_large', `a statement's name may have at most ${MAX_KEPT_DEFINITION_BYTES} bytes`);
    const text = nameEnd < 0 ? '' : latin1String(buffer, nameEnd + 1, end);
    const watched = texts.look(text, isKept || nameEnd + 1 + text.length < end);
    if (!isKept || nameEnd < 0) {
      const traits = texts.tellBeginning(text, nameEnd !== nameStart);
      texts.by(scanner, end);
      if (nameEnd > nameStart && watched !== undefined) texts.oversized(buffer.toString('latin1', nameStart, nameEnd), watched);
      this.#parseOversized(scanner, backend, traits, watched);
      return 'sent';
    }
    const prepared = texts.prepared(text, buffer.subarray(nameEnd + 1, end), watched);
    const name = buffer.toString('latin1', nameStart, nameEnd);
    if (!statements.hasRoomFor(name, length)) {
      this.#parseUnkept(scanner, backend, name, prepared);
      return 'sent';
    }
    texts.tell(prepared.traits);
    if (name !== '') {
      const server = this.#statementOf(prepared.definition, staysTheSame(text) && !prepared.traits.namesPrepared);
      return this.#parseNamed(scanner, backend, name, prepared, server);
    }
    const repeated = mayRepeat && isPreparable(text, prepared.traits) ? this.#repeated(prepared) : undefined;
    if (repeated === undefined) {
      this.#parseUnnamed(scanner, backend, prepared);
      return 'sent';
    }
    if (watched === undefined && prepared.traits === NO_TRAITS) this.#remember(scanner, repeated);
    return this.#parseRepeated(scanner, repeated, backend);
  }

  /**
   * Whether a text without a name that starts a pipeline may stand for a statement that others have prepared: where it can
   * be run again, should a table have changed by a way unknown here.
   */
  get #mayRepeat(): boolean {
    const { session, deallocations } = this.#context;
    return session.status === 'I' && !deallocations.all && !session.pins.namesAreOwn;
  }

  /** What the very same message has been before. */
  #recalled(scanner: FrameScanner): RepeatedStatement | undefined {
    const { session, registry, recent } = this.#context;
    return recent.find(scanner, session.pins.context, registry.generation);
  }

  #remember(scanner: FrameScanner, repeated: RepeatedStatement): void {
    const { session, registry, recent } = this.#context;
    const { context } = session.pins;
    if (context !== undefined) recent.keep(scanner, context, registry.generation, repeated);
  }

  /** The statement of a text that comes again and again without a name. */
  #repeated(prepared: UnnamedStatement): RepeatedStatement | undefined {
    const { context } = this.#context.session.pins;
    if (context === undefined || prepared.definition.length > MAX_LOOKED_UP_BYTES) return undefined;
    const server = this.#context.registry.repeated(prepared.definition, context);
    return server === undefined ? undefined : { ...prepared, definition: server.definition, server };
  }

  /**
   * Shared with whoever prepares the same text in the same settings, unless it would not be the same there, or it is not known
   * yet whether the server has it.
   */
  #statementOf(definition: Buffer, staysTheSame: boolean): ServerStatement {
    const { namesAreOwn, context } = this.#context.session.pins;
    if (namesAreOwn || context === undefined || !staysTheSame) return newServerStatement(Buffer.from(definition));
    const shared = this.#context.registry.intern(definition, context);
    return this.#context.names.isUnsettled(shared) ? newServerStatement(shared.definition) : shared;
  }

  /**
   * What a named statement of the client's is on the backend at hand, as a rule what it was when it was prepared.
   *
   * Constants are read when a statement is prepared (`'2025-01-01'::timestamptz`, say, in the TimeZone of that moment). Where it
   * is missing, and the session's settings are not those in which it was prepared, another stands in: it must not become others'.
   */
  standsFor(name: string, statement: NamedStatement, backend: BackendConnection): ServerStatement {
    const { server, first = server } = statement;
    const { pins, status } = this.#context.session;
    const { prepared } = backend.session;
    const isAsPrepared = first.context === undefined || first.context === pins.context || prepared.use(first);
    if (isAsPrepared) return this.#stands(name, statement, first);
    // One that is this client's alone was made in the midst of a transaction, for that.
    const isStandIn = server !== first && (server.context === undefined ? status !== 'I' : server.context === pins.context);
    if (isStandIn) return server;
    return this.#stands(name, statement, this.#statementOf(first.definition, true));
  }

  /** Has a name of the client's, which does not know yet what it stands for, stand for what its text is now. */
  standsAnew(name: string, statement: NamedStatement): ServerStatement {
    const { first = statement.server, server: _, ...rest } = statement;
    const server = this.#statementOf(first.definition, first.context !== undefined);
    this.#context.statements.set(name, { ...rest, server });
    return server;
  }

  #stands(name: string, statement: NamedStatement, server: ServerStatement): ServerStatement {
    const { first = statement.server } = statement;
    if (server !== statement.server) this.#context.statements.set(name, { ...statement, server, first });
    return server;
  }

  /**
   * To the client it has no name; on the server it has one, so that it is not planned anew each time. Where that is missing it
   * is prepared for the next time, and need not be then what it is now.
   */
  #parseRepeated(scanner: FrameScanner, repeated: RepeatedStatement, backend: BackendConnection): ParseOutcome {
    const { server } = repeated;
    if (!backend.session.prepared.use(server)) {
      const { server: _, ...unnamed } = repeated;
      this.#context.onServer.prepare(server, backend, false, unnamed.edits);
      this.#parseUnnamed(scanner, backend, unnamed);
      return 'sent';
    }
    this.#context.names.changes('');
    this.#parseOnce(server, backend, new UnnamedChange(this.#context.statements, repeated));
    return 'repeated';
  }

  /** A Parse that is sent only where the statement is missing; elsewhere its reply is ours to make. */
  #parseOnce(server: ServerStatement, backend: BackendConnection, parse: ParseEffect): void {
    const { deallocations, names, onServer, queue, out } = this.#context;
    parse.note();
    const { prepared } = backend.session;
    const isThere = prepared.use(server);
    if (isThere && !deallocations.all) {
      const isRefused = this.#isRefused(server);
      queue.push(Request.parse, isRefused ? Disposition.forward : Disposition.simulate, parse);
      if (isRefused) out.insert(parseMessage(server.name, server.definition));
      return;
    }
    if (isThere) onServer.closeOnServer(server, backend);
    else onServer.closeIfLeft(server.name, backend);
    const evicted = prepared.set(server, server);
    names.prepares(server);
    queue.push(Request.parse, Disposition.forward, new SentParse(parse, server, prepared));
    out.insert(parseMessage(server.name, definitionAgain(server.definition, server.shape)));
    onServer.evict(evicted, backend);
    onServer.describe(server, backend);
  }

  /** In a transaction that has failed the server parses nothing but what ends it. */
  #isRefused({ definition }: ServerStatement): boolean {
    const { session, queue } = this.#context;
    return session.status === 'E' && queue.length === 0 && !TRANSACTION_END.test(definition.toString('latin1'));
  }

  #parseUnnamed(scanner: FrameScanner, backend: BackendConnection, prepared: UnnamedStatement): void {
    const kept = { ...prepared, definition: Buffer.from(prepared.definition) };
    this.#noteUnnamed(kept, backend);
    if (prepared.changed) this.#context.out.insert(parseMessage(NO_NAME, kept.definition));
    else this.#pass(scanner);
  }

  /** What is sent on becomes the unnamed statement, on both sides. */
  #noteUnnamed(unnamed: UnnamedStatement, backend: BackendConnection): void {
    const { statements, names, queue } = this.#context;
    const change = new UnnamedChange(statements, unnamed, backend.session);
    names.changes('');
    change.note();
    queue.push(Request.parse, Disposition.forward, change);
  }

  /**
   * Too large to keep. With a name it stays where it was prepared, under the client's own name, and so does the session;
   * without one it is good for what follows up to the Sync.
   */
  #parseOversized(scanner: FrameScanner, backend: BackendConnection, traits: SqlTraits, watched: AuditedText | undefined): void {
    if (traits.staysPrepared) this.#context.queue.push(Request.parse);
    else this.#noteUnnamed({ definition: NO_NAME, isOversized: true, changed: false, edits: [], traits, signals: [], watched }, backend);
    this.#pass(scanner);
  }

  /** The organization's clients have as many as may be kept: as one that is too large. */
  #parseUnkept(scanner: FrameScanner, backend: BackendConnection, name: string, prepared: UnnamedStatement): void {
    const { texts, queue, out } = this.#context;
    const { changed, definition, edits, traits, watched } = prepared;
    if (name !== '' && watched !== undefined) texts.oversized(name, watched);
    texts.tell(name === '' ? traits : { ...traits, staysPrepared: true });
    if (name === '') this.#noteUnnamed({ ...prepared, definition: NO_NAME, isOversized: true }, backend);
    else queue.push(Request.parse, Disposition.forward, { undo: () => {}, edits });
    if (changed) out.insert(parseMessage(Buffer.from(name, 'latin1'), definition));
    else this.#pass(scanner);
  }

  #parseNamed(
    scanner: FrameScanner,
    backend: BackendConnection,
    name: string,
    prepared: UnnamedStatement,
    server: ServerStatement,
  ): ParseOutcome {
    const { statements, deallocations, names, queue } = this.#context;
    const { traits, signals, edits, watched } = prepared;
    if (statements.get(name) !== undefined && !deallocations.hasTaken(name, queue.batch)) {
      this.#parseAgain(scanner, backend, name, prepared);
      return 'sent';
    }
    if (!deallocations.all && this.#context.onServer.asksFirst(server, backend)) return 'asked';
    names.changes(name);
    deallocations.gives(name);
    this.#parseOnce(server, backend, new NamedParse(statements, name, { server, traits, signals, watched }, edits));
    return 'sent';
  }

  /**
   * A name that the client has in use. The error should be Postgres' own, and only if Postgres finds no other first: so
   * the name is really taken on the server, by an empty statement, which is closed before the next request.
   */
  #parseAgain(scanner: FrameScanner, backend: BackendConnection, name: string, { changed, definition, edits }: UnnamedStatement): void {
    const { onServer, queue, out } = this.#context;
    const taken = Buffer.from(name, 'latin1');
    onServer.take(name, backend);
    queue.push(Request.parse, Disposition.forward, { undo: () => {}, edits });
    if (changed) out.insert(parseMessage(taken, definition));
    else this.#pass(scanner);
  }

  #pass({ buffer, start, end }: FrameScanner): void {
    this.#context.out.add(buffer, start, end);
  }
}

const NO_NAME = Buffer.alloc(0);
/** Longer texts are not looked up for a statement of their own, nor looked at twice. */
const MAX_LOOKED_UP_BYTES = 16_384;
const TRANSACTION_END = /^\s*(?:rollback|commit|end|abort|prepare\s+transaction)\b/i;
