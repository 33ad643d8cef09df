import { performance } from 'node:perf_hooks';
import { type ReplyQueue, Request } from '../src/backend/reply-queue.ts';
import type { ServerStatement } from '../src/backend/session-state.ts';
import type { Counted, StatementCounter } from '../src/catalog/statement-counters.ts';
import { type FrameScanner, HEADER_BYTES, latin1String, stringEnd } from '../src/protocol/framing.ts';
import { BoundedMap } from '../src/runtime/bounded-map.ts';
import { UnnamedChange, type UnnamedStatement } from './client-statements.ts';
import type { SessionServices } from './session-services.ts';
import type { RequestInFlight } from './sharing.ts';
import type { WriteBuffer } from './write-buffer.ts';

const PORTALS_MAX = { maxEntries: 1_000, maxWeight: 65_536, weightOf: (name: string) => name.length };

/** An Execute ends with the limit of its rows. */
const LIMIT_BYTES = 4;
/** A request, and the Sync behind it. */
const WITH_SYNC = 2;

/** What counting needs of its session. */
interface CountedSession {
  readonly services: SessionServices;
  readonly replies: ReplyQueue;
  readonly toClient: WriteBuffer;
  readonly inFlight: RequestInFlight;
  readonly since: number;
}

interface CompletedStatement {
  readonly counter: StatementCounter | undefined;
  readonly rows: number;
  readonly bytes: number;
}

/** Of the sessions that never had any; nothing is added to it. */
const NONE_TOGETHER: CompletedStatement[] = [];

/**
 * Counts the statements of a session for the query statistics: the texts of Query messages, and the executions of portals. Nothing is
 * allocated for a request with one.
 */
export class StatementCounting {
  readonly #session: CountedSession;
  /** The statements of portals that have been bound. */
  #unnamedPortal: Counted | undefined;
  #namedPortals: BoundedMap<string, Counted | undefined> | undefined;
  /** How many rows the last Execute with a limit asks for. */
  #rowLimit = 0;
  /** How many statements of the request being answered have ended. */
  #ended = 0;
  /** When the last one did, if its end has been noted; 0: none. On performance.now()'s clock. */
  #endedAt = 0;
  /** The one that has completed alone, and is counted with the ReadyForQuery, which is on its way. */
  #last: StatementCounter | undefined;
  #lastRows = 0;
  /** Those that have completed in one chunk of replies: the server sends replies together, so only their time together is known. */
  #together = NONE_TOGETHER;
  #togetherAt = 0;
  #togetherChunk = 0;
  /** How many chunks of replies have arrived. */
  #chunk = 0;
  /** The bytes for the client up to the last end. */
  #bytes = 0;

  constructor(session: CountedSession) {
    this.#session = session;
  }

  /** A chunk of replies has arrived. */
  repliesArrived(): void {
    this.#chunk += 1;
  }

  /** @param text of a Query, whole or its beginning, as Latin-1 */
  query(text: string): Counted | undefined {
    const { services } = this.#session;
    return services.tenant.statements?.findLatin1(text);
  }

  /** Notes the statement of a portal that is bound. @param server undefined: the server knows the statement by the client's own name */
  bound({ buffer, start, end }: FrameScanner, server: ServerStatement | undefined, unnamed: UnnamedStatement | undefined): void {
    const session = this.#session;
    const { statements } = session.services.tenant;
    if (statements === undefined) return;
    const counted = server !== undefined ? this.#countedServer(server) : unnamed && this.#countedUnnamed(unnamed);
    if (buffer[start + HEADER_BYTES] === 0) {
      this.#unnamedPortal = counted ?? statements.unknown;
      return;
    }
    this.#namedPortals ??= new BoundedMap(PORTALS_MAX);
    this.#namedPortals.set(latin1String(buffer, start + HEADER_BYTES, end), counted);
  }

  #countedServer(server: ServerStatement): Counted | undefined {
    server.counted ??= this.#countedDefinition(server.definition);
    return server.counted;
  }

  #countedUnnamed(unnamed: UnnamedStatement): Counted | undefined {
    if (unnamed.server !== undefined) return this.#countedServer(unnamed.server);
    if (unnamed.isOversized !== true) unnamed.counted ??= this.#countedDefinition(unnamed.definition);
    return unnamed.counted;
  }

  #countedDefinition(definition: Buffer): Counted | undefined {
    const { services } = this.#session;
    return services.tenant.statements?.findLatin1(definition.toString('latin1', 0, stringEnd(definition, 0, definition.length)));
  }

  /** The statements of the portal that is executed. */
  executed({ buffer, start, end, last }: FrameScanner): Counted | undefined {
    const { services } = this.#session;
    const { statements } = services.tenant;
    if (statements === undefined) return undefined;
    const limit = last ? buffer.readInt32BE(end - LIMIT_BYTES) : 0;
    if (limit > 0) this.#rowLimit = limit;
    if (buffer[start + HEADER_BYTES] === 0) return this.#unnamedPortal ?? statements.unknown;
    return this.#namedPortals?.get(latin1String(buffer, start + HEADER_BYTES, end)) ?? statements.unknown;
  }

  /** A command of the client has completed. Called before the reply queue gets to know. */
  completed(rows: number): void {
    const { replies } = this.#session;
    const { counted } = replies;
    if (counted === undefined) return;
    const isQuery = replies.kind === Request.query;
    const counter = counted[this.#ended] ?? counted.at(-1);
    const isLast = isQuery ? this.#ended + 1 >= counted.length : replies.length === WITH_SYNC;
    if (isQuery) this.#ended += 1;
    if (isLast && this.#together.length === 0) {
      this.#last = counter;
      this.#lastRows = rows;
    } else this.#completedTogether(counter, rows);
  }

  #completedTogether(counter: StatementCounter | undefined, rows: number): void {
    const session = this.#session;
    if (this.#togetherChunk !== this.#chunk) {
      this.#countTogether(this.#togetherAt, session.since);
      this.#togetherChunk = this.#chunk;
      this.#togetherAt = performance.now();
    }
    if (this.#together === NONE_TOGETHER) this.#together = [];
    this.#together.push({ counter, rows, bytes: this.#bytesSince() });
  }

  /** @param at when they ended, together with `more` others @returns the time that each took on the average */
  #countTogether(at: number, askedAt: number, more = 0): number {
    const together = this.#together;
    const share = Math.max(0, at - this.#startOf(askedAt)) / (together.length + more);
    if (together.length === 0) return share;
    for (const { counter, rows, bytes } of together) counter?.ran(at, share, rows, bytes, false);
    together.length = 0;
    this.#endedAt = at;
    return share;
  }

  /** A portal has sent as many rows as it was asked for. */
  suspended(): void {
    const session = this.#session;
    const { replies } = session;
    const counter = replies.counted?.[0];
    if (counter === undefined) return;
    const now = performance.now();
    counter.progressed(now, Math.max(0, now - this.#startOf(session.since)), this.#rowLimit, this.#bytesSince());
    this.#endedAt = now;
  }

  /** The client's request has failed, and is told so. Called before the reply queue gets to know. */
  failed(): void {
    const session = this.#session;
    const { replies } = session;
    const counted = replies.countedNext ?? this.#countedParse(replies.subject);
    const counter = this.#last ?? counted?.[replies.kind === Request.query ? this.#ended : 0] ?? counted?.at(-1);
    this.#last = undefined;
    if (this.#togetherChunk !== this.#chunk) this.#countTogether(this.#togetherAt, session.since);
    const now = performance.now();
    counter?.ran(now, this.#countTogether(now, session.since, 1), 0, this.#bytesSince(), true);
    this.#endedAt = now;
  }

  /** A statement that is only parsed may fail too. */
  #countedParse(subject: unknown): Counted | undefined {
    if (this.#session.replies.kind !== Request.parse || subject === undefined) return undefined;
    if (subject instanceof UnnamedChange) return subject.unnamed && this.#countedUnnamed(subject.unnamed);
    const { statement } = subject as { readonly statement?: ServerStatement };
    return statement && this.#countedServer(statement);
  }

  /** The client's request has been answered, or has to run again. @param askedAt when it was sent */
  answered(askedAt: number, isAnswered: boolean): void {
    const { since } = this.#session;
    const last = this.#last;
    const together = this.#together;
    if (isAnswered && last !== undefined) {
      last.ran(since, Math.max(0, since - this.#startOf(askedAt)), this.#lastRows, this.#bytesSince(), false);
    }
    if (isAnswered && together.length > 0) {
      this.#countTogether(this.#togetherChunk === this.#chunk ? since : this.#togetherAt, askedAt);
    }
    this.#last = undefined;
    if (together.length > 0) together.length = 0;
    this.#ended = 0;
    this.#endedAt = 0;
    this.#bytes = this.#bytesForClient();
  }

  /** When the statement that ends now began to run. */
  #startOf(askedAt: number): number {
    const { inFlight } = this.#session;
    return Math.max(this.#endedAt, inFlight.behindUntil, askedAt);
  }

  #bytesSince(): number {
    const bytes = this.#bytesForClient();
    const since = Math.max(0, bytes - this.#bytes);
    this.#bytes = bytes;
    return since;
  }

  #bytesForClient(): number {
    const { toClient } = this.#session;
    return toClient.written + toClient.bytes;
  }
}
