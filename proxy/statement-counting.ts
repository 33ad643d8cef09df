import { performance } from 'node:perf_hooks';
import { Request } from '../src/backend/reply-queue.ts';
import type { ServerStatement } from '../src/backend/session-state.ts';
import type { Counted, StatementCounter } from '../src/catalog/statement-counters.ts';
import { type FrameScanner, HEADER_BYTES, latin1String, stringEnd } from '../src/protocol/framing.ts';
import { BoundedMap } from '../src/runtime/bounded-map.ts';
import { UnnamedChange, type UnnamedStatement } from './client-statements.ts';
import type { WireSession } from './wire-session.ts';

/* Counts the statements of a session for the query statistics: the texts of Query messages, and the executions of portals. */

const PORTALS_MAX = { maxEntries: 1_000, maxWeight: 65_536, weightOf: (name: string) => name.length };

/** @param text of a Query, whole or its beginning, as Latin-1 */
export function countedQuery({ services }: WireSession, text: string): Counted | undefined {
  return services.tenant.statements?.findLatin1(text);
}

/** Notes the statement of a portal that is bound. @param server undefined: the server knows the statement by the client's own name */
export function portalOf(
  session: WireSession,
  { buffer, start, end }: FrameScanner,
  server: ServerStatement | undefined,
  unnamed: UnnamedStatement | undefined,
): void {
  const { statements } = session.services.tenant;
  if (statements === undefined) return;
  const { counting } = session;
  const counted = server !== undefined ? countedServer(session, server) : unnamed && countedUnnamed(session, unnamed);
  if (buffer[start + HEADER_BYTES] === 0) {
    counting.unnamedPortal = counted ?? statements.unknown;
    return;
  }
  counting.namedPortals ??= new BoundedMap(PORTALS_MAX);
  counting.namedPortals.set(latin1String(buffer, start + HEADER_BYTES, end), counted);
}

function countedServer(session: WireSession, server: ServerStatement): Counted | undefined {
  server.counted ??= countedDefinition(session, server.definition);
  return server.counted;
}

function countedUnnamed(session: WireSession, unnamed: UnnamedStatement): Counted | undefined {
  if (unnamed.server !== undefined) return countedServer(session, unnamed.server);
  if (unnamed.isOversized !== true) unnamed.counted ??= countedDefinition(session, unnamed.definition);
  return unnamed.counted;
}

function countedDefinition({ services }: WireSession, definition: Buffer): Counted | undefined {
  return services.tenant.statements?.findLatin1(definition.toString('latin1', 0, stringEnd(definition, 0, definition.length)));
}

/** The statements of the portal that is executed. */
export function countedPortal({ counting, services }: WireSession, { buffer, start, end, last }: FrameScanner): Counted | undefined {
  const { statements } = services.tenant;
  if (statements === undefined) return undefined;
  const limit = last ? buffer.readInt32BE(end - LIMIT_BYTES) : 0;
  if (limit > 0) counting.rowLimit = limit;
  if (buffer[start + HEADER_BYTES] === 0) return counting.unnamedPortal ?? statements.unknown;
  return counting.namedPortals?.get(latin1String(buffer, start + HEADER_BYTES, end)) ?? statements.unknown;
}

/** A command of the client has completed. Called before the reply queue gets to know. */
export function statementCompleted(session: WireSession, rows: number): void {
  const { counting, replies } = session;
  const { counted } = replies;
  if (counted === undefined) return;
  const isQuery = replies.kind === Request.query;
  const counter = counted[counting.ended] ?? counted.at(-1);
  const isLast = isQuery ? counting.ended + 1 >= counted.length : replies.length === WITH_SYNC;
  if (isQuery) counting.ended += 1;
  if (isLast && counting.together.length === 0) {
    counting.last = counter;
    counting.lastRows = rows;
  } else completedTogether(session, counter, rows);
}

function completedTogether(session: WireSession, counter: StatementCounter | undefined, rows: number): void {
  const { counting } = session;
  if (counting.togetherChunk !== counting.chunk) {
    countTogether(session, counting.togetherAt, session.since);
    counting.togetherChunk = counting.chunk;
    counting.togetherAt = performance.now();
  }
  counting.together.push({ counter, rows, bytes: bytesSince(session) });
}

/** @param at when they ended, together with `more` others @returns the time that each took on the average */
function countTogether(session: WireSession, at: number, askedAt: number, more = 0): number {
  const { counting } = session;
  const { together } = counting;
  const share = Math.max(0, at - startOf(session, askedAt)) / (together.length + more);
  if (together.length === 0) return share;
  for (const { counter, rows, bytes } of together) counter?.ran(at, share, rows, bytes, false);
  together.length = 0;
  counting.endedAt = at;
  return share;
}

/** A portal has sent as many rows as it was asked for. */
export function portalSuspended(session: WireSession): void {
  const { counting, replies } = session;
  const counter = replies.counted?.[0];
  if (counter === undefined) return;
  const now = performance.now();
  counter.progressed(now, Math.max(0, now - startOf(session, session.since)), counting.rowLimit, bytesSince(session));
  counting.endedAt = now;
}

/** The client's request has failed, and is told so. Called before the reply queue gets to know. */
export function statementFailed(session: WireSession): void {
  const { counting, replies } = session;
  const counted = replies.countedNext ?? countedParse(session, replies.subject);
  const counter = counting.last ?? counted?.[replies.kind === Request.query ? counting.ended : 0] ?? counted?.at(-1);
  counting.last = undefined;
  if (counting.togetherChunk !== counting.chunk) countTogether(session, counting.togetherAt, session.since);
  const now = performance.now();
  counter?.ran(now, countTogether(session, now, session.since, 1), 0, bytesSince(session), true);
  counting.endedAt = now;
}

/** A statement that is only parsed may fail too. */
function countedParse(session: WireSession, subject: unknown): Counted | undefined {
  if (session.replies.kind !== Request.parse || subject === undefined) return undefined;
  if (subject instanceof UnnamedChange) return subject.unnamed && countedUnnamed(session, subject.unnamed);
  const { statement } = subject as { readonly statement?: ServerStatement };
  return statement && countedServer(session, statement);
}

/** The client's request has been answered, or has to run again. @param askedAt when it was sent */
export function requestCounted(session: WireSession, askedAt: number, isAnswered: boolean): void {
  const { counting, since } = session;
  const { last, together } = counting;
  if (isAnswered && last !== undefined) {
    last.ran(since, Math.max(0, since - startOf(session, askedAt)), counting.lastRows, bytesSince(session), false);
  }
  if (isAnswered && together.length > 0) {
    countTogether(session, counting.togetherChunk === counting.chunk ? since : counting.togetherAt, askedAt);
  }
  counting.last = undefined;
  if (together.length > 0) together.length = 0;
  counting.ended = 0;
  counting.endedAt = 0;
  counting.bytes = bytesForClient(session);
}

/** When the statement that ends now began to run. */
function startOf({ counting, inFlight }: WireSession, askedAt: number): number {
  return Math.max(counting.endedAt, inFlight.behindUntil, askedAt);
}

function bytesSince(session: WireSession): number {
  const { counting } = session;
  const bytes = bytesForClient(session);
  const since = Math.max(0, bytes - counting.bytes);
  counting.bytes = bytes;
  return since;
}

function bytesForClient({ toClient }: WireSession): number {
  return toClient.written + toClient.bytes;
}

/** An Execute ends with the limit of its rows. */
const LIMIT_BYTES = 4;
/** A request, and the Sync behind it. */
const WITH_SYNC = 2;
