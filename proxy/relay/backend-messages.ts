import { Buffer } from 'node:buffer';
import { performance } from 'node:perf_hooks';
import type { BackendConnection } from '../../src/backend/connection.ts';
import { Request, type RequestKind } from '../../src/backend/pending-replies.ts';
import { mentionsServerStatement } from '../../src/backend/prepared-statements.ts';
import { type ReplyListener, ReplyQueue } from '../../src/backend/reply-queue.ts';
import { ServiceError } from '../../src/errors.ts';
import {
  BackendType,
  decodeErrorFields,
  decodeParameterStatus,
  type ErrorFields,
  encodeBackendMessage,
  type TransactionStatus,
} from '../../src/protocol/backend.ts';
import { backendFrames, FrameScanner, HEADER_BYTES } from '../../src/protocol/frame.ts';
import type { Edit } from '../../src/router/schema-rewriting/edits/edits.ts';
import { ReportedParameters } from '../checkout/reported-parameters.ts';
import { isMissing, isStalePlan, isTakenAway, STALE_PLAN } from '../errors.ts';
import type { DdlAudit } from '../inspection/ddl-audit.ts';
import { CommandEffects } from '../pinning/command-effects.ts';
import type { Pins } from '../pinning/pins.ts';
import type { RequestEnd } from '../pinning/query-inspection.ts';
import type { StateProbe } from '../pinning/state-probe.ts';
import type { ClientStatements } from '../prepared/client-statements.ts';
import type { Effect } from '../prepared/effects.ts';
import { SHAPE_CHANGED } from '../prepared/server-statements.ts';
import { ShapeReader } from '../prepared/shape-reader.ts';
import type { SessionServices } from '../sessions/session-services.ts';
import { CLOSE_COMPLETE, PARSE_COMPLETE, READY_IDLE } from './messages.ts';
import { errorForClient, noticeForClient, notificationForClient, searchPathRowForClient } from './reply-rewriting.ts';
import type { WriteBuffer } from './write-buffer.ts';

/** A request of ours among the client's. */
export type OwnRequest = { readonly own: 'settings' } | { readonly own: 'probe'; readonly probe: StateProbe } | ShapeReader;

/** What reading from the backend needs of the session. */
interface RepliedSession {
  readonly services: SessionServices;
  readonly pins: Pins;
  readonly toClient: WriteBuffer;
  /** To the backend at hand. */
  readonly link: { readonly backend: BackendConnection | undefined };
  canRunAgain(error: ErrorFields): boolean;
  end(error: ServiceError): void;
}

/** Rows so that the answers to our own questions, which are short, are seen whole; of what a statement is, all that there can be. */
const BACKEND = backendFrames({ Z: 1, E: 65_536, C: 64, S: 65_536, A: 65_536, N: 65_536, D: 4_096, t: 262_144, T: 262_144 });
/** Tags of statements that commit nothing by themselves, as COMMIT, CALL and VACUUM do: a request that fails behind them left nothing. */
const STAYS_OPEN = /^(?:SELECT|INSERT|UPDATE|DELETE|MERGE|COPY|FETCH|SHOW|SET|EXPLAIN)\b/;

/**
 * What a session's backends answer, on its way to the client: passed on as it comes, but for the answers to requests of
 * ours, and for the few messages that speak of things by the server's names for them.
 */
export class BackendMessages implements ReplyListener {
  readonly queue = new ReplyQueue(this);
  status: TransactionStatus = 'I';
  /** When the oldest unanswered request was sent, or when the session last became idle; on performance.now()'s clock. */
  since = performance.now();
  bytesOut = 0;
  /** The backend has said its last words, and the client has them. */
  fatalSeen = false;
  /** A ReadyForQuery waits until the session's own settings are back. */
  heldReady = false;
  /** The client hears nothing of what is being answered, up to ReadyForQuery: its request will be run again. */
  hiding = false;
  readonly #session: RepliedSession;
  readonly #statements: ClientStatements;
  readonly #watch: DdlAudit;
  readonly #effects: CommandEffects;
  readonly #scanner = new FrameScanner(BACKEND);
  /** The message that is passing is not the client's. */
  #skippingRest = false;
  /** Something has been completed since the last ReadyForQuery. */
  #hasCompleted = false;
  /** Part of what is being answered may have been committed by itself. */
  #mayHaveCommitted = false;
  /** SQLSTATE of the first error that the client has been told of within the request that is being answered. */
  #failure: string | undefined;
  readonly #reported: ReportedParameters;
  #isInterrupted = false;

  /** @param parameters ParameterStatus values as the client knows them */
  constructor(session: RepliedSession, statements: ClientStatements, watch: DdlAudit, parameters: ReadonlyMap<string, string>) {
    this.#session = session;
    this.#statements = statements;
    this.#watch = watch;
    this.#effects = new CommandEffects(session, this.queue, statements);
    this.#reported = new ReportedParameters(parameters);
  }

  /** The client has been sent whole messages only. */
  get betweenMessages(): boolean {
    return this.#scanner.last;
  }

  /** {@link take} has left messages for later, as they are much work. */
  get isInterrupted(): boolean {
    return this.#isInterrupted;
  }

  /**
   * @param chunk from the backend, cut anywhere; its memory is needed for as long as {@link isInterrupted}
   * @param isFollowed what comes behind the answers to this client's requests is another's
   * @returns that, if there is any
   * @throws ServiceError `backend_lost` for what is no protocol
   */
  take(chunk: Buffer, isFollowed: boolean): Buffer | undefined {
    const scanner = this.#scanner;
    scanner.push(chunk);
    this.#effects.beginPortion();
    this.#isInterrupted = false;
    while (scanner.next()) {
      if (!scanner.first) this.#passOn(scanner, !this.#skippingRest);
      else if (isData(scanner.type) && !this.queue.skipping && this.#session.services.view === undefined) {
        scanner.widen();
        this.#passOn(scanner, true);
      } else this.#reply(scanner);
      if (isFollowed && this.queue.length === 0) return scanner.takeRest();
      if (this.queue.isUnclear) break;
      this.#isInterrupted = this.#effects.isPortionDone && this.queue.length > 0 && !isFollowed;
      if (this.#isInterrupted) break;
    }
    return undefined;
  }

  /** The session's own settings are in force again: tells what has really changed, and that it is ready. */
  restored(): void {
    for (const [parameter, value] of this.#reported.settle()) this.#insertParameter(parameter, value);
    if (this.heldReady) this.#session.toClient.insert(READY_IDLE);
    this.heldReady = false;
  }

  #passOn(scanner: FrameScanner, forward: boolean): void {
    if (scanner.first) this.#skippingRest = !forward;
    if (!forward || this.hiding) return;
    this.bytesOut += scanner.end - scanner.start;
    this.#session.toClient.add(scanner.buffer, scanner.start, scanner.end);
  }

  #reply(scanner: FrameScanner): void {
    const { type, buffer, start, end } = scanner;
    const skipping = this.queue.skipping;
    switch (type) {
      case BackendType.NoticeResponse:
        this.#notice(scanner, skipping);
        return;
      case BackendType.NotificationResponse:
        this.#notification(scanner);
        return;
      case BackendType.ParameterStatus:
        this.#parameterChanged(scanner, skipping);
        return;
      case BackendType.ReadyForQuery:
        this.#ready(scanner);
        return;
      case BackendType.ErrorResponse:
        this.#error(scanner);
        return;
      case BackendType.CommandComplete:
        if (!skipping) this.#completed(buffer, start + HEADER_BYTES, end - 1);
        break;
      case BackendType.DataRow:
        this.#row(scanner);
        return;
      case BackendType.ParameterDescription:
      case BackendType.RowDescription:
      case BackendType.NoData:
        this.#described(scanner);
        break;
      default:
    }
    this.#passOn(scanner, this.queue.forwards(type));
    this.queue.receive(type);
  }

  #described(scanner: FrameScanner): void {
    const { subject } = this.queue;
    if (subject instanceof ShapeReader) subject.read(scanner);
  }

  #notice(scanner: FrameScanner, skipping: boolean): void {
    const { view } = this.#session.services;
    if (skipping || view === undefined || !scanner.last) {
      this.#passOn(scanner, !skipping);
      return;
    }
    this.#session.toClient.insert(noticeForClient(scanner.buffer.subarray(scanner.start, scanner.end), view));
  }

  #notification(scanner: FrameScanner): void {
    const { buffer, start, end, last } = scanner;
    const { services, toClient } = this.#session;
    if (!last) {
      this.#passOn(scanner, services.view === undefined);
      return;
    }
    const notification = notificationForClient(buffer.subarray(start, end), services);
    if (notification !== undefined) toClient.insert(notification);
  }

  #ready(scanner: FrameScanner): void {
    const status = statusOf(scanner.buffer[scanner.start + HEADER_BYTES]);
    // PostgreSQL 18 takes such a transaction, which a Query amid extended messages has left open, for ended, and the next
    // request fails: that is to be one of ours.
    if (this.status === 'T' && status === 'I' && !this.#hasCompleted) this.#session.pins.suspected = true;
    this.#hasCompleted = false;
    this.#mayHaveCommitted = false;
    this.status = status;
    this.since = performance.now();
    const forward = this.queue.forwards(scanner.type);
    // After a RESET the session's own start is restored first, as if the server had gone back to it.
    if (forward && this.#session.pins.restores && this.status === 'I' && this.queue.length === 1) this.heldReady = true;
    else this.#passOn(scanner, forward);
    this.queue.receive(scanner.type);
    if (this.status !== 'E') this.queue.danglingPortal = false;
    if (forward && !this.hiding) {
      this.#session.services.answered(this.#failure);
      this.#failure = undefined;
    }
    this.#effects.ready(this.status);
  }

  #error(scanner: FrameScanner): void {
    const { buffer, start, end, type } = scanner;
    const seen = buffer.subarray(start + HEADER_BYTES, end);
    const said = decodeErrorFields(scanner.last ? seen : Buffer.concat([seen, endOfFields(seen)]));
    const isRefused = this.queue.subject === SHAPE_CHANGED && isMissing(said);
    const fields = isRefused ? STALE_PLAN : said;
    this.fatalSeen ||= fields.severity !== 'ERROR';
    const forward = this.queue.forwards(type);
    if (forward && !this.fatalSeen && !this.#mayHaveCommitted && !isRefused && this.#session.canRunAgain(fields)) {
      this.hiding = true;
      this.#session.toClient.clear();
    }
    if (isTakenAway(fields)) this.#session.link.backend?.session.unprepareAll();
    this.#failed(fields);
    if (forward && !this.hiding) this.#failure ??= fields.code;
    const told = (forward || this.fatalSeen) && !this.hiding;
    const reworded =
      told && !isRefused && scanner.last && (this.#session.services.view !== undefined || mentionsServerStatement(fields.message));
    const edits = this.#editsInError();
    if (!reworded) this.#passOn(scanner, told && !isRefused);
    this.queue.receive(type);
    if (isRefused && told) this.#session.toClient.insert(encodeBackendMessage({ name: 'ErrorResponse', fields }));
    // Only now: what the error has undone may be that the client gave up its name for the statement.
    if (!reworded) return;
    const { view } = this.#session.services;
    this.#session.toClient.insert(errorForClient(buffer.subarray(start, end), fields, { view, statements: this.#statements, edits }));
  }

  /** What was replaced in the statement that an error is about. */
  #editsInError(): readonly Edit[] {
    const subject = this.queue.subject;
    return isOwn(subject) ? [] : ((subject as Effect | RequestEnd | undefined)?.edits ?? []);
  }

  #failed(fields: ErrorFields): void {
    const subject = this.queue.batchSubject;
    if (isOwn(subject)) {
      this.#session.pins.probeFailed();
      // What ends the backend speaks for itself.
      if (subject.own === 'settings' && !this.fatalSeen)
        this.#session.end(new ServiceError('internal', "the session's settings could not be restored", { detail: fields.message }));
      return;
    }
    if (isStalePlan(fields) && fields !== STALE_PLAN) this.#session.services.registry.invalidate();
    if (this.hiding) return;
    const batch = (subject as RequestEnd | undefined)?.batch;
    if (batch !== undefined) batch.sqlstate = fields.code;
  }

  #completed(buffer: Buffer, start: number, end: number): void {
    this.#hasCompleted = true;
    const subject = this.queue.batchSubject;
    if (subject === undefined && isSelect(buffer, start)) return;
    const tag = buffer.toString('latin1', start, end);
    this.#mayHaveCommitted ||= !STAYS_OPEN.test(tag);
    this.#effects.completed(tag, isOwn(subject) ? undefined : (subject as RequestEnd | undefined));
  }

  /** What our own requests change and change back the client need not know; what stays different it must. */
  #parameterChanged(scanner: FrameScanner, own: boolean): void {
    const { parameter, value: serverValue } = decodeParameterStatus(scanner.buffer.subarray(scanner.start + HEADER_BYTES, scanner.end));
    if (!own) this.#session.pins.parameterChanged(parameter, serverValue);
    const value = this.#session.services.view?.clientSetting(parameter, serverValue) ?? serverValue;
    if (this.#session.pins.restores && this.status === 'I') this.#reported.putOff(parameter, value);
    else if (!own || !this.#reported.isTold(parameter, value)) {
      this.#reported.tell(parameter, value);
      if (value === serverValue) this.#passOn(scanner, true);
      else this.#insertParameter(parameter, value);
    } else this.#passOn(scanner, false);
  }

  #insertParameter(parameter: string, value: string): void {
    this.#session.toClient.insert(encodeBackendMessage({ name: 'ParameterStatus', parameter, value }));
  }

  #row(scanner: FrameScanner): void {
    const { buffer, start, end, last } = scanner;
    const subject = this.queue.skipping ? this.queue.batchSubject : this.queue.subject;
    if (isOwn(subject)) {
      if (subject.own === 'probe' && last) subject.probe.row(buffer.subarray(start + HEADER_BYTES, end));
      else if (subject.own === 'probe') this.#session.pins.probeFailed();
      this.#passOn(scanner, false);
    } else if (last && (subject as RequestEnd | undefined)?.showsSearchPath === true) {
      this.#session.toClient.insert(searchPathRowForClient(buffer.subarray(start, end), this.#session.services.view));
    } else this.#passOn(scanner, true);
  }

  simulate(request: RequestKind): void {
    if (this.hiding) return;
    this.#session.toClient.insert(request === Request.parse ? PARSE_COMPLETE : CLOSE_COMPLETE);
  }

  done(request: RequestKind, subject: unknown): void {
    if (request === Request.query && !isOwn(subject)) this.#statements.unnamedSettled(undefined);
    if (subject === undefined) return;
    if (hasEffect(request)) {
      this.#effects.noted();
      const effect = subject as Effect;
      effect.done?.();
      if (effect.statement !== undefined) effect.statement.proven = true;
      return;
    }
    if (isOwn(subject)) {
      if (subject.own === 'probe') this.#probed(subject.probe);
      else if (subject.own === 'shape') subject.done();
      return;
    }
    const { batch } = subject as RequestEnd;
    if (batch !== undefined) this.#watch.done(batch);
  }

  dropped(request: RequestKind, subject: unknown, failed: boolean): void {
    if (subject instanceof ShapeReader) subject.dropped();
    else if (subject !== undefined && hasEffect(request)) {
      this.#effects.noted();
      (subject as Effect).undo(failed);
    } else if (request === Request.query) this.#statements.unnamedUndone(undefined, false);
  }

  #probed(probe: StateProbe): void {
    this.#session.pins.probed(probe.facts());
    const session = this.#session.link.backend?.session;
    if (session !== undefined) session.settings = this.#session.pins.inForce;
  }
}

/** Ends the fields of an error of which only the beginning is at hand: within a field, or right behind one. */
function endOfFields(beginning: Buffer): Buffer {
  return Buffer.alloc(beginning.at(-1) === 0 ? 1 : 2);
}

/** The most usual tag, of which nothing follows. */
function isSelect(buffer: Buffer, start: number): boolean {
  return buffer[start] === 0x53 && buffer[start + 1] === 0x45 && buffer[start + 2] === 0x4c;
}

/** Messages that come in numbers and say nothing to us. */
function isData(type: number): boolean {
  return type === BackendType.DataRow || type === BackendType.CopyData;
}

function statusOf(byte: number | undefined): TransactionStatus {
  return byte === 0x54 ? 'T' : byte === 0x45 ? 'E' : 'I';
}

function hasEffect(request: RequestKind): boolean {
  return request === Request.parse || request === Request.bind || request === Request.close;
}

function isOwn(subject: unknown): subject is OwnRequest {
  return typeof subject === 'object' && subject !== null && 'own' in subject;
}
