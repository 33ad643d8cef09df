import { Request, type RequestKind } from '../src/backend/owed-replies.ts';
import { mentionsServerStatement, SERVER_STATEMENT } from '../src/backend/prepared-statements.ts';
import { type ReplyListener, ReplyQueue } from '../src/backend/reply-queue.ts';
import { ServiceError } from '../src/errors.ts';
import {
  BackendType,
  decodeErrorFields,
  decodeNotification,
  decodeParameterStatus,
  type ErrorFields,
  encodeBackendMessage,
  type TransactionStatus,
} from '../src/protocol/backend.ts';
import { backendFrames, FrameScanner, HEADER_BYTES } from '../src/protocol/frame.ts';
import type { Edit } from '../src/router/search-path/edits.ts';
import type { ClientStatements } from './client-statements.ts';
import { CLOSE_COMPLETE, PARSE_COMPLETE, READY_IDLE, rewriteBody } from './messages.ts';
import type { Effect } from './parse-effects.ts';
import type { RequestEnd } from './query-texts.ts';
import type { Relay } from './relay.ts';
import type { StateProbe } from './state-probe.ts';
import type { StatementWatch } from './statement-watch.ts';

/** A request of ours among the client's. */
export type OwnRequest = { readonly own: 'settings' } | { readonly own: 'probe'; readonly probe: StateProbe };

type Session = Pick<Relay, 'host' | 'pins' | 'toClient' | 'tenure' | 'canRunAgain' | 'end'>;

/** Rows so that the answers to our own questions, which are short, are seen whole. */
const BACKEND = backendFrames({ Z: 1, E: 65_536, C: 64, S: 65_536, A: 65_536, N: 65_536, D: 4_096 });
/** Header, number of columns, length of the first. */
const SHOW_VALUE_OFFSET = HEADER_BYTES + 2 + 4;
/** Ends the fields of an error of which only the beginning is at hand. */
const END_OF_FIELDS = Buffer.alloc(2);

/**
 * What a session's backends answer, on its way to the client: passed on as it comes, but for the answers to requests of
 * ours, and for the few messages that speak of things by the server's names for them.
 */
export class Replies implements ReplyListener {
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
  readonly #session: Session;
  readonly #statements: ClientStatements;
  readonly #watch: StatementWatch;
  readonly #scanner = new FrameScanner(BACKEND);
  /** The message that is passing is not the client's. */
  #skippingRest = false;
  #schemaChanged = false;
  /** Something has been completed since the last ReadyForQuery. */
  #hasCompleted = false;
  /** The client's request that is being answered has met an error. */
  #requestFailed = false;
  /** What the client has been told; the same for all that started alike until something changes. */
  #reported: ReadonlyMap<string, string>;
  /** Parameters that have changed and may change back before the client is told. */
  #changedParameters: ReadonlyMap<string, string> = NOTHING;

  /** @param parameters ParameterStatus values as the client knows them */
  constructor(session: Session, statements: ClientStatements, watch: StatementWatch, parameters: ReadonlyMap<string, string>) {
    this.#session = session;
    this.#statements = statements;
    this.#watch = watch;
    this.#reported = parameters;
  }

  /** The client has been sent whole messages only. */
  get betweenMessages(): boolean {
    return this.#scanner.last;
  }

  /**
   * @param chunk from the backend, cut anywhere
   * @param isFollowed what comes behind the answers to this client's requests is another's
   * @returns that, if there is any
   * @throws ServiceError `backend_lost` for what is no protocol
   */
  take(chunk: Buffer, isFollowed: boolean): Buffer | undefined {
    const scanner = this.#scanner;
    scanner.push(chunk);
    while (scanner.next()) {
      if (!scanner.first) this.#passOn(scanner, !this.#skippingRest);
      else if (isData(scanner.type) && !this.queue.skipping && this.#session.host.view === undefined) {
        scanner.widen();
        this.#passOn(scanner, true);
      } else this.#reply(scanner);
      if (isFollowed && this.queue.length === 0) return scanner.takeRest();
    }
    return undefined;
  }

  /** The session's own settings are in force again: tells what has really changed, and that it is ready. */
  restored(): void {
    for (const [parameter, value] of this.#changedParameters) {
      if (this.#reported.get(parameter) === value) continue;
      this.#told(parameter, value);
      this.#session.toClient.insert(encodeBackendMessage({ name: 'ParameterStatus', parameter, value }));
    }
    this.#changedParameters = NOTHING;
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
    const body = start + HEADER_BYTES;
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
        if (!skipping) this.#completed(buffer.toString('latin1', body, end - 1));
        break;
      case BackendType.DataRow:
        this.#row(scanner);
        return;
      default:
    }
    this.#passOn(scanner, this.queue.forwards(type));
    this.queue.receive(type);
  }

  #notice(scanner: FrameScanner, skipping: boolean): void {
    const { view } = this.#session.host;
    if (skipping || view === undefined || !scanner.last) {
      this.#passOn(scanner, !skipping);
      return;
    }
    const fields = decodeErrorFields(scanner.buffer.subarray(scanner.start + HEADER_BYTES, scanner.end));
    this.#session.toClient.insert(encodeBackendMessage({ name: 'NoticeResponse', fields: view.error(fields) }));
  }

  /** Says who has notified by the id that the notifier knows, and hides what is another organization's. */
  #notification(scanner: FrameScanner): void {
    const { buffer, start, end, last } = scanner;
    const { view, processIds } = this.#session.host;
    if (!last) {
      this.#passOn(scanner, view === undefined);
      return;
    }
    const { processId, channel, payload } = decodeNotification(buffer.subarray(start + HEADER_BYTES, end));
    const seen = view === undefined ? channel : view.channel(channel);
    if (seen === undefined) return;
    const sender = processIds.userOf(processId) ?? processId;
    this.#session.toClient.insert(encodeBackendMessage({ name: 'NotificationResponse', processId: sender, channel: seen, payload }));
  }

  #ready(scanner: FrameScanner): void {
    const status = statusOf(scanner.buffer[scanner.start + HEADER_BYTES]);
    // PostgreSQL 18 takes such a transaction, which a Query amid extended messages has left open, for ended, and the next
    // request fails: that is to be one of ours.
    if (this.status === 'T' && status === 'I' && !this.#hasCompleted) this.#session.pins.suspected = true;
    this.#hasCompleted = false;
    this.status = status;
    this.since = performance.now();
    const forward = this.queue.forwards(scanner.type);
    // After a RESET the session's own start is restored first, as if the server had gone back to it.
    if (forward && this.#session.pins.restores && this.status === 'I' && this.queue.length === 1) this.heldReady = true;
    else this.#passOn(scanner, forward);
    this.queue.receive(scanner.type);
    if (this.status !== 'E') this.queue.strayPortal = false;
    if (forward && !this.hiding) {
      this.#session.host.answered(!this.#requestFailed);
      this.#requestFailed = false;
    }
    if (this.#schemaChanged) {
      this.#schemaChanged = this.status !== 'I';
      this.#session.host.registry.invalidate();
    }
  }

  #error(scanner: FrameScanner): void {
    const { buffer, start, end, type } = scanner;
    const seen = buffer.subarray(start + HEADER_BYTES, end);
    const fields = decodeErrorFields(scanner.last ? seen : Buffer.concat([seen, END_OF_FIELDS]));
    this.fatalSeen ||= fields.severity !== 'ERROR';
    const forward = this.queue.forwards(type);
    if (forward && !this.fatalSeen && this.#session.canRunAgain(fields)) {
      this.hiding = true;
      this.#session.toClient.clear();
    }
    this.#failed(fields);
    this.#requestFailed ||= forward && !this.hiding;
    const told = (forward || this.fatalSeen) && !this.hiding;
    const reworded = told && scanner.last && (this.#session.host.view !== undefined || mentionsServerStatement(fields.message));
    const edits = this.#editsInError();
    if (!reworded) this.#passOn(scanner, told);
    this.queue.receive(type);
    // Only now: what the error has undone may be that the client gave up its name for the statement.
    if (reworded) this.#session.toClient.insert(this.#inClientsWords(buffer.subarray(start, end), fields, edits));
  }

  /** What was replaced in the statement that an error is about. */
  #editsInError(): readonly Edit[] {
    const subject = this.queue.subject;
    return isOwn(subject) ? [] : ((subject as Effect | RequestEnd | undefined)?.edits ?? []);
  }

  /** An error that speaks of a statement, or of the place of its tables, as the server knows it, as the client does. */
  #inClientsWords(message: Buffer, fields: ErrorFields, edits: readonly Edit[]): Buffer {
    const { view } = this.#session.host;
    const name = (text: string) => text.replace(SERVER_STATEMENT, (server) => this.#statements.nameOf(server));
    if (view === undefined) return rewriteBody(message, name);
    return encodeBackendMessage({ name: 'ErrorResponse', fields: view.error({ ...fields, message: name(fields.message) }, edits) });
  }

  #failed(fields: ErrorFields): void {
    const subject = this.queue.batchSubject;
    if (isOwn(subject)) {
      this.#session.pins.probeFailed();
      if (subject.own === 'settings')
        this.#session.end(new ServiceError('internal', "the session's settings could not be restored", { detail: fields.message }));
      return;
    }
    if (isStalePlan(fields)) this.#session.host.registry.invalidate();
    if (this.hiding) return;
    const batch = (subject as RequestEnd | undefined)?.batch;
    if (batch !== undefined) batch.sqlstate = fields.code;
  }

  /** Command tags tell what text cannot: that it really ran. */
  #completed(tag: string): void {
    this.#hasCompleted = true;
    const subject = this.queue.batchSubject;
    let isWatched = false;
    if (subject !== undefined && !isOwn(subject)) {
      const { batch, deallocations } = subject as RequestEnd;
      isWatched = batch !== undefined;
      if (batch !== undefined) this.#watch.completed(batch, tag);
      const deallocated = tag === 'DEALLOCATE' ? deallocations.shift() : undefined;
      if (deallocated !== undefined) this.#deallocated(deallocated);
    }
    // CREATE TABLE AS is told of as the SELECT in it.
    if (SCHEMA_CHANGE.test(tag) || isWatched) this.#schemaChanged = true;
    if (tag === 'DEALLOCATE ALL' || tag === 'DISCARD ALL') {
      this.#statements.clear();
      this.#session.tenure.backend?.session.prepared.clear();
      this.#renote();
    }
    if (tag === 'DISCARD ALL') this.#session.pins.discarded();
  }

  /** The name may now be given to another statement, in SQL, which is not ours to close. */
  #deallocated(name: string): void {
    this.#statements.delete(name);
    this.#renote();
    const session = this.#session.tenure.backend?.session;
    if (session !== undefined) session.leftovers = session.leftovers.filter((left) => left.toString('latin1') !== name);
  }

  /** What the client has asked behind what is being answered was noted when it was sent, and stands. */
  #renote(): void {
    for (const subject of this.queue.subjectsOf(NAMING)) (subject as Effect | undefined)?.redo?.();
  }

  /** What our own requests change and change back the client need not know; what stays different it must. */
  #parameterChanged(scanner: FrameScanner, own: boolean): void {
    const { parameter, value: serverValue } = decodeParameterStatus(scanner.buffer.subarray(scanner.start + HEADER_BYTES, scanner.end));
    if (!own) this.#session.pins.parameterChanged(parameter, serverValue);
    const value = this.#session.host.view?.clientSetting(parameter, serverValue) ?? serverValue;
    if (this.#session.pins.restores && this.status === 'I')
      this.#changedParameters = new Map([...this.#changedParameters, [parameter, value]]);
    else if (!own || this.#reported.get(parameter) !== value) {
      this.#told(parameter, value);
      if (value === serverValue) this.#passOn(scanner, true);
      else this.#session.toClient.insert(encodeBackendMessage({ name: 'ParameterStatus', parameter, value }));
    } else this.#passOn(scanner, false);
  }

  /** The client knows it from now on, and nothing older is to be told. */
  #told(parameter: string, value: string): void {
    this.#reported = new Map([...this.#reported, [parameter, value]]);
    this.#changedParameters = new Map([...this.#changedParameters].filter(([name]) => name !== parameter));
  }

  #row(scanner: FrameScanner): void {
    const { buffer, start, end, last } = scanner;
    const subject = this.queue.skipping ? this.queue.batchSubject : this.queue.subject;
    if (isOwn(subject)) {
      if (subject.own === 'probe' && last) subject.probe.row(buffer.subarray(start + HEADER_BYTES, end));
      else if (subject.own === 'probe') this.#session.pins.probeFailed();
      this.#passOn(scanner, false);
    } else if (last && (subject as RequestEnd | undefined)?.showsSearchPath === true) this.#searchPathRow(buffer.subarray(start, end));
    else this.#passOn(scanner, true);
  }

  /** The one column of SHOW search_path, in the client's words. */
  #searchPathRow(row: Buffer): void {
    const value = row.toString('utf8', SHOW_VALUE_OFFSET);
    const shown = Buffer.from(this.#session.host.view?.clientSetting('search_path', value) ?? value);
    const message = Buffer.concat([row.subarray(0, SHOW_VALUE_OFFSET), shown]);
    message.writeInt32BE(message.length - 1, 1);
    message.writeInt32BE(shown.length, SHOW_VALUE_OFFSET - 4);
    this.#session.toClient.insert(message);
  }

  simulate(request: RequestKind): void {
    if (this.hiding) return;
    this.#session.toClient.insert(request === Request.parse ? PARSE_COMPLETE : CLOSE_COMPLETE);
  }

  done(request: RequestKind, subject: unknown): void {
    if (request === Request.query && !isOwn(subject)) this.#statements.unnamedSettled(undefined);
    if (subject === undefined) return;
    if (hasEffect(request)) {
      const effect = subject as Effect;
      effect.done?.();
      if (effect.statement !== undefined) effect.statement.proven = true;
      return;
    }
    if (isOwn(subject)) {
      if (subject.own === 'probe') this.#probed(subject.probe);
      return;
    }
    const { batch } = subject as RequestEnd;
    if (batch !== undefined) this.#watch.done(batch);
  }

  dropped(request: RequestKind, subject: unknown, failed: boolean): void {
    if (subject !== undefined && hasEffect(request)) (subject as Effect).undo(failed);
    else if (request === Request.query) this.#statements.unnamedUndone(undefined, false);
  }

  #probed(probe: StateProbe): void {
    this.#session.pins.probed(probe.facts());
    const session = this.#session.tenure.backend?.session;
    if (session !== undefined) session.settings = this.#session.pins.inForce;
  }
}

/** Messages that come in numbers and say nothing to us. */
function isData(type: number): boolean {
  return type === BackendType.DataRow || type === BackendType.CopyData;
}

const NOTHING: ReadonlyMap<string, string> = new Map();

function statusOf(byte: number | undefined): TransactionStatus {
  return byte === 0x54 ? 'T' : byte === 0x45 ? 'E' : 'I';
}

/** Tags of what changes tables and what they are made of, or may hide one behind another of the same name. */
const SCHEMA_CHANGE = /^(?:ALTER|DROP|CREATE) /;

/** Requests that give and take names of statements. */
const NAMING: ReadonlySet<RequestKind> = new Set([Request.parse, Request.close]);

/** A statement's result has another shape than when it was prepared. */
export function isStalePlan({ code, message }: ErrorFields): boolean {
  return code === '0A000' && message.startsWith('cached plan');
}

/** Somebody has asked for it; not a timeout of the server's. */
export function isCanceled({ code, message }: ErrorFields): boolean {
  return code === '57014' && !message.includes('timeout');
}

function hasEffect(request: RequestKind): boolean {
  return request === Request.parse || request === Request.bind || request === Request.close;
}

function isOwn(subject: unknown): subject is OwnRequest {
  return typeof subject === 'object' && subject !== null && 'own' in subject;
}
