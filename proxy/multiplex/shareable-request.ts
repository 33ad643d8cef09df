import type { BackendConnection } from '../../src/backend/connection.ts';
import { areEqual, type ServerStatement, type Settings, type StatementLatency } from '../../src/backend/session-state.ts';
import type { ShareableRequest } from '../../src/multiplex/multiplexer.ts';
import type { StatementRegistry } from '../../src/multiplex/statement-registry.ts';
import { HEADER_BYTES, stringEnd } from '../../src/protocol/framing.ts';
import { FrontendType, queryText } from '../../src/protocol/frontend.ts';
import { areSame, type CustomOptions, NO_TRAITS, sessionTraitsOf } from '../../src/syntax/session-traits.ts';
import type { ClientStatements } from '../prepared/client-statements.ts';
import type { ParseCache } from '../prepared/parse-cache.ts';

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

/** What is known where a request comes from. */
export interface ShareableContext {
  readonly statements: ClientStatements;
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
function boundStatement(chunk: Buffer, start: number, statements: ClientStatements, context: string): ServerStatement | undefined {
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
