import { Buffer } from 'node:buffer';
import { performance } from 'node:perf_hooks';
import { Disposition, type ReplyListener, Request, type RequestKind } from '../src/backend/reply-queue.ts';
import { mentionsServerStatement, stalenessOf } from '../src/backend/session-state.ts';
import { ServiceError } from '../src/errors.ts';
import { SCHEMA_CHANGE } from '../src/multiplex/statement-registry.ts';
import type { Observation } from '../src/observation.ts';
import {
  BackendType,
  CLOSE_COMPLETE,
  decodeErrorFields,
  decodeParameterStatus,
  type ErrorFields,
  encodeBackendMessage,
  PARSE_COMPLETE,
  READY_IDLE,
  type TransactionStatus,
} from '../src/protocol/backend.ts';
import { backendFrames, FrameScanner, HEADER_BYTES } from '../src/protocol/framing.ts';
import { EMPTY_DEFINITION, parseMessage, SYNC } from '../src/protocol/frontend.ts';
import type { Tenant } from '../src/router/lease.ts';
import type { Deadline } from '../src/runtime/event-loop.ts';
import { unheededDefault } from '../src/sql/warnings.ts';
import type { Edits } from '../src/syntax/edits.ts';
import { type BackendLink, isOwn } from './checkout.ts';
import { DescribeReply, type Effect } from './client-statements.ts';
import { type Gate, Reason } from './gate.ts';
import type { RequestEnd } from './inspection.ts';
import type { StateProbe } from './pins.ts';
import { errorForClient, noticeForClient, notificationForClient, SHOWN_ROW_MAX_BYTES, type ShownRows } from './reply-rewriting.ts';
import { isMissing, NameParse, ShapeChanged, STALE_PLAN, type StatementsSession } from './server-statements.ts';
import type { RequestInFlight } from './sharing.ts';
import type { Statements } from './statements.ts';
import type { WriteBuffer } from './write-buffer.ts';

/** Of every request that succeeds, so that nothing is allocated for it. */
const ANSWERED = { name: 'wire.query' as const, durationMs: 0 };
const NO_NAME = Buffer.alloc(0);
const FAILED_TRANSACTION = '25P02';
/** Command tags of statements that cannot commit, unlike COMMIT, CALL and VACUUM. A request that fails after these has left nothing. */
const STAYS_OPEN = /^(?:SELECT|INSERT|UPDATE|DELETE|MERGE|COPY|FETCH|SHOW|SET|EXPLAIN)\b/;

function failedWith(sqlstate: string, durationMs: number, { organization }: Tenant): Observation {
  return { name: 'wire.query.failed', organizationId: organization.id, sqlstate, durationMs };
}

/** The bytes that terminate the fields of an incomplete error: it ends within a field, or right after one. */
function endOfFields(beginning: Buffer): Buffer {
  return Buffer.alloc(beginning.at(-1) === 0 ? 1 : 2);
}

/** The number at the end of a command tag, such as `SELECT 5`; 0 if it has none. @param end of the tag, without its zero byte */
function rowsOf(buffer: Buffer, end: number): number {
  let rows = 0;
  let unit = 1;
  for (let at = end - 1; ; at -= 1) {
    const digit = (buffer[at] ?? 0) - 0x30;
    if (digit < 0 || digit > 9) return rows;
    rows += digit * unit;
    unit *= 10;
  }
}

/** SELECT is the most frequent command tag, and has no effects. */
function isSelect(buffer: Buffer, start: number): boolean {
  return buffer[start] === 0x53 && buffer[start + 1] === 0x45 && buffer[start + 2] === 0x4c;
}

/** Messages that are frequent and are not inspected. */
function isData(type: number): boolean {
  return type === BackendType.DataRow || type === BackendType.CopyData;
}

function statusOf(byte: number | undefined): TransactionStatus {
  return byte === 0x54 ? 'T' : byte === 0x45 ? 'E' : 'I';
}

/* Errors of the server that the relay recognizes: it runs the request again, or prepares its statement again. */

/** Whether a server statement no longer exists: `DEALLOCATE ALL` in a function or a DO block may have removed it unnoticed. */
function isServerStatementMissing(fields: ErrorFields): boolean {
  return isMissing(fields) && mentionsServerStatement(fields.message);
}

/** Whether the error is that of a cancel request, and not of a timeout of the server. */
function isCanceled({ code, message }: ErrorFields): boolean {
  return code === '57014' && !message.includes('timeout');
}

/** This many take a few milliseconds: other events are then handled before the rest of a chunk. */
const MAX_REAPPLIED_EFFECTS = 20_000;

/** Of more statements in one pipeline nothing is told. */
const MAX_DEFAULTS_TOLD = 100;

/** Requests that define or close statement names. */
const NAMING: ReadonlySet<RequestKind> = new Set([Request.parse, Request.close]);

/** Requests that change the client's statements or portals. */
function hasEffect(request: RequestKind): boolean {
  return request === Request.parse || request === Request.bind || request === Request.close;
}

/** How many bytes of each message are needed at once: all of the replies to Postern's own requests, which are short, and of messages that are rewritten. */
const BACKEND = backendFrames({ Z: 1, E: 65_536, C: 64, S: 65_536, A: 65_536, N: 65_536, D: 4_096, t: 262_144, T: 262_144 });

/** What the commands since the last ReadyForQuery have done: none has completed, all can be rolled back, or one may have committed. */
type Completed = 'nothing' | 'uncommitted' | 'committed';

/**
 * Whether a request runs for the first time, or again because of an error that its client has not been told. `discarded`: the
 * rest of the reply up to ReadyForQuery is dropped, because the request will be run again, or the session is over.
 */
type Attempt = 'first' | 'discarded' | 'second';

/** What commands have changed, until all requests have been answered outside a transaction. */
interface CommandEffects {
  schemaChanged: boolean;
  /** The defaults for new sessions may have changed. */
  defaultsChanged: boolean;
  /** All named statements have been deallocated, and no reply since then has defined one. */
  allDeallocated: boolean;
  /** Effects that have been noted again since the last chunk began. */
  reapplied: number;
}

const NONE_PUT_OFF: ReadonlyMap<string, string> = new Map();

/**
 * The parameter values that a client has been told by ParameterStatus.
 * @see https://www.postgresql.org/docs/current/protocol-flow.html#PROTOCOL-ASYNC
 */
class ReportedParameters {
  /** Sessions with the same startup values share this map until one of them changes. */
  #told: ReadonlyMap<string, string>;
  /** Changed values that may change back before the client is told. */
  #putOff = NONE_PUT_OFF;

  /** @param told the values that the client knows */
  constructor(told: ReadonlyMap<string, string>) {
    this.#told = told;
  }

  /** The value that the client knows. */
  get(parameter: string): string | undefined {
    return this.#told.get(parameter);
  }

  isTold(parameter: string, value: string): boolean {
    return this.#told.get(parameter) === value;
  }

  /** The client knows this value from now on. An older value that was put off is dropped. */
  tell(parameter: string, value: string): void {
    this.#told = new Map([...this.#told, [parameter, value]]);
    if (this.#putOff.has(parameter)) this.#putOff = new Map([...this.#putOff].filter(([name]) => name !== parameter));
  }

  putOff(parameter: string, value: string): void {
    this.#putOff = new Map([...this.#putOff, [parameter, value]]);
  }

  /** @returns the values put off that really differ from what the client knows; they count as told */
  settle(): [parameter: string, value: string][] {
    const changed = [...this.#putOff].filter(([parameter, value]) => !this.isTold(parameter, value));
    for (const [parameter, value] of changed) this.tell(parameter, value);
    this.#putOff = NONE_PUT_OFF;
    return changed;
  }
}

/** What receiving replies needs of its session. */
interface RepliesSession extends StatementsSession {
  readonly statements: Statements;
  readonly toClient: WriteBuffer;
  readonly gate: Gate;
  readonly link: BackendLink;
  readonly inFlight: RequestInFlight;
  readonly ending: { readonly isOver: boolean; readonly hasFatal: boolean; readonly afterMessage: Deadline | undefined } | undefined;
  /** As of the last ReadyForQuery. */
  status: TransactionStatus;
  /** When that came, or when the oldest unanswered request was sent. */
  since: number;
  completions: number;
  /** The backend has sent its final error. */
  fatalErrorCame(): void;
  endByError(error: ServiceError): void;
}

/**
 * The replies of a session's backend. They are forwarded to the client unchanged, except those to Postern's own requests and the few
 * messages that contain the server's names.
 */
export class BackendReplies implements ReplyListener {
  readonly #session: RepliesSession;
  readonly #scanner = new FrameScanner(BACKEND);
  #attempt: Attempt = 'first';
  /** The request that is done has been answered by Postern. */
  #isSimulated = false;
  /** The rest of the current message is not forwarded. */
  #skipsRest = false;
  #completed: Completed = 'nothing';
  /** SQLSTATE of the first error that the client has been told of. */
  #failure: string | undefined;
  #effects: CommandEffects | undefined;
  /** The settings for which statements that have been sent give roles a default. */
  #defaultsOfRoles: readonly string[] = [];
  /** ParameterStatus values as the client knows them from its login. */
  readonly #startParameters: ReadonlyMap<string, string>;
  /** The parameters that the client has been told since; undefined while these are those of its login. */
  #reported: ReportedParameters | undefined;

  constructor(session: RepliesSession, parameters: ReadonlyMap<string, string>) {
    this.#session = session;
    this.#startParameters = parameters;
  }

  /** The value that the client has been told by ParameterStatus. */
  parameter(name: string): string | undefined {
    return (this.#reported ?? this.#startParameters).get(name);
  }

  /** Only the beginning of a message has come. */
  get isAmidMessage(): boolean {
    return !this.#scanner.last;
  }

  /** The rest of the reply, up to ReadyForQuery, is dropped. */
  get isDiscarded(): boolean {
    return this.#attempt === 'discarded';
  }

  /** Drops the rest of the reply: the session is over. */
  discard(): void {
    this.#attempt = 'discarded';
  }

  /** All that was asked has been answered. @returns whether the request has to run again */
  takeDiscarded(): boolean {
    const { isDiscarded } = this;
    this.#attempt = isDiscarded ? 'second' : 'first';
    return isDiscarded;
  }

  /** A statement is sent that may change the defaults for new sessions. @param settings of roles, for which it gives one */
  defaultsChange(settings: readonly string[]): void {
    this.#effectsMade().defaultsChanged = true;
    if (settings.length === 0 || this.#defaultsOfRoles.length > MAX_DEFAULTS_TOLD) return;
    this.#defaultsOfRoles = [...this.#defaultsOfRoles, ...settings];
  }

  /** An ALTER ROLE has completed. */
  #roleAltered(): void {
    const [setting, ...later] = this.#defaultsOfRoles;
    // A statement that is prepared and bound has been noted twice.
    const next = later.findIndex((other) => other !== setting);
    this.#defaultsOfRoles = next < 0 ? [] : later.slice(next);
    const notice = setting === undefined ? undefined : unheededDefault(setting);
    if (notice === undefined || this.#attempt === 'discarded') return;
    this.#session.toClient.insert(encodeBackendMessage({ name: 'NoticeResponse', fields: notice }));
  }

  /** The backend is given back. @returns whether the defaults for new sessions may have changed */
  takeDefaultsChanged(): boolean {
    const isChanged = this.#effects?.defaultsChanged === true;
    this.#effects = undefined;
    return isChanged;
  }

  /**
   * @param chunk from the backend, cut anywhere; its memory is in use while the gate is closed for a portion
   * @param isFollowed the replies behind those to this client's requests are another client's
   * @returns these other replies, if the chunk has any
   * @throws ServiceError `backend_lost` for bytes that violate the protocol
   */
  receive(chunk: Buffer, isFollowed: boolean): Buffer | undefined {
    const session = this.#session;
    const { replies, services, gate } = session;
    const scanner = this.#scanner;
    scanner.push(chunk);
    session.counting.repliesArrived();
    if (this.#effects !== undefined) this.#effects.reapplied = 0;
    if (gate.reasons !== 0) gate.open(Reason.replyPart);
    while (scanner.next()) {
      if (!scanner.first) {
        this.#passOn(scanner, !this.#skipsRest);
        if (this.#skipsRest && scanner.type === BackendType.DataRow) this.#showRow(this.#shownRowsOf(), scanner);
        if (scanner.last && session.ending?.afterMessage !== undefined) {
          session.ending.afterMessage.expire();
          break;
        }
      } else if (isData(scanner.type) && !replies.skipping && services.rewriter === undefined) {
        scanner.widen();
        this.#passOn(scanner, true);
      } else this.#receiveMessage(scanner);
      if (isFollowed && replies.length === 0) return scanner.takeRest();
      if (replies.missingSync === 'unclear') break;
      if (this.#effects === undefined || this.#effects.reapplied <= MAX_REAPPLIED_EFFECTS || replies.length === 0 || isFollowed) continue;
      gate.close(Reason.replyPart);
      break;
    }
    return undefined;
  }

  /** The session's settings are restored: sends the values that have really changed, and the ReadyForQuery that was held. */
  settingsRestored(): void {
    if (this.#reported === undefined && this.#session.gate.reasons === 0) return;
    const { gate, toClient } = this.#session;
    for (const [parameter, value] of this.#reported?.settle() ?? []) this.#insertParameter(parameter, value);
    if (gate.isClosed(Reason.settings)) toClient.insert(READY_IDLE);
    gate.open(Reason.settings);
  }

  #passOn(scanner: FrameScanner, isForwarded: boolean): void {
    const session = this.#session;
    if (scanner.first) this.#skipsRest = !isForwarded;
    if (!isForwarded || this.#attempt === 'discarded') return;
    session.services.usage.bytesOut += scanner.end - scanner.start;
    session.toClient.add(scanner.buffer, scanner.start, scanner.end);
  }

  #receiveMessage(scanner: FrameScanner): void {
    const session = this.#session;
    const { replies } = session;
    const { type, buffer, start, end } = scanner;
    const isForwarded = !replies.skipping || replies.forwards(type);
    switch (type) {
      case BackendType.NoticeResponse:
        this.#receiveNotice(scanner, isForwarded);
        return;
      case BackendType.NotificationResponse:
        this.#receiveNotification(scanner);
        return;
      case BackendType.ParameterStatus:
        this.#receiveParameter(scanner, !isForwarded);
        return;
      case BackendType.ReadyForQuery:
        this.#receiveReady(scanner, isForwarded);
        return;
      case BackendType.ErrorResponse:
        this.#receiveError(scanner, isForwarded);
        return;
      case BackendType.CommandComplete:
        if (isForwarded) this.#receiveCompletion(buffer, start + HEADER_BYTES, end - 1);
        break;
      case BackendType.DataRow:
        this.#receiveRow(scanner);
        return;
      case BackendType.PortalSuspended:
        session.completions += 1;
        if (isForwarded && this.#attempt !== 'discarded') session.counting.suspended();
        break;
      case BackendType.ParameterDescription:
      case BackendType.RowDescription:
      case BackendType.NoData: {
        const { subject } = replies;
        if (subject instanceof DescribeReply) subject.read(scanner);
        break;
      }
      default:
    }
    this.#passOn(scanner, isForwarded);
    replies.receive(type);
  }

  #receiveNotice(scanner: FrameScanner, isForwarded: boolean): void {
    const session = this.#session;
    const { rewriter } = session.services;
    if (!isForwarded || rewriter === undefined || !scanner.last) {
      this.#passOn(scanner, isForwarded);
      return;
    }
    session.toClient.insert(noticeForClient(scanner.buffer.subarray(scanner.start, scanner.end), rewriter));
  }

  #receiveNotification(scanner: FrameScanner): void {
    const { buffer, start, end, last } = scanner;
    const { services, toClient } = this.#session;
    if (!last) {
      this.#passOn(scanner, services.rewriter === undefined);
      return;
    }
    const notification = notificationForClient(buffer.subarray(start, end), services);
    if (notification !== undefined) toClient.insert(notification);
  }

  /**
   * A Query or FunctionCall behind an Execute, without a Sync between them, ends the implicit transaction of both, which is done
   * when the client reads ReadyForQuery. PostgreSQL 18 leaves the block open (the reply says `T`), and the next Sync loses it. So
   * Postern has the server enter the block again, which an empty Parse does, and end it with a Sync; the client gets the
   * ReadyForQuery of that one. A block of the client's own remains open.
   */
  #endJoined(scanner: FrameScanner): void {
    const { replies, toBackend, backend, statements } = this.#session;
    this.#passOn(scanner, false);
    replies.receive(scanner.type);
    if (backend !== undefined) backend.session.unnamed = undefined;
    replies.push(Request.parse, Disposition.skip);
    toBackend.insert(parseMessage(NO_NAME, EMPTY_DEFINITION));
    replies.push(Request.sync);
    toBackend.insert(SYNC);
    toBackend.flush();
    statements.waitForAll();
  }

  #receiveReady(scanner: FrameScanner, isForwarded: boolean): void {
    const session = this.#session;
    const { replies, pins, services, gate, inFlight } = session;
    const status = statusOf(scanner.buffer[scanner.start + HEADER_BYTES]);
    if (status === 'T' && isForwarded && session.statements.isAnsweringJoined) {
      this.#endJoined(scanner);
      return;
    }
    // A Query amid extended-protocol messages can leave a transaction open that PostgreSQL 18 reports as ended. The next
    // request then fails. A state probe takes that failure instead of a request of the client.
    if (session.status === 'T' && status === 'I' && this.#completed === 'nothing') pins.suspected = true;
    this.#completed = 'nothing';
    session.status = status;
    const askedAt = session.since;
    session.since = performance.now();
    // After a RESET the startup settings are restored before the client is told that the session is ready.
    if (isForwarded && pins.settingsState === 'reset' && status === 'I' && replies.length === 1) gate.close(Reason.settings);
    else this.#passOn(scanner, isForwarded);
    const isOfLastText = session.statements.mayRunSent;
    replies.receive(scanner.type);
    if (status !== 'E') replies.failedQuery = 'none';
    if (isForwarded && session.ending?.isOver !== true) inFlight.answered(askedAt, this.#attempt === 'discarded');
    if (isForwarded) session.counting.answered(askedAt, this.#attempt !== 'discarded');
    if (isForwarded && this.#attempt !== 'discarded') {
      const durationMs = session.since - askedAt;
      services.usage.answered(durationMs, this.#failure !== undefined, status === 'I');
      ANSWERED.durationMs = durationMs;
      services.observe(this.#failure === undefined ? ANSWERED : failedWith(this.#failure, durationMs, services.tenant));
      if (durationMs >= services.tellsAfterMs) services.answered(durationMs, this.#failure, isOfLastText);
      this.#failure = undefined;
    }
    if (this.#effects !== undefined) this.#applyEffects(this.#effects);
  }

  #receiveError(scanner: FrameScanner, isForwarded: boolean): void {
    const session = this.#session;
    const { replies, toClient, services, statements } = session;
    const { buffer, start, end, type } = scanner;
    const seen = buffer.subarray(start + HEADER_BYTES, end);
    const said = decodeErrorFields(scanner.last ? seen : Buffer.concat([seen, endOfFields(seen)]));
    const refused = replies.subject instanceof ShapeChanged && isMissing(said) ? replies.subject : undefined;
    const refusal = refused === undefined ? statements.refusalOf(said) : STALE_PLAN;
    const isRefused = refusal !== undefined;
    const fields = refusal ?? said;
    if (replies.subject instanceof NameParse) replies.subject.failed(said);
    if (fields.severity !== 'ERROR') session.fatalErrorCame();
    const hasFatal = session.ending?.hasFatal === true;
    if (isForwarded && !hasFatal && this.#completed !== 'committed' && !isRefused && this.#canRunAgain(fields)) {
      this.#attempt = 'discarded';
      toClient.clear();
    }
    if (isServerStatementMissing(fields)) session.backend?.session.unprepareAll();
    this.#noteFailure(fields);
    const isHidden = this.#attempt === 'discarded';
    if (isForwarded && !isHidden) {
      this.#failure ??= fields.code;
      session.counting.failed();
    }
    const isTold = (isForwarded || hasFatal) && !isHidden;
    const isReworded = isTold && !isRefused && scanner.last && (services.rewriter !== undefined || mentionsServerStatement(fields.message));
    const edits = this.#editsInError();
    const parameters = isTold ? this.#parametersBefore(said, isRefused) : undefined;
    if (parameters !== undefined) toClient.insert(encodeBackendMessage({ name: 'ParameterDescription', body: parameters }));
    if (!isReworded) this.#passOn(scanner, isTold && !isRefused);
    replies.receive(type);
    if (isRefused && isTold) {
      const told = services.rewriter === undefined ? fields : services.rewriter.error(fields, edits);
      toClient.insert(encodeBackendMessage({ name: 'ErrorResponse', fields: told }));
    }
    // This comes last, because the error may have undone that the client closed its name for the statement.
    if (isReworded)
      toClient.insert(errorForClient(buffer.subarray(start, end), fields, { rewriter: services.rewriter, statements, edits }));
  }

  /**
   * Whether the request can run again instead of reporting the error. The client must not see that a statement which Postern
   * prepared has become invalid, nor that a cancel request for another client has hit its request.
   */
  #canRunAgain(error: ErrorFields): boolean {
    const { inFlight, statements, toClient, link, replies } = this.#session;
    const { usesRepeated } = statements;
    if (!inFlight.isUnanswered) return false;
    // Only once, because a client's function can raise the same error.
    if (isServerStatementMissing(error)) return this.#attempt !== 'second' && (usesRepeated || toClient.bytes === 0);
    if (link.mayMeetForeignCancel && isCanceled(error)) return true;
    if (this.#session.status === 'I' && link.mayLeave(error)) {
      link.isUnsuited = true;
      return true;
    }
    return usesRepeated && this.#attempt !== 'second' && stalenessOf(error, replies.kind !== Request.bind) !== undefined;
  }

  /** What the client is told of a statement before an error to its Describe. In a failed transaction that error comes first. */
  #parametersBefore({ code }: ErrorFields, isRefused: boolean): Buffer | undefined {
    const { replies } = this.#session;
    const { subject } = replies;
    if (code === FAILED_TRANSACTION || (subject instanceof ShapeChanged && !isRefused)) return undefined;
    return isOwn(subject) ? undefined : (subject as Effect | undefined)?.parameters;
  }

  /** The replacements made in the statement that an error is about. */
  #editsInError(): Edits {
    const { replies } = this.#session;
    const { subject } = replies;
    return isOwn(subject) ? [] : ((subject as Effect | RequestEnd | undefined)?.edits ?? []);
  }

  #noteFailure(fields: ErrorFields): void {
    const session = this.#session;
    const subject = session.replies.batchSubject;
    if (isOwn(subject)) {
      // The name may have been reserved by a library since.
      if (subject.own === 'options' || subject.own === 'statement') return;
      if (subject.own === 'settings' && session.link.settingsRefused(subject, fields)) return;
      session.pins.probeFailed();
      // A fatal error is sent to the client as it is.
      if (subject.own === 'settings' && session.ending?.hasFatal !== true)
        session.endByError(new ServiceError('internal', "the session's settings could not be restored", { detail: fields.message }));
      return;
    }
    if (fields !== STALE_PLAN) this.#forgetIfStale(fields);
    if (this.#attempt === 'discarded') return;
    const batch = (subject as RequestEnd | undefined)?.batch;
    if (batch !== undefined) batch.sqlstate = fields.code;
  }

  /** Whoever prepares the text from now on gets another server statement. Those who have this one get the error that PostgreSQL gives them. */
  #forgetIfStale(fields: ErrorFields): void {
    const { services, statements, pins, replies } = this.#session;
    const { registry } = services;
    const { kind } = replies;
    const staleness = stalenessOf(fields, kind !== Request.bind);
    if (staleness === 'invalidate') registry.invalidate();
    if (staleness === 'invalidate' || staleness === undefined || (kind !== Request.bind && kind !== Request.execute)) return;
    const { sent: bound } = statements;
    if (pins.context === undefined || !Buffer.isBuffer(bound)) return;
    const server = registry.find(bound, pins.context);
    if (server !== undefined) registry.forget(server);
  }

  #receiveCompletion(buffer: Buffer, start: number, end: number): void {
    const session = this.#session;
    session.completions += 1;
    if (this.#completed === 'nothing') this.#completed = 'uncommitted';
    if (this.#attempt !== 'discarded') {
      const rows = rowsOf(buffer, end);
      session.services.usage.rows += rows;
      session.counting.completed(rows);
    }
    // Only for the audit log does it matter what has returned rows.
    if (!session.inspection.isAuditing && isSelect(buffer, start)) return;
    const subject = session.replies.batchSubject;
    const tag = buffer.toString('latin1', start, end);
    if (!STAYS_OPEN.test(tag)) this.#completed = 'committed';
    this.#commandCompleted(tag, isOwn(subject) ? undefined : (subject as RequestEnd | undefined));
  }

  /** The client is not told of a value that Postern's own requests change and change back, but of one that remains different. */
  #receiveParameter(scanner: FrameScanner, isOwnRequest: boolean): void {
    const session = this.#session;
    const { pins, services } = session;
    this.#reported ??= new ReportedParameters(this.#startParameters);

    const { parameter, value: serverValue } = decodeParameterStatus(scanner.buffer.subarray(scanner.start + HEADER_BYTES, scanner.end));
    if (!isOwnRequest) pins.parameterChanged(parameter, serverValue);
    const value = services.rewriter?.clientSetting(parameter, serverValue) ?? serverValue;
    if (pins.settingsState === 'reset' && session.status === 'I') this.#reported.putOff(parameter, value);
    else if (!isOwnRequest || !this.#reported.isTold(parameter, value)) {
      this.#reported.tell(parameter, value);
      if (value === serverValue) this.#passOn(scanner, true);
      else this.#insertParameter(parameter, value);
    } else this.#passOn(scanner, false);
  }

  #insertParameter(parameter: string, value: string): void {
    const { toClient } = this.#session;
    toClient.insert(encodeBackendMessage({ name: 'ParameterStatus', parameter, value }));
  }

  #receiveRow(scanner: FrameScanner): void {
    const session = this.#session;
    const { replies, pins } = session;
    const { buffer, start, end, last } = scanner;
    const asked = replies.skipping ? session.statements.awaitedStrings : undefined;
    if (asked !== undefined) {
      asked.row(buffer.subarray(start + HEADER_BYTES, end));
      this.#passOn(scanner, false);
      return;
    }
    const subject = replies.skipping ? replies.batchSubject : replies.subject;
    if (isOwn(subject)) {
      if (subject.own === 'probe' && last) subject.probe.row(buffer.subarray(start + HEADER_BYTES, end));
      else if (subject.own === 'probe') pins.probeFailed();
      this.#passOn(scanner, false);
      return;
    }
    const shown = this.#shownRowsOf();
    const isShown = shown !== undefined && scanner.length <= SHOWN_ROW_MAX_BYTES;
    this.#passOn(scanner, !isShown);
    if (isShown) this.#showRow(shown, scanner);
  }

  #shownRowsOf(): ShownRows | undefined {
    const { replies } = this.#session;
    const subject = replies.skipping ? undefined : (replies.subject as Partial<RequestEnd> | undefined);
    return subject?.shown;
  }

  /** Takes the row, or a further part of it, which is not forwarded. */
  #showRow(shown: ShownRows | undefined, part: FrameScanner): void {
    const { toClient } = this.#session;
    const row = shown?.add(part);
    if (row !== undefined && this.#attempt !== 'discarded') toClient.insert(row);
  }

  /** @param request the request of the command, if anything was noted for it */
  #commandCompleted(tag: string, request: RequestEnd | undefined): void {
    const session = this.#session;
    const batch = request?.batch;
    batch?.completed(tag);
    const deallocated = tag === 'DEALLOCATE' ? request?.deallocations.shift() : undefined;
    if (deallocated !== undefined) this.#nameDeallocated(deallocated);
    // CREATE TABLE AS reports the command tag SELECT.
    if (SCHEMA_CHANGE.test(tag) || batch?.isWatched === true) this.#effectsMade().schemaChanged = true;
    if (tag === 'DEALLOCATE ALL' || tag === 'DISCARD ALL') this.#allDeallocated();
    if (tag === 'DISCARD ALL') session.pins.discarded();
    if (tag === 'ALTER ROLE') this.#roleAltered();
  }

  /** After a transaction that has changed tables, statements are prepared again. */
  #applyEffects(effects: CommandEffects): void {
    const session = this.#session;
    if (effects.schemaChanged) session.services.registry.invalidate();
    effects.schemaChanged &&= session.status !== 'I';
    if (session.replies.length > 0) return;
    effects.allDeallocated = false;
    this.#defaultsOfRoles = [];
    if (!effects.schemaChanged && !effects.defaultsChanged) this.#effects = undefined;
  }

  /** A client may send many of these in a pipeline, so a repeated one must cost nothing. */
  #allDeallocated(): void {
    const session = this.#session;
    const effects = this.#effectsMade();
    if (effects.allDeallocated) return;
    session.statements.allDeallocated();
    this.#reapplyEffects();
    effects.allDeallocated = session.replies.length > 0;
  }

  /** From now on SQL may define the name again. Postern must not close such a statement, so the name is not stale any more. */
  #nameDeallocated(name: string): void {
    const session = this.#session;
    session.statements.deallocated(name);
    this.#reapplyEffects();
    session.backend?.session.staleNames.delete(name);
  }

  /** Later requests were noted when they were sent, and remain valid: their effects are noted again. */
  #reapplyEffects(): void {
    const session = this.#session;
    this.#effectsMade().reapplied += session.replies.length;
    for (const subject of session.replies.subjectsOf(NAMING)) (subject as Effect | undefined)?.redo?.();
  }

  #effectsMade(): CommandEffects {
    this.#effects ??= { schemaChanged: false, defaultsChanged: false, allDeallocated: false, reapplied: 0 };
    return this.#effects;
  }

  /* What the reply queue finds. */

  simulate(request: RequestKind): void {
    this.#isSimulated = true;
    if (!this.isDiscarded) this.#session.toClient.insert(request === Request.parse ? PARSE_COMPLETE : CLOSE_COMPLETE);
  }

  done(request: RequestKind, subject: unknown): void {
    const isOurs = subject !== undefined && isOwn(subject);
    if (request === Request.parse && !this.#isSimulated) this.#session.services.usage.totals.counted.serverParses += 1;
    this.#isSimulated = false;
    if (request === Request.query && !isOurs) this.#session.statements.queryDone();
    if (subject === undefined) return;
    if (hasEffect(request)) {
      if (this.#effects !== undefined) this.#effects.allDeallocated = false;
      const effect = subject as Effect;
      effect.done?.();
      if (effect.statement !== undefined) effect.statement.proven = true;
    } else if (!isOurs) {
      const { batch } = subject as RequestEnd;
      if (batch !== undefined) this.#session.inspection.answered(batch);
    } else if (subject.own === 'probe') this.#probed(subject.probe);
    else if (subject.own === 'settings') this.#session.link.settingsAnswered(subject);
    else if (subject.own === 'shape') subject.done();
  }

  #probed(probe: StateProbe): void {
    const { pins, backend, statements } = this.#session;
    const facts = probe.facts();
    pins.probed(facts);
    backend?.session.settingsFound(facts.settings);
    statements.found(facts.statements);
  }

  dropped(request: RequestKind, subject: unknown, failed: boolean): void {
    if (subject instanceof DescribeReply) subject.dropped();
    else if (subject !== undefined && hasEffect(request)) {
      if (this.#effects !== undefined) this.#effects.allDeallocated = false;
      (subject as Effect).undo(failed);
    } else if (request === Request.query) this.#session.statements.queryDropped();
  }
}
