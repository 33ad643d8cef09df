import { Buffer } from 'node:buffer';
import { performance } from 'node:perf_hooks';
import type { BackendConnection } from '../src/backend/connection.ts';
import { ServiceError } from '../src/errors.ts';
import type { FrameScanner } from '../src/protocol/frame.ts';
import { FrontendType } from '../src/protocol/frontend.ts';
import { LARGE_SQL_BYTES } from '../src/router/search-path/rewrite.ts';
import { Backendless } from './backendless.ts';
import { Backlog } from './backlog.ts';
import { Borrower, type BorrowerListener } from './borrower.ts';
import { clientScanner } from './client-scanner.ts';
import { errorResponse } from './errors.ts';
import { HIGH_WATER_BYTES } from './limits.ts';
import { rewrittenMessage } from './messages.ts';
import { lookInSlices } from './passing-text.ts';
import type { Relay } from './relay.ts';
import type { RelayEnd } from './relay-host.ts';

type Session = Pick<Relay, 'client' | 'host' | 'pins' | 'replies' | 'requests' | 'tenure' | 'toClient' | 'inFlight' | 'ending' | 'settle'>;

/**
 * What a session's client says, on its way to the backend: sent on as it comes, but for what has to wait until there is a
 * backend, or until what was said before has been answered. A client that does not wait itself is not read meanwhile, nor
 * one whose backend cannot take more.
 */
export class Inbound implements BorrowerListener {
  /** How much the client has said. */
  bytes = 0;
  readonly #session: Session;
  readonly #backlog = new Backlog();
  readonly #borrower: Borrower;
  readonly #backendless: Backendless;
  #scanner: FrameScanner;
  /** In the message that is being rewritten. */
  #rewrittenBytes = 0;
  /** What waits has been left for later because the backend has to be told so much of what was before it. */
  #leavesRest = false;

  constructor(session: Session) {
    const { requests, toClient } = session;
    this.#session = session;
    this.#scanner = this.#newScanner();
    this.#backendless = new Backendless(requests, toClient);
    this.#borrower = new Borrower(session, this.#backlog, this);
  }

  #newScanner(): FrameScanner {
    const { view, held } = this.#session.host;
    return clientScanner(view, held);
  }

  /** What the client has said waits, and not for an answer. */
  get isWaiting(): boolean {
    return this.#backlog.isWaiting;
  }

  /** Something that the client has said waits. */
  get hasMore(): boolean {
    return !this.#backlog.isClear;
  }

  /** The client has said whole messages only. */
  get betweenMessages(): boolean {
    return this.#scanner.last;
  }

  /** Has no backend waited for any more. */
  giveUp(): void {
    this.#borrower.giveUp();
  }

  /** Counts what is held of what the client has said. */
  #count(): void {
    this.#session.host.held.fromClient(this.#scanner.heldBytes + this.#backlog.bytes + this.#rewrittenBytes);
  }

  /** @param chunk from the client, cut anywhere */
  take(chunk: Buffer): void {
    const { client, ending } = this.#session;
    if (ending.isDeaf) return;
    this.bytes += chunk.length;
    if (this.#awaitsBackend) this.#backlog.hold();
    if (this.#backlog.isClear) {
      this.#process(chunk);
      this.#count();
      return;
    }
    this.#backlog.add(chunk);
    this.#count();
    // Most clients say nothing more until they are answered: only the one that goes on is not listened to for a while.
    client.pause();
  }

  /** Sends again what has held up others, or has been hit by what was meant for one: to a backend that it has for itself. */
  takeAgain(request: Buffer): void {
    this.#borrower.alone = true;
    this.#process(request);
    this.#borrower.alone = false;
  }

  /** Goes on with what has waited for an answer. */
  goOn(): void {
    const { requests, replies, tenure } = this.#session;
    if ((this.#leavesRest && this.#backendIsFull) || tenure.isKeptBack) return;
    if (!this.#backlog.isClear && !this.#backlog.isWaiting && !requests.isWaiting && !replies.heldReady) this.#resume();
  }

  /**
   * The backend is shared, or not told yet what came before, or is being asked or told something on the client's behalf before
   * that hears that it is ready: not before a message that has begun, late data of a COPY, is at its end.
   */
  get #awaitsBackend(): boolean {
    const { tenure, replies } = this.#session;
    return tenure.shared !== undefined || tenure.isKeptBack || (replies.heldReady && this.betweenMessages);
  }

  /** Reads on, if nothing is in the way. */
  listen(): void {
    const { client, ending } = this.#session;
    if (client.isPaused() && this.#backlog.isClear && !ending.isOver && !this.#backendIsFull) client.resume();
  }

  /** The backend can take more. */
  drained(): void {
    const { client, ending } = this.#session;
    if (ending.isOver) return;
    if (this.#leavesRest) this.goOn();
    else if (this.#backlog.isClear) client.resume();
  }

  #process(chunk: Buffer): void {
    const { client, replies, requests, tenure, toClient } = this.#session;
    const scanner = this.#scanner;
    const wasIdle = replies.queue.length === 0;
    const endsBefore = wasIdle && replies.status === 'I' && !scanner.midMessage && !requests.unsynced ? requests.counts.ends : -1;
    requests.begin();
    try {
      scanner.push(chunk);
      while (scanner.next()) {
        if (scanner.type === FrontendType.Terminate) {
          this.#terminated(scanner);
          return;
        }
        if (!this.#message(scanner, endsBefore >= 0 ? chunk : undefined)) break;
        if (tenure.out.bytes > HIGH_WATER_BYTES && this.#leaveRest(scanner.takeRest())) break;
      }
    } catch (error) {
      this.#violated(error);
      return;
    }
    if (replies.queue.isUnclear) {
      this.#session.ending.outOfStep();
      return;
    }
    this.#awaitSignals();
    tenure.out.flush();
    if (wasIdle && replies.queue.length > 0) replies.since = performance.now();
    this.#keepInFlight(chunk, endsBefore);
    if (tenure.lease === undefined) toClient.flush();
    else if (replies.queue.length === 0) this.#session.settle();
    if (this.#backendIsFull) client.pause();
  }

  /** What has sent signals to other sessions is not answered before they have arrived: Postgres' functions send them themselves. */
  #awaitSignals(): void {
    const { host, tenure, replies } = this.#session;
    const signals = host.processIds.takeSignals();
    if (signals !== undefined && replies.queue.length > 0) void tenure.keepBackUntil(signals).then(() => this.goOn());
  }

  /**
   * A few bytes of the client's can make the backend be told of thousands of statements, or of large ones.
   * @returns false when there is nothing to leave for later
   */
  #leaveRest(rest: Buffer): boolean {
    if (rest.length === 0) return false;
    this.#backlog.add(rest);
    this.#leavesRest = true;
    setImmediate(() => {
      if (this.#leavesRest && !this.#session.ending.isOver) this.goOn();
    });
    return true;
  }

  #terminated(scanner: FrameScanner): void {
    const { replies, tenure, ending } = this.#session;
    // In the middle of COPY data Postgres takes it for an error, and says so.
    if (replies.queue.copyIn) tenure.out.add(scanner.buffer, scanner.start, scanner.end);
    tenure.out.flush();
    ending.afterReplies({ reason: 'terminated' });
  }

  #violated(error: unknown): void {
    const { replies, tenure, ending } = this.#session;
    tenure.out.flush();
    const told = error instanceof ServiceError ? error : this.#failed(error);
    const end: RelayEnd = { reason: 'protocol_violation', lastWords: errorResponse(told, 'FATAL') };
    // The reply to a COPY would wait for data that cannot be told apart any more.
    if (replies.queue.copyIn) ending.now(end);
    else ending.afterReplies(end);
  }

  /** A request that has come alone and whole can be run again, as long as nothing of its answer has gone out. */
  #keepInFlight(chunk: Buffer, endsBefore: number): void {
    const { replies, requests, inFlight } = this.#session;
    const isOne = endsBefore >= 0 && requests.counts.ends === endsBefore + 1 && !requests.unsynced && !this.#scanner.midMessage;
    if (isOne && this.#backlog.isClear && replies.queue.length > 0) inFlight.begin(chunk);
    else inFlight.end();
  }

  get #backendIsFull(): boolean {
    const { backend } = this.#session.tenure;
    return backend !== undefined && backend.pendingBytes > HIGH_WATER_BYTES;
  }

  /**
   * @param chunk whose beginning may be a request
   * @returns false when the message, and all behind it, has to wait
   */
  #message(scanner: FrameScanner, chunk: Buffer | undefined): boolean {
    const { replies, requests, tenure } = this.#session;
    if (this.#isLargeText(scanner)) {
      this.#rewriteLarge(scanner);
      return false;
    }
    if (tenure.backend === undefined && this.#backendless.answer(scanner)) {
      requests.placedBefore = undefined;
      return true;
    }
    const backend = tenure.backend ?? this.#borrow(scanner, chunk);
    if (backend === undefined) return false;
    if (requests.mustWait(scanner) || (scanner.first && replies.heldReady)) {
      this.#backlog.add(this.#takeOut(scanner));
      return false;
    }
    if (!requests.forward(scanner, backend)) {
      this.#backlog.add(this.#takeOut(scanner));
      return false;
    }
    requests.placedBefore = undefined;
    return true;
  }

  /** A text so long that others would notice its rewriting. */
  #isLargeText({ first, type, length, last }: FrameScanner): boolean {
    const { host, requests } = this.#session;
    if (host.view === undefined || !first || length < LARGE_SQL_BYTES || requests.placedBefore !== undefined) return false;
    return last && (type === FrontendType.Query || type === FrontendType.Parse);
  }

  /** Takes the message out, rewrites it bit by bit, and goes on with it and what is behind it. */
  #rewriteLarge(scanner: FrameScanner): void {
    const { client, host, requests, ending } = this.#session;
    const message = Buffer.from(scanner.buffer.subarray(scanner.start, scanner.end));
    this.#backlog.wait(Buffer.from(scanner.takeRest()));
    this.#scanner = this.#newScanner();
    this.#rewrittenBytes = message.length;
    client.pause();
    const rewriting = rewrittenMessage(message, (sql) => host.view?.rewriteLarge(sql));
    Promise.all([rewriting, lookInSlices(message)]).then(
      ([rewritten, said]) => {
        if (ending.isOver) return;
        this.#rewrittenBytes = 0;
        this.#backlog.wait(rewritten);
        requests.placedBefore = said;
        this.#resume();
      },
      (cause: unknown) => ending.byError(this.#failed(cause)),
    );
  }

  #failed(cause: unknown): ServiceError {
    this.#session.host.failed(cause);
    return new ServiceError('internal', 'internal error', { cause });
  }

  /**
   * @param chunk whose beginning may be a request
   * @returns undefined when there is no backend yet, for which the message, and all behind it, waits
   */
  #borrow(scanner: FrameScanner, chunk: Buffer | undefined): BackendConnection | undefined {
    const { replies } = this.#session;
    const request = scanner.buffer === chunk && scanner.start === 0 ? chunk : undefined;
    const backend = this.#borrower.tryBorrow(request);
    if (backend !== undefined) return backend;
    this.#backlog.wait(this.#takeOut(scanner));
    replies.since = performance.now();
    this.#borrower.wait(request !== undefined);
    return undefined;
  }

  /** The message that has begun, and all behind it. */
  #takeOut(scanner: FrameScanner): Buffer {
    if (!scanner.last) this.#scanner = this.#newScanner();
    return Buffer.concat([scanner.buffer.subarray(scanner.start, scanner.end), scanner.takeRest()]);
  }

  granted(): void {
    this.#resume();
  }

  /** What comes next is answered with that, unless it ends the session. */
  refused(reason: ServiceError): void {
    if (isFinal(reason)) {
      this.#session.ending.byError(reason);
      return;
    }
    this.#backendless.refuse(reason);
    this.#resume();
  }

  /** Goes on with what had to wait. */
  #resume(): void {
    const { ending } = this.#session;
    this.#leavesRest = false;
    for (const bytes of this.#backlog.take()) {
      // Waiting may begin again in the middle; the rest then belongs behind it.
      if (!this.#backlog.isClear || this.#awaitsAnswer) this.#backlog.add(bytes);
      else if (!ending.isOver) this.#process(bytes);
    }
    this.#count();
    this.listen();
  }

  /** Nothing is to be sent behind what the backend has been asked for this client, as it is shared, or not told that yet. */
  get #awaitsAnswer(): boolean {
    const { tenure, replies } = this.#session;
    return (tenure.shared !== undefined && replies.queue.length > 0) || tenure.isKeptBack;
  }
}

/** Errors that end the session rather than the request that met them. */
function isFinal({ kind }: ServiceError): boolean {
  return kind === 'shutting_down' || kind === 'key_revoked' || kind === 'organization_suspended';
}
