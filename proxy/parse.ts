import type { BackendConnection } from '../src/backend/connection.ts';
import { Disposition, Request } from '../src/backend/reply-queue.ts';
import { definitionToReprepare, type ServerStatement } from '../src/backend/session-state.ts';
import { ServiceError } from '../src/errors.ts';
import { isSameShape } from '../src/protocol/backend.ts';
import { type FrameScanner, HEADER_BYTES, latin1String, stringEnd } from '../src/protocol/framing.ts';
import { parseMessage } from '../src/protocol/frontend.ts';
import { canBePreparedAgain, isPreparable, NO_TRAITS, sessionTraitsOf, traitsOfBeginning } from '../src/syntax/session-traits.ts';
import { MAX_KEPT_DEFINITION_BYTES } from './audited-text.ts';
import {
  NamedParse,
  type NamedStatement,
  type ParseEffect,
  type RepeatedStatement,
  SentParse,
  UnnamedChange,
  type UnnamedStatement,
} from './client-statements.ts';
import type { Inspected } from './inspection.ts';
import { NO_SIGNALS } from './process-ids.ts';
import {
  awaitsClientNames,
  closeEvicted,
  closeIfStale,
  closeStatement,
  describeStatement,
  ensurePrepared,
  mustDescribeFirst,
  mustEndPipeline,
  preparePlaceholder,
  prepareStatement,
  renewStatement,
  sendLongText,
  sendText,
  serverStatementOf,
} from './server-statements.ts';
import type { WireSession } from './wire-session.ts';

/*
 * These functions find the server statement for each Parse of a client, which another client may have prepared before, and
 * send the messages that the backend needs.
 */

/**
 * The outcome of a Parse. `sent`: it was sent or answered. `repeated`: it refers to a statement that Postern prepared itself.
 * `asked`: it waits until the backend has described such a statement, or has answered what was sent before.
 */
type ParseOutcome = 'sent' | 'repeated' | 'asked';

export function forwardParse(session: WireSession, scanner: FrameScanner, backend: BackendConnection): ParseOutcome {
  const { inspection } = session;
  inspection.demandWhole(scanner);
  const { buffer, start, length } = scanner;
  const isKept = scanner.last && length <= MAX_KEPT_DEFINITION_BYTES;
  const end = isKept ? scanner.end : Math.min(scanner.end, start + MAX_KEPT_DEFINITION_BYTES);
  const nameStart = start + HEADER_BYTES;
  const mayRepeat = buffer[nameStart] === 0 && isKept && session.startsPipeline && mayBeRepeated(session);
  const known = mayRepeat ? recall(session, scanner) : undefined;
  if (known !== undefined) return parseRepeated(session, scanner, known, backend);
  const nameEnd = stringEnd(buffer, nameStart, end);
  if (nameEnd < 0 && isKept) {
    forwardMalformed(session, scanner);
    return 'sent';
  }
  if (nameEnd < 0) throw new ServiceError('payload_too_large', `a statement's name may have at most ${MAX_KEPT_DEFINITION_BYTES} bytes`);
  const text = latin1String(buffer, nameEnd + 1, end);
  const inspected = inspection.inspect(text, isKept || nameEnd + 1 + text.length < end);
  if (session.unsyncedBatch === session.replies.batch && mustEndPipeline(session, isKept ? inspected.traits : sessionTraitsOf(text)))
    return 'asked';
  if (!isKept) {
    parseOversized(session, scanner, backend, text, buffer.toString('latin1', nameStart, nameEnd), inspected);
    return 'sent';
  }
  const prepared = preparedOf(inspected, text, buffer.subarray(nameEnd + 1, end));
  const name = buffer.toString('latin1', nameStart, nameEnd);
  if (!session.statements.hasRoomFor(name, length)) {
    parseOverBudget(session, scanner, backend, name, inspected, prepared);
    return 'sent';
  }
  if (awaitsClientNames(session, prepared.traits)) return 'asked';
  sendText(session, inspected);
  if (name !== '') {
    const isAgainTheSame = canBePreparedAgain(text);
    // Prepared on another backend, it would have the moment of that.
    if (!isAgainTheSame) session.pins.keep('constant');
    const server = serverStatementOf(session, prepared.definition, isAgainTheSame && !prepared.traits.namesPrepared, prepared.hasEscapes);
    return parseNamed(session, scanner, backend, name, prepared, server);
  }
  const repeated = mayRepeat && isPreparable(text, prepared.traits) ? repeatedOf(session, prepared) : undefined;
  if (repeated === undefined) {
    parseUnnamed(session, scanner, backend, prepared);
    return 'sent';
  }
  if (prepared.watched === undefined && prepared.traits === NO_TRAITS) remember(session, scanner, repeated);
  return parseRepeated(session, scanner, repeated, backend);
}

/** The server refuses a Parse in which no name ends. */
function forwardMalformed({ replies, toBackend }: WireSession, { buffer, start, end }: FrameScanner): void {
  replies.push(Request.parse);
  toBackend.add(buffer, start, end);
}

/**
 * Whether an unnamed statement that starts a pipeline may refer to a shared server statement. It must be possible to run it
 * again, because a table may have changed without Postern's knowledge.
 */
function mayBeRepeated({ status, names, pins }: WireSession): boolean {
  return status === 'I' && !names.mayAllBeGone && !pins.namesAreOwn;
}

/** Finds the statement that the same bytes referred to recently. */
function recall({ pins, services, sharesTexts }: WireSession, scanner: FrameScanner): RepeatedStatement | undefined {
  const { registry, parseCache } = services;
  if (!sharesTexts) return undefined;
  return parseCache.find(scanner, pins.context, registry.generation);
}

function remember({ pins, services }: WireSession, scanner: FrameScanner, repeated: RepeatedStatement): void {
  const { registry, parseCache } = services;
  const { context } = pins;
  if (context !== undefined) parseCache.keep(scanner, context, registry.generation, repeated);
}

/**
 * An unnamed statement for the client that has a name on the server, so that it is not planned each time. If the backend does
 * not have it yet, it is prepared for the next time, and this request uses the unnamed statement.
 */
function parseRepeated(session: WireSession, scanner: FrameScanner, repeated: RepeatedStatement, backend: BackendConnection): ParseOutcome {
  const { server } = repeated;
  if (!backend.session.prepared.use(server)) {
    const { server: _, ...unnamed } = repeated;
    // The client's own Parse is first: where it fails, it takes the former unnamed statement with it.
    parseUnnamed(session, scanner, backend, unnamed);
    prepareStatement(session, server, backend, false, unnamed.edits);
    return 'sent';
  }
  session.names.changes('');
  parseOnce(session, server, backend, new UnnamedChange(session.statements, repeated));
  session.usesRepeated = true;
  return 'repeated';
}

/** Sends a Parse only if the backend does not have the statement; otherwise Postern makes the reply. */
function parseOnce(session: WireSession, server: ServerStatement, backend: BackendConnection, parse: ParseEffect): void {
  const { names, replies, toBackend } = session;
  parse.note();
  const { prepared } = backend.session;
  const isThere = prepared.use(server) !== undefined;
  if (isThere && !names.mayAllBeGone) {
    const isRefused = isRefusedInFailedTransaction(session, server);
    replies.push(Request.parse, isRefused ? Disposition.forward : Disposition.simulate, parse);
    if (isRefused) toBackend.insert(parseMessage(server.name, server.definition));
    return;
  }
  if (isThere) closeStatement(session, server, backend);
  else closeIfStale(session, server.name, backend);
  const evicted = prepared.set(server, server);
  names.prepares(server);
  replies.push(Request.parse, Disposition.forward, new SentParse(parse, server, prepared));
  toBackend.insert(parseMessage(server.name, definitionToReprepare(server.definition, server.shape)));
  closeEvicted(session, evicted, backend);
  describeStatement(session, server, backend);
}

/** In a failed transaction the server accepts only statements that end it. */
function isRefusedInFailedTransaction({ status, replies }: WireSession, { definition }: ServerStatement): boolean {
  return status === 'E' && replies.length === 0 && !TRANSACTION_END.test(definition.toString('latin1'));
}

function parseUnnamed(session: WireSession, scanner: FrameScanner, backend: BackendConnection, prepared: UnnamedStatement): void {
  const kept = { ...prepared, definition: Buffer.from(prepared.definition) };
  noteUnnamed(session, kept, backend);
  if (prepared.changed) session.toBackend.insert(parseMessage(NO_NAME, kept.definition));
  else session.toBackend.add(scanner.buffer, scanner.start, scanner.end);
}

/** The Parse that is sent replaces the unnamed statement of the client and of the backend. */
function noteUnnamed({ statements, names, replies }: WireSession, unnamed: UnnamedStatement, backend: BackendConnection): void {
  const change = new UnnamedChange(statements, unnamed, backend.session);
  names.changes('');
  change.note();
  replies.push(Request.parse, Disposition.forward, change);
}

/**
 * Forwards a Parse that is too large to keep. A named statement exists only on this backend, under the client's own name, so
 * the session is pinned. An unnamed one is valid up to the Sync.
 */
function parseOversized(
  session: WireSession,
  scanner: FrameScanner,
  backend: BackendConnection,
  text: string,
  name: string,
  inspected: Inspected,
): void {
  const { audited: watched } = inspected;
  const traits = { ...traitsOfBeginning(text), cannotBePreparedAgain: name !== '' };
  const end = Math.min(scanner.end, scanner.start + MAX_KEPT_DEFINITION_BYTES);
  sendLongText(session, text, { ...inspected, traits, due: NO_SIGNALS }, scanner, end);
  if (name !== '' && watched !== undefined) session.inspection.isOversized(name, watched);
  if (name !== '') session.replies.push(Request.parse);
  else noteUnnamed(session, { ...OVERSIZED, traits, watched }, backend);
  session.toBackend.add(scanner.buffer, scanner.start, scanner.end);
}

/** The organization has reached its memory limit for statements. The Parse is treated like one that is too large. */
function parseOverBudget(
  session: WireSession,
  scanner: FrameScanner,
  backend: BackendConnection,
  name: string,
  inspected: Inspected,
  prepared: UnnamedStatement,
): void {
  const { edits, traits, watched } = prepared;
  if (name !== '' && watched !== undefined) session.inspection.isOversized(name, watched);
  sendText(session, name === '' ? inspected : { ...inspected, traits: { ...traits, cannotBePreparedAgain: true } });
  if (name === '') noteUnnamed(session, { ...prepared, definition: NO_NAME, isOversized: true }, backend);
  else session.replies.push(Request.parse, Disposition.forward, { undo: () => {}, edits });
  sendParse(session, scanner, name, prepared);
}

function parseNamed(
  session: WireSession,
  scanner: FrameScanner,
  backend: BackendConnection,
  name: string,
  prepared: UnnamedStatement,
  server: ServerStatement,
): ParseOutcome {
  const { statements, names } = session;
  const { traits, signals, deallocates, edits, watched } = prepared;
  if (statements.get(name) !== undefined && !names.hasTaken(name)) {
    parseTakenName(session, scanner, backend, name, prepared);
    return 'sent';
  }
  if (!names.mayAllBeGone && mustDescribeFirst(session, server, backend, edits)) return 'asked';
  names.changes(name);
  names.gives(name);
  parseOnce(session, server, backend, new NamedParse(statements, name, { server, traits, signals, deallocates, watched }, edits));
  return 'sent';
}

/**
 * The client uses the name already. The error should come from PostgreSQL, which may find another error first. So an empty
 * statement takes the name on the server; it is closed before the next request.
 */
function parseTakenName(
  session: WireSession,
  scanner: FrameScanner,
  backend: BackendConnection,
  name: string,
  prepared: UnnamedStatement,
): void {
  preparePlaceholder(session, name, backend);
  session.replies.push(Request.parse, Disposition.forward, { undo: () => {}, edits: prepared.edits });
  sendParse(session, scanner, name, prepared);
}

/** Sends the Parse under the client's own name. */
function sendParse(
  { toBackend }: WireSession,
  { buffer, start, end }: FrameScanner,
  name: string,
  { changed, definition }: UnnamedStatement,
): void {
  if (changed) toBackend.insert(parseMessage(Buffer.from(name, 'latin1'), definition));
  else toBackend.add(buffer, start, end);
}

const NO_NAME = Buffer.alloc(0);
const OVERSIZED = { definition: NO_NAME, isOversized: true, changed: false, edits: [], signals: [], deallocates: [] };
const TRANSACTION_END = /^\s*(?:rollback|commit|end|abort|prepare\s+transaction)\b/i;

/* Which statement on the server a client's statement is: one that clients share, or one of its own. */

/** Longer texts are not looked up in the registry. */
export const MAX_LOOKED_UP_BYTES = 16_384;

/** The server statement of a text that clients send repeatedly without a name. */
function repeatedOf({ pins, services }: WireSession, prepared: UnnamedStatement): RepeatedStatement | undefined {
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
function serverStatementFor(session: WireSession, name: string, statement: NamedStatement, backend: BackendConnection): ServerStatement {
  const { server, first = server } = statement;
  const { pins, status } = session;
  const isAsPrepared = first.context === undefined || first.context === pins.context || backend.session.prepared.use(first) !== undefined;
  if (isAsPrepared) return standIn(session, name, statement, first);
  // A stand-in without a context belongs to this client alone. It was made within a transaction, and is used up to its end.
  const isStandIn = server !== first && (server.context === undefined ? status !== 'I' : server.context === pins.context);
  if (isStandIn) return server;
  return standIn(session, name, statement, serverStatementOf(session, first.definition, true, first.hasEscapes));
}

function standIn({ statements }: WireSession, name: string, statement: NamedStatement, server: ServerStatement): ServerStatement {
  const { first = statement.server } = statement;
  if (server !== statement.server) statements.set(name, { ...statement, server, first });
  return server;
}

/**
 * Finds the server statement for a client's name. A client decodes rows by the columns that it was told once. If the
 * statement has other columns by now, it is refused, as PostgreSQL refuses a cached plan whose result type has changed.
 * @returns the server statement, once the backend has it; `asked`, `changed`: as {@link ensurePrepared}
 * @see https://github.com/postgres/postgres/blob/master/src/backend/utils/cache/plancache.c RevalidateCachedQuery
 */
export function resolveStatement(
  session: WireSession,
  name: string,
  statement: NamedStatement,
  backend: BackendConnection,
): ServerStatement | 'asked' | 'changed' {
  const { isUsed = false, first = statement.server } = statement;
  const asked = session.question?.named;
  const server = asked?.name === name ? asked.server : serverStatementFor(session, name, statement, backend);
  if (session.question !== undefined) session.question.named = undefined;
  let readiness = ensurePrepared(session, server, backend, server !== first);
  if (readiness === 'ready' && server !== first && differs(server, first)) readiness = 'changed';
  if (readiness === 'ready') return server;
  if (readiness === 'asked' && session.question !== undefined) session.question.named = { name, server };
  if (readiness === 'asked' || isUsed) return readiness;
  // The client has not been told its columns, so the client cannot tell whether the statement is prepared now or was before.
  const renewed = renewStatement(session, name, statement);
  readiness = ensurePrepared(session, renewed, backend);
  return readiness === 'ready' ? renewed : readiness;
}

function differs({ shape }: ServerStatement, { shape: told }: ServerStatement): boolean {
  return shape !== undefined && told !== undefined && !isSameShape(shape, told);
}

/** @param definition shares the message's memory and begins with the text; a caller that keeps it makes a copy */
export function preparedOf(
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
