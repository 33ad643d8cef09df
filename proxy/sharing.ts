import type { BackendConnection } from '../src/backend/connection.ts';
import type { ReplyQueue } from '../src/backend/reply-queue.ts';
import { areEqual, type ServerStatement, type Settings, type StatementLatency } from '../src/backend/session-state.ts';
import { type ShareableRequest, type ShareMode, suits } from '../src/multiplex/multiplexer.ts';
import type { StatementRegistry } from '../src/multiplex/statement-registry.ts';
import { HEADER_BYTES, stringEnd } from '../src/protocol/framing.ts';
import { FrontendType, queryText } from '../src/protocol/frontend.ts';
import { areSame, type CustomOptions, NO_TRAITS, sessionTraitsOf } from '../src/syntax/session-traits.ts';
import type { ClientStatements, ParseCache } from './client-statements.ts';
import type { SessionServices } from './session-services.ts';
import type { WriteBuffer } from './write-buffer.ts';

/** A request that has arrived completely, and leaves no state in the session that runs it. */
class WireRequest implements ShareableRequest {
  readonly latency: StatementLatency;
  /** Undefined for a Query. */
  readonly #server: ServerStatement | undefined;
  readonly #settings: Settings;

  readonly #customOptions: CustomOptions;

  constructor(latency: StatementLatency, { settings, customOptions }: ShareableContext, server?: ServerStatement) {
    this.latency = latency;
    this.#settings = settings;
    this.#customOptions = customOptions;
    this.#server = server;
  }

  fits({ session }: BackendConnection): boolean {
    if (!areEqual(session.settings, this.#settings) || !areSame(session.customOptions, this.#customOptions)) return false;
    return this.#server === undefined || session.prepared.use(this.#server) !== undefined;
  }
}

type NamedStatements = Pick<ClientStatements, 'get'>;

/** What is known where a request comes from. */
interface ShareableContext {
  readonly statements: NamedStatements;
  readonly parseCache: ParseCache;
  readonly registry: StatementRegistry;
  readonly settings: Settings;
  readonly customOptions: CustomOptions;
  /** The settings that texts depend on. */
  readonly context: string;
}

const SHAREABLE_MAX_BYTES = 8_192;

/** @returns the request in the chunk, if the chunk is one shareable request that is known to be short */
export function shareableRequest(chunk: Buffer, context: ShareableContext): ShareableRequest | undefined {
  if (chunk.length > SHAREABLE_MAX_BYTES) return undefined;
  const shareable = chunk[0] === FrontendType.Query ? shareableQuery(chunk, context) : shareableExtendedQuery(chunk, context);
  return shareable?.latency?.isShort === true ? shareable : undefined;
}

function shareableQuery(chunk: Buffer, context: ShareableContext): ShareableRequest | undefined {
  if (messageEnd(chunk, 0) !== chunk.length) return undefined;
  const latency = context.registry.latencyOfQuery(queryText(chunk), hasNoTraits);
  return latency === undefined ? undefined : new WireRequest(latency, context);
}

/** Whether a text has no traits: it changes nothing that the session has to keep track of. */
export function hasNoTraits(text: string): boolean {
  return sessionTraitsOf(text) === NO_TRAITS;
}

/** `[Parse] Bind [Describe] Execute Sync`, with the unnamed portal. */
function shareableExtendedQuery(chunk: Buffer, from: ShareableContext): ShareableRequest | undefined {
  const { statements, parseCache, registry, context } = from;
  let at = 0;
  let server: ServerStatement | undefined;
  if (chunk[at] === FrontendType.Parse) {
    const end = messageEnd(chunk, at);
    server = parseCache.find({ buffer: chunk, start: at, end }, context, registry.generation)?.server;
    if (server === undefined || chunk[end + HEADER_BYTES + 1] !== 0) return undefined;
    at = end;
  }
  if (chunk[at] !== FrontendType.Bind || chunk[at + HEADER_BYTES] !== 0) return undefined;
  server ??= boundStatement(chunk, at + HEADER_BYTES + 1, statements, context);
  at = messageEnd(chunk, at);
  if (chunk[at] === FrontendType.Describe && chunk[at + HEADER_BYTES] === PORTAL) at = messageEnd(chunk, at);
  if (server === undefined || !isExecuteAll(chunk, at)) return undefined;
  at = messageEnd(chunk, at);
  if (chunk[at] !== FrontendType.Sync || messageEnd(chunk, at) !== chunk.length) return undefined;
  const latency = registry.latencyOf(server);
  return latency === undefined ? undefined : new WireRequest(latency, from, server);
}

/** A stand-in may be used only if it was prepared for these settings. */
function boundStatement(chunk: Buffer, start: number, statements: NamedStatements, context: string): ServerStatement | undefined {
  const end = stringEnd(chunk, start, chunk.length);
  const statement = end <= start ? undefined : statements.get(chunk.toString('latin1', start, end));
  if (statement === undefined || statement.traits !== NO_TRAITS) return undefined;
  return statement.first === undefined || statement.server.context === context ? statement.server : undefined;
}

/** An Execute of the unnamed portal for all rows. */
function isExecuteAll(chunk: Buffer, at: number): boolean {
  const body = at + HEADER_BYTES;
  if (chunk[at] !== FrontendType.Execute || messageEnd(chunk, at) !== body + 5 || body + 5 > chunk.length) return false;
  return chunk.readUInt32BE(body + 1) === 0;
}

/** @returns where the message that begins at `at` ends; beyond the end of the chunk if it is incomplete or missing */
function messageEnd(chunk: Buffer, at: number): number {
  const word = at + HEADER_BYTES <= chunk.length ? chunk.readUInt32BE(at + 1) : 0;
  return word < 4 ? Number.POSITIVE_INFINITY : at + 1 + word;
}

/** What a Describe is about. */
const PORTAL = 0x50;

/** What timing a request needs of its session. */
interface TimedSession {
  readonly services: SessionServices;
  readonly replies: ReplyQueue;
  readonly toClient: WriteBuffer;
  readonly since: number;
  readonly timed: ServerStatement | 'text' | 'none';
}

/** The request that a client waits for, and how long it takes. Only a single request is kept, and only if it has arrived completely. */
export class RequestInFlight {
  readonly #session: TimedSession;
  #bytes: Buffer | undefined;
  /** The number of bytes that had been written to the client before. */
  #writtenBefore = 0;
  /** When the last request ahead of it in a shared pipeline was answered, on performance.now()'s clock; 0: none was ahead. */
  #behindUntil = 0;
  /** Undefined until it has been looked up; null: the request has none. */
  #latency: StatementLatency | null | undefined;
  /** The request whose latency is known although it has not begun. */
  #expected: Buffer | undefined;

  constructor(session: TimedSession) {
    this.#session = session;
  }

  /** Keeps the latency that has been found at checkout, so that it need not be looked for when the request has been answered. */
  expect(request: Buffer, latency: StatementLatency | undefined): void {
    this.#expected = request;
    this.#latency = latency;
  }

  begin(request: Buffer): void {
    this.#bytes = request;
    this.#writtenBefore = this.#session.toClient.written;
    this.#behindUntil = 0;
    if (this.#expected !== request || this.#session.timed === 'none') this.#latency = undefined;
    this.#expected = undefined;
  }

  end(): void {
    this.#bytes = undefined;
    this.#expected = undefined;
  }

  /** The request; undefined where there is none, or more than one. */
  get bytes(): Buffer | undefined {
    return this.#bytes;
  }

  /** When the last request ahead of it in a shared pipeline was answered, or one ahead of an earlier request; 0: none was ahead. */
  get behindUntil(): number {
    return this.#behindUntil;
  }

  /** No byte of the reply has been sent to the client, so the request can be run again. */
  get isUnanswered(): boolean {
    return this.#bytes !== undefined && this.#writtenBefore === this.#session.toClient.written;
  }

  /** All requests ahead of it in the shared pipeline have been answered, so the backend runs it now. */
  slotStarted(now: number): void {
    this.#behindUntil = now;
  }

  /** @returns when it began to run, if other clients' requests may enter the pipeline behind it in this mode */
  shareableSince(mode: ShareMode): number | undefined {
    const isShareable = this.isUnanswered && this.#session.replies.isShareable && suits(this.#latencyOf(), mode);
    return isShareable ? Math.max(this.#session.since, this.#behindUntil) : undefined;
  }

  /**
   * @param askedAt when it was sent
   * @param again it has delayed others and will be run again
   */
  answered(askedAt: number, again: boolean): void {
    const { since, services } = this.#session;
    if (this.#bytes !== undefined && since < services.multiplexer.contendedUntil) this.#noteLatency(askedAt, again);
    if (!again) this.#bytes = undefined;
  }

  #noteLatency(askedAt: number, again: boolean): void {
    const { services, since, toClient } = this.#session;
    const latency = this.#latencyOf();
    if (again) {
      latency?.wasLong();
      return;
    }
    const durationMs = since - Math.max(askedAt, this.#behindUntil);
    latency?.ran(durationMs, toClient.written + toClient.bytes - this.#writtenBefore, services.registry.baseline);
    if (this.#behindUntil === 0) latency?.ranAlone(durationMs);
  }

  /** How long it takes as a rule, if it is shareable. */
  #latencyOf(): StatementLatency | undefined {
    this.#latency ??= this.#findLatency() ?? null;
    return this.#latency ?? undefined;
  }

  #findLatency(): StatementLatency | undefined {
    const { services, timed } = this.#session;
    const { registry } = services;
    if (this.#bytes === undefined || timed === 'none') return undefined;
    return timed === 'text' ? registry.latencyOfQuery(queryText(this.#bytes), hasNoTraits) : registry.latencyOf(timed);
  }
}
