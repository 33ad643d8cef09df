import { Buffer } from 'node:buffer';
import { performance } from 'node:perf_hooks';
import type { Duplex } from 'node:stream';
import type { BackendConnection } from '../../src/backend/connection.ts';
import { ServiceError } from '../../src/errors.ts';
import type { FrameScanner } from '../../src/protocol/frame.ts';
import { FrontendType } from '../../src/protocol/frontend.ts';
import { LARGE_SQL_BYTES } from '../../src/router/schema-rewriting/rewrite.ts';
import { HIGH_WATER_BYTES } from '../buffer-limits.ts';
import type { BackendLink } from '../checkout/backend-link.ts';
import { Checkout, type CheckoutListener } from '../checkout/checkout.ts';
import { errorResponse } from '../errors.ts';
import { lookInSlices } from '../inspection/streamed-traits.ts';
import type { InFlight } from '../multiplex/in-flight.ts';
import type { Pins } from '../pinning/pins.ts';
import type { RelayEnd, SessionServices } from '../sessions/session-services.ts';
import type { BackendMessages } from './backend-messages.ts';
import { clientScanner } from './client-scanner.ts';
import type { Forwarding } from './forwarding.ts';
import { InputQueue } from './input-queue.ts';
import { LocalReplies } from './local-replies.ts';
import { rewrittenMessage } from './messages.ts';
import type { SessionEnd } from './session-end.ts';
import type { WriteBuffer } from './write-buffer.ts';

/** What reading from the client needs of the session. */
interface ReadingSession {
  readonly client: Duplex;
  readonly services: SessionServices;
  readonly pins: Pins;
  readonly replies: BackendMessages;
  readonly forwarding: Forwarding;
  readonly link: BackendLink;
  readonly toClient: WriteBuffer;
  readonly inFlight: InFlight;
  readonly sessionEnd: SessionEnd;
  settle(): void;
}

/**
 * What a session's client says, on its way to the backend: sent on as it comes, but for what has to wait until there is a
 * backend, or until what was said before has been answered. A client that does not wait itself is not read meanwhile, nor
 * one whose backend cannot take more.
 */
export class FrontendMessages implements CheckoutListener {
  /** How much the client has said. */
  bytes = 0;
  readonly #session: ReadingSession;
  readonly #inputQueue = new InputQueue();
  readonly #checkout: Checkout;
  readonly #localReplies: LocalReplies;
  #scanner: FrameScanner;
  /** In the message that is being rewritten. */
  #rewrittenBytes = 0;
  /** What waits has been left for later because the backend has to be told so much of what was before it. */
  #leavesRest = false;

  constructor(session: ReadingSession) {
    const { forwarding, toClient } = session;
    this.#session = session;
    this.#scanner = this.#newScanner();
    this.#localReplies = new LocalReplies(forwarding, toClient);
    this.#checkout = new Checkout(session, this.#inputQueue, this);
  }

  #newScanner(): FrameScanner {
    const { view, held } = this.#session.services;
    return clientScanner(view, held);
  }

  /** What the client has said waits, and not for an answer. */
  get isWaiting(): boolean {
    return this.#inputQueue.isWaiting;
  }

  /** Something that the client has said waits. */
  get hasMore(): boolean {
    return !this.#inputQueue.isClear;
  }

  /** The client has said whole messages only. */
  get betweenMessages(): boolean {
    return this.#scanner.last;
  }

  /** Has no backend waited for any more. */
  giveUp(): void {
    this.#checkout.giveUp();
  }

  /** Counts what is held of what the client has said. */
  #count(): void {
    this.#session.services.held.fromClient(this.#scanner.heldBytes + this.#inputQueue.bytes + this.#rewrittenBytes);
  }

  /** @param chunk from the client, cut anywhere */
  take(chunk: Buffer): void {
    const { client, sessionEnd } = this.#session;
    if (sessionEnd.ignoresInput) return;
    this.bytes += chunk.length;
    if (this.#awaitsBackend) this.#inputQueue.hold();
    if (this.#inputQueue.isClear) {
      this.#process(chunk);
      this.#count();
      return;
    }
    this.#inputQueue.add(chunk);
    this.#count();
    // Most clients say nothing more until they are answered: only the one that goes on is not listened to for a while.
    client.pause();
  }

  /** Sends again what has held up others, or has been hit by what was meant for one: to a backend that it has for itself. */
  takeAgain(request: Buffer): void {
    this.#checkout.isExclusive = true;
    this.#process(request);
    this.#checkout.isExclusive = false;
  }

  /** Goes on with what has waited for an answer. */
  goOn(): void {
    const { forwarding, replies, link } = this.#session;
    if ((this.#leavesRest && this.#backendIsFull) || link.isHeldBack) return;
    if (!this.#inputQueue.isClear && !this.#inputQueue.isWaiting && !forwarding.isWaiting && !replies.heldReady) this.#resume();
  }

  /**
   * The backend is shared, or not told yet what came before, or is being asked or told something on the client's behalf before
   * that hears that it is ready: not before a message that has begun, late data of a COPY, is at its end.
   */
  get #awaitsBackend(): boolean {
    const { link, replies } = this.#session;
    return link.shared !== undefined || link.isHeldBack || (replies.heldReady && this.betweenMessages);
  }

  /** Reads on, if nothing is in the way. */
  listen(): void {
    const { client, sessionEnd } = this.#session;
    if (client.isPaused() && this.#inputQueue.isClear && !sessionEnd.isOver && !this.#backendIsFull) client.resume();
  }

  /** The backend can take more. */
  drained(): void {
    const { client, sessionEnd } = this.#session;
    if (sessionEnd.isOver) return;
    if (this.#leavesRest) this.goOn();
    else if (this.#inputQueue.isClear) client.resume();
  }

  #process(chunk: Buffer): void {
    const { client, replies, forwarding, link, toClient } = this.#session;
    const scanner = this.#scanner;
    const wasIdle = replies.queue.length === 0;
    const endsBefore = wasIdle && replies.status === 'I' && !scanner.midMessage && !forwarding.unsynced ? forwarding.counts.ends : -1;
    forwarding.begin();
    try {
      scanner.push(chunk);
      while (scanner.next()) {
        if (scanner.type === FrontendType.Terminate) {
          this.#terminated(scanner);
          return;
        }
        if (!this.#message(scanner, endsBefore >= 0 ? chunk : undefined)) break;
        if (link.out.bytes > HIGH_WATER_BYTES && this.#leaveRest(scanner.takeRest())) break;
      }
    } catch (error) {
      this.#violated(error);
      return;
    }
    if (replies.queue.isUnclear) {
      this.#session.sessionEnd.outOfStep();
      return;
    }
    this.#awaitSignals();
    link.out.flush();
    if (wasIdle && replies.queue.length > 0) replies.since = performance.now();
    this.#keepInFlight(chunk, endsBefore);
    if (link.lease === undefined) toClient.flush();
    else if (replies.queue.length === 0) this.#session.settle();
    if (this.#backendIsFull) client.pause();
  }

  /** What has sent signals to other sessions is not answered before they have arrived: Postgres' functions send them themselves. */
  #awaitSignals(): void {
    const { services, link, replies } = this.#session;
    const signals = services.processIds.takeSignals();
    if (signals !== undefined && replies.queue.length > 0) void link.holdBackUntil(signals).then(() => this.goOn());
  }

  /**
   * A few bytes of the client's can make the backend be told of thousands of statements, or of large ones.
   * @returns false when there is nothing to leave for later
   */
  #leaveRest(rest: Buffer): boolean {
    if (rest.length === 0) return false;
    this.#inputQueue.add(rest);
    this.#leavesRest = true;
    setImmediate(() => {
      if (this.#leavesRest && !this.#session.sessionEnd.isOver) this.goOn();
    });
    return true;
  }

  #terminated(scanner: FrameScanner): void {
    const { replies, link, sessionEnd } = this.#session;
    // In the middle of COPY data Postgres takes it for an error, and says so.
    if (replies.queue.copyIn) link.out.add(scanner.buffer, scanner.start, scanner.end);
    link.out.flush();
    sessionEnd.afterReplies({ reason: 'terminated' });
  }

  #violated(error: unknown): void {
    const { replies, link, sessionEnd } = this.#session;
    link.out.flush();
    const told = error instanceof ServiceError ? error : this.#failed(error);
    const end: RelayEnd = { reason: 'protocol_violation', finalError: errorResponse(told, 'FATAL') };
    // The reply to a COPY would wait for data that cannot be told apart any more.
    if (replies.queue.copyIn) sessionEnd.now(end);
    else sessionEnd.afterReplies(end);
  }

  /** A request that has come alone and whole can be run again, as long as nothing of its answer has gone out. */
  #keepInFlight(chunk: Buffer, endsBefore: number): void {
    const { replies, forwarding, inFlight } = this.#session;
    const isOne = endsBefore >= 0 && forwarding.counts.ends === endsBefore + 1 && !forwarding.unsynced && !this.#scanner.midMessage;
    if (isOne && this.#inputQueue.isClear && replies.queue.length > 0) inFlight.begin(chunk);
    else inFlight.end();
  }

  get #backendIsFull(): boolean {
    const { backend } = this.#session.link;
    return backend !== undefined && backend.pendingBytes > HIGH_WATER_BYTES;
  }

  /**
   * @param chunk whose beginning may be a request
   * @returns false when the message, and all behind it, has to wait
   */
  #message(scanner: FrameScanner, chunk: Buffer | undefined): boolean {
    const { replies, forwarding, link } = this.#session;
    if (this.#isLargeText(scanner)) {
      this.#rewriteLarge(scanner);
      return false;
    }
    if (link.backend === undefined && this.#localReplies.answer(scanner)) {
      forwarding.placedBefore = undefined;
      return true;
    }
    const backend = link.backend ?? this.#checkOut(scanner, chunk);
    if (backend === undefined) return false;
    if (forwarding.mustWait(scanner) || (scanner.first && replies.heldReady)) {
      this.#inputQueue.add(this.#takeOut(scanner));
      return false;
    }
    if (!forwarding.forward(scanner, backend)) {
      this.#inputQueue.add(this.#takeOut(scanner));
      return false;
    }
    forwarding.placedBefore = undefined;
    return true;
  }

  /** A text so long that others would notice its rewriting. */
  #isLargeText({ first, type, length, last }: FrameScanner): boolean {
    const { services, forwarding } = this.#session;
    if (services.view === undefined || !first || length < LARGE_SQL_BYTES || forwarding.placedBefore !== undefined) return false;
    return last && (type === FrontendType.Query || type === FrontendType.Parse);
  }

  /** Takes the message out, rewrites it bit by bit, and goes on with it and what is behind it. */
  #rewriteLarge(scanner: FrameScanner): void {
    const { client, services, forwarding, sessionEnd } = this.#session;
    const message = Buffer.from(scanner.buffer.subarray(scanner.start, scanner.end));
    this.#inputQueue.wait(Buffer.from(scanner.takeRest()));
    this.#scanner = this.#newScanner();
    this.#rewrittenBytes = message.length;
    client.pause();
    const rewriting = rewrittenMessage(message, (sql) => services.view?.rewriteLarge(sql));
    Promise.all([rewriting, lookInSlices(message)]).then(
      ([rewritten, said]) => {
        if (sessionEnd.isOver) return;
        this.#rewrittenBytes = 0;
        this.#inputQueue.wait(rewritten);
        forwarding.placedBefore = said;
        this.#resume();
      },
      (cause: unknown) => sessionEnd.byError(this.#failed(cause)),
    );
  }

  #failed(cause: unknown): ServiceError {
    this.#session.services.failed(cause);
    return new ServiceError('internal', 'internal error', { cause });
  }

  /**
   * @param chunk whose beginning may be a request
   * @returns undefined when there is no backend yet, for which the message, and all behind it, waits
   */
  #checkOut(scanner: FrameScanner, chunk: Buffer | undefined): BackendConnection | undefined {
    const { replies } = this.#session;
    const request = scanner.buffer === chunk && scanner.start === 0 ? chunk : undefined;
    const backend = this.#checkout.tryCheckout(request);
    if (backend !== undefined) return backend;
    this.#inputQueue.wait(this.#takeOut(scanner));
    replies.since = performance.now();
    this.#checkout.wait(request !== undefined);
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
      this.#session.sessionEnd.byError(reason);
      return;
    }
    this.#localReplies.refuse(reason);
    this.#resume();
  }

  /** Goes on with what had to wait. */
  #resume(): void {
    const { sessionEnd } = this.#session;
    this.#leavesRest = false;
    for (const bytes of this.#inputQueue.take()) {
      // Waiting may begin again in the middle; the rest then belongs behind it.
      if (!this.#inputQueue.isClear || this.#awaitsAnswer) this.#inputQueue.add(bytes);
      else if (!sessionEnd.isOver) this.#process(bytes);
    }
    this.#count();
    this.listen();
  }

  /** Nothing is to be sent behind what the backend has been asked for this client, as it is shared, or not told that yet. */
  get #awaitsAnswer(): boolean {
    const { link, replies } = this.#session;
    return (link.shared !== undefined && replies.queue.length > 0) || link.isHeldBack;
  }
}

/** Errors that end the session rather than the request that met them. */
function isFinal({ kind }: ServiceError): boolean {
  return kind === 'shutting_down' || kind === 'key_revoked' || kind === 'organization_suspended';
}
