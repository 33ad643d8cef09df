import type { Duplex } from 'node:stream';
import type { BackendConnection, BackendReceiver } from '../src/backend/connection.ts';
import { Fate, type ReplyQueue, Request } from '../src/backend/reply-queue.ts';
import { ServiceError } from '../src/errors.ts';
import type { ErrorFields, TransactionStatus } from '../src/protocol/backend.ts';
import { FrameScanner, frontendFrames } from '../src/protocol/frame.ts';
import { FrontendType } from '../src/protocol/frontend.ts';
import type { Lease } from '../src/router/lease.ts';
import { LARGE_SQL_BYTES } from '../src/router/search-path/rewrite.ts';
import { ClientStatements } from './client-statements.ts';
import { errorResponse } from './errors.ts';
import { HIGH_WATER_BYTES, MAX_REWRITTEN_BYTES } from './limits.ts';
import { PARSE_COMPLETE, queryMessage, READY_IDLE, rewrittenMessage } from './messages.ts';
import type { Pins } from './pins.ts';
import type { RelayHost } from './relay-host.ts';
import { isStalePlan, type OwnRequest, Replies } from './replies.ts';
import { Requests } from './requests.ts';
import { Run } from './run.ts';
import { settingsChange } from './session-settings.ts';
import { StateProbe } from './state-probe.ts';
import type { TextTraits } from './statement-text.ts';
import { StatementWatch } from './statement-watch.ts';

/** How a session ended, and what the client should be told if it can still be told anything. */
export interface RelayEnd {
  readonly reason: 'terminated' | 'client_gone' | 'backend_lost' | 'protocol_violation' | 'ended';
  readonly lastWords?: Buffer;
}

const MAX_KEPT_DEFINITION_BYTES = 1_048_576;
/** Longest names that are looked at: Postgres takes 63 bytes of an SQL name, but protocol names have no limit. */
const MAX_NAMES_BYTES = 65_536;
const FRONTEND = frontendFrames({ Q: 65_536, P: MAX_KEPT_DEFINITION_BYTES, B: MAX_NAMES_BYTES, D: MAX_NAMES_BYTES, C: MAX_NAMES_BYTES });
/** Where texts are rewritten, they have to be held whole. */
const FRONTEND_REWRITTEN = frontendFrames({
  Q: MAX_REWRITTEN_BYTES,
  P: MAX_REWRITTEN_BYTES,
  B: MAX_NAMES_BYTES,
  D: MAX_NAMES_BYTES,
  C: MAX_NAMES_BYTES,
});

const DISCARD_SEQUENCES = queryMessage('DISCARD SEQUENCES');

/**
 * One client's conversation, carried on over whatever backend it has at the moment. A backend is borrowed for a
 * transaction, and kept while the session holds state that outlives one. Bodies go through untouched; the side whose peer
 * cannot take more is not read until it can.
 */
export class Relay implements BackendReceiver {
  readonly pins: Pins;
  /** When the client last took bytes off our hands. */
  lastTakenAt = performance.now();
  /** The client has closed its sending side and may still be reading. */
  halfClosed = false;
  readonly #client: Duplex;
  readonly #host: RelayHost;
  readonly #replies: Replies;
  readonly #queue: ReplyQueue;
  readonly #statements = new ClientStatements();
  readonly #requests: Requests;
  readonly #toClient = new Run((bytes) => this.#client.write(bytes));
  /** The request in flight, where it may have to be run again, and what had been written to the client before it. */
  #inFlight: { readonly bytes: Buffer; readonly writes: number } | undefined;
  readonly #toBackend = new Run((bytes) => this.#lease?.backend.write(bytes));
  #fromClient: FrameScanner;
  #lease: Lease | undefined;
  #lastBackend: BackendConnection | undefined;
  /** Bytes that wait for a backend, and what ends the wait. */
  #waiting: { readonly bytes: Buffer[]; readonly giveUp: () => void } | undefined;
  /** Why there was no backend for the request that comes next from the client. */
  #refusal: ServiceError | undefined;
  #discardingUntilSync = false;
  #bytesIn = 0;
  /** The session's backend was another client's before, and this one has moved no sequence since. */
  #sequencesAreOthers = false;
  /** The client has asked nothing yet of the backend at hand. */
  #untouched = false;
  #canceling: Promise<void> | undefined;
  #cancelWanted = false;
  /** The client has said Terminate, or something that is no protocol: what came before that is still answered. */
  #lastWords: RelayEnd | undefined;
  #endAtRest: ServiceError | undefined;
  /** What the backend runs does not end when it is canceled. */
  #disobeyed = false;
  #finish: (end: RelayEnd) => void = () => {};
  #over = false;

  constructor(client: Duplex, host: RelayHost, pins: Pins, parameters: ReadonlyMap<string, string>) {
    this.#client = client;
    this.#host = host;
    this.pins = pins;
    this.#fromClient = this.#newScanner();
    const watch = new StatementWatch((batch) => host.watched(batch));
    this.#replies = new Replies({
      host,
      pins,
      watch,
      parameters,
      statements: this.#statements,
      toClient: this.#toClient,
      backend: () => this.#lease?.backend.session,
      notRestored: (error) => this.end(error),
      canRunAgain: (error) => this.#canRunAgain(error),
    });
    this.#queue = this.#replies.queue;
    const replies = this.#replies;
    const listener = {
      statement: (traits: TextTraits) => this.#statementSeen(traits),
      processIds: host.processIds,
      view: host.view,
      pins,
      get failed() {
        return replies.status === 'E';
      },
    };
    this.#requests = new Requests(this.#statements, host.registry, this.#queue, watch, listener, this.#toBackend);
  }

  #newScanner(): FrameScanner {
    return new FrameScanner(this.#host.view === undefined ? FRONTEND : FRONTEND_REWRITTEN);
  }

  get status(): TransactionStatus {
    return this.#replies.status;
  }

  /** When the oldest unanswered request was sent, or when the session last became idle; on performance.now()'s clock. */
  get since(): number {
    return this.#replies.since;
  }

  get traffic(): { readonly bytesIn: number; readonly bytesOut: number } {
    return { bytesIn: this.#bytesIn, bytesOut: this.#replies.bytesOut };
  }

  get statements(): number {
    return this.#requests.counts.statements;
  }

  /** Replies are owed to the client, or it waits for a backend. */
  get busy(): boolean {
    return this.#queue.length > 0 || this.#waiting !== undefined || this.#replies.heldReady;
  }

  /** The backend at hand, e.g. to be canceled. */
  get lease(): Lease | undefined {
    return this.#lease;
  }

  /** What a backend sends is written to the client at once, and only what the kernel has not taken is needed longer. */
  get holdsChunk(): boolean {
    return this.#client.writableLength > 0;
  }

  /** Bytes that the client has not taken yet. */
  get unsent(): number {
    return this.#client.writableLength;
  }

  /** Relays until either side ends or {@link end} is called. Whatever is borrowed then has been given back. */
  async run(): Promise<RelayEnd> {
    const client = this.#client;
    const onData = (chunk: Buffer) => this.#clientData(chunk);
    const onDrain = () => this.#clientDrained();
    const onEnd = () => this.#clientEnded();
    const onClose = () => this.#end({ reason: 'client_gone' });
    try {
      return await new Promise((resolve) => {
        this.#finish = resolve;
        client.on('data', onData).on('drain', onDrain).on('end', onEnd).on('close', onClose);
        client.resume();
        if (client.destroyed) this.#end({ reason: 'client_gone' });
        else if (client.readableEnded) this.#clientEnded();
      });
    } finally {
      client.off('data', onData).off('drain', onDrain).off('end', onEnd).off('close', onClose);
      this.#waiting?.giveUp();
      await this.#giveBack();
    }
  }

  /** Ends the session from our side; the error is told only where it does not fall into the middle of a message. */
  end(error: ServiceError): void {
    this.#end({ reason: 'ended', ...(this.#replies.betweenMessages ? { lastWords: errorResponse(error, 'FATAL') } : {}) });
  }

  /** Ends the session, and the statement that obeys no cancel request. */
  terminate(error: ServiceError): void {
    this.#disobeyed = true;
    this.end(error);
  }

  /** Ends the session as soon as it is in no transaction and owed nothing. */
  endAtRest(error: ServiceError): void {
    this.#endAtRest = error;
    this.#endIfAtRest();
  }

  /** Ends the session without a word: the client does not take what it is sent. */
  abandon(): void {
    this.#end(this.#lastWords ?? { reason: 'client_gone' });
  }

  /** Cancels what the client is waiting for, be it an answer or a backend. Resolves when the server has taken the request. */
  async cancel(): Promise<void> {
    if (this.#waiting !== undefined) {
      this.#waiting.giveUp();
      return;
    }
    if (this.#lease === undefined || this.#queue.length === 0) return;
    // A request of ours is running: the client's own is behind it.
    if (this.#queue.answeringOurs && this.#canceling === undefined) {
      this.#cancelWanted = true;
      return;
    }
    this.#canceling ??= this.#lease.cancel().finally(() => {
      this.#canceling = undefined;
    });
    await this.#canceling;
  }

  /** Once the server answers the client's own request again, and not one of ours ahead of it. */
  #cancelIfWanted(): void {
    if (!this.#cancelWanted || this.#queue.answeringOurs) return;
    this.#cancelWanted = false;
    void this.cancel();
  }

  #clientData(chunk: Buffer): void {
    if (this.#lastWords !== undefined) return;
    this.#bytesIn += chunk.length;
    if (this.#waiting !== undefined) this.#waiting.bytes.push(chunk);
    else this.#process(chunk);
  }

  #process(chunk: Buffer): void {
    const scanner = this.#fromClient;
    const wasIdle = this.#queue.length === 0;
    const endsBefore = wasIdle && this.status === 'I' && !scanner.midMessage ? this.#requests.counts.ends : -1;
    this.#requests.usesRepeated = false;
    try {
      scanner.push(chunk);
      while (scanner.next()) {
        if (scanner.type === FrontendType.Terminate) {
          // In the middle of COPY data Postgres takes it for an error, and says so.
          if (this.#queue.copyIn) this.#toBackend.add(scanner.buffer, scanner.start, scanner.end);
          this.#toBackend.flush();
          this.#endAfterReplies({ reason: 'terminated' });
          return;
        }
        if (this.#isLargeText(scanner)) {
          this.#rewriteLarge(scanner);
          break;
        }
        const backend = this.#lease?.backend;
        if (backend !== undefined) this.#forward(scanner, backend);
        else if (!this.#withoutBackend(scanner) && !this.#attachFor(scanner)) break;
      }
    } catch (error) {
      this.#toBackend.flush();
      const told = error instanceof ServiceError ? error : new ServiceError('internal', 'internal error', { cause: error });
      const end: RelayEnd = { reason: 'protocol_violation', lastWords: errorResponse(told, 'FATAL') };
      // The reply to a COPY would wait for data that cannot be told apart any more.
      if (this.#queue.copyIn) this.#end(end);
      else this.#endAfterReplies(end);
      return;
    }
    this.#toBackend.flush();
    this.#keepInFlight(chunk, endsBefore);
    if (wasIdle && this.#queue.length > 0) this.#replies.since = performance.now();
    if (this.#lease === undefined) this.#toClient.flush();
    else if (this.#queue.length === 0) this.#settle();
    if (this.#backendIsFull) this.#client.pause();
  }

  /** A request that has come alone and whole can be run again, as long as nothing of its answer has gone out. */
  #keepInFlight(chunk: Buffer, endsBefore: number): void {
    const { counts, unsynced, usesRepeated } = this.#requests;
    const isOne = endsBefore >= 0 && counts.ends === endsBefore + 1 && !unsynced && this.#fromClient.last;
    this.#inFlight = isOne && usesRepeated ? { bytes: Buffer.from(chunk), writes: this.#toClient.writes } : undefined;
  }

  /** The client knows nothing of what was prepared for it, and is not to hear that it does not fit any more. */
  #canRunAgain(error: ErrorFields): boolean {
    return this.#inFlight !== undefined && this.#inFlight.writes === this.#toClient.writes && isStalePlan(error);
  }

  #runAgain(): void {
    const { bytes } = this.#inFlight ?? {};
    this.#replies.hiding = false;
    if (bytes !== undefined) this.#process(bytes);
  }

  get #backendIsFull(): boolean {
    return this.#lease !== undefined && this.#lease.backend.pendingBytes > HIGH_WATER_BYTES;
  }

  /** A text so long that others would notice its rewriting. */
  #isLargeText({ first, type, length, last }: FrameScanner): boolean {
    if (this.#host.view === undefined || !first || length < LARGE_SQL_BYTES || this.#requests.alreadyPlaced) return false;
    return last && (type === FrontendType.Query || type === FrontendType.Parse);
  }

  /** Takes the message out, rewrites it bit by bit, and goes on with it and what is behind it. */
  #rewriteLarge(scanner: FrameScanner): void {
    const message = Buffer.from(scanner.buffer.subarray(scanner.start, scanner.end));
    const waiting: { readonly bytes: Buffer[]; readonly giveUp: () => void } = {
      bytes: [Buffer.from(scanner.takeRest())],
      giveUp: () => {},
    };
    this.#fromClient = this.#newScanner();
    this.#waiting = waiting;
    this.#client.pause();
    rewrittenMessage(message, (sql) => this.#host.view?.rewriteLarge(sql)).then(
      (rewritten) => {
        waiting.bytes.unshift(rewritten);
        if (this.#over) return;
        this.#requests.alreadyPlaced = true;
        this.#resumeWith(waiting.bytes);
        this.#requests.alreadyPlaced = false;
      },
      (cause: unknown) => this.end(new ServiceError('internal', 'internal error', { cause })),
    );
  }

  #forward(scanner: FrameScanner, backend: BackendConnection): void {
    this.#requests.forward(scanner, backend);
    this.#untouched = false;
  }

  /**
   * Answers what needs no backend.
   * @returns false when the message has to go to one
   */
  #withoutBackend(scanner: FrameScanner): boolean {
    // The rest of a message whose beginning went nowhere.
    if (!scanner.first) return true;
    switch (scanner.type) {
      case FrontendType.Sync:
        if (scanner.length > 0) return false;
        this.#toClient.insert(READY_IDLE);
        this.#discardingUntilSync = false;
        this.#refusal = undefined;
        return true;
      // After a COPY that has failed, as Postgres does.
      case FrontendType.CopyData:
      case FrontendType.CopyDone:
      case FrontendType.CopyFail:
      case FrontendType.Flush:
        return true;
      default:
        return this.#discardingUntilSync || this.#refuse(scanner) || this.#parseKnown(scanner);
    }
  }

  #parseKnown(scanner: FrameScanner): boolean {
    const known = this.#requests.parseKnown(scanner);
    if (known) this.#toClient.insert(PARSE_COMPLETE);
    return known;
  }

  /** Answers a request for which there was no backend. */
  #refuse({ type }: FrameScanner): boolean {
    if (this.#refusal === undefined) return false;
    this.#toClient.insert(errorResponse(this.#refusal, 'ERROR'));
    this.#refusal = undefined;
    if (type === FrontendType.Query || type === FrontendType.FunctionCall) this.#toClient.insert(READY_IDLE);
    else this.#discardingUntilSync = true;
    return true;
  }

  /** @returns false when the message, and all behind it, has to wait for a backend */
  #attachFor(scanner: FrameScanner): boolean {
    const lease = this.#host.tryLease(this.#lastBackend);
    if (lease !== undefined) {
      this.#attach(lease);
      this.#forward(scanner, lease.backend);
      return true;
    }
    const bytes = [Buffer.concat([scanner.buffer.subarray(scanner.start, scanner.end), scanner.takeRest()])];
    this.#fromClient = this.#newScanner();
    this.#replies.since = performance.now();
    this.#client.pause();
    // Until the wait has begun, nothing can be given up: the answer may even be there at once.
    this.#waiting = { bytes, giveUp: () => {} };
    const giveUp = this.#host.enqueue((result) => this.#waited(result, bytes));
    if (this.#waiting?.bytes === bytes) this.#waiting = { bytes, giveUp };
    return false;
  }

  #waited(result: Lease | ServiceError, bytes: readonly Buffer[]): void {
    if (result instanceof ServiceError) this.#refusal = result;
    else if (this.#over) void result.release(true);
    else this.#attach(result);
    if (this.#over) return;
    if (this.#refusal !== undefined && isFinal(this.#refusal)) this.end(this.#refusal);
    else this.#resumeWith(bytes);
  }

  /** Goes on with what had to wait. */
  #resumeWith(waited: readonly Buffer[]): void {
    this.#waiting = undefined;
    for (const bytes of waited) {
      // Waiting may begin again in the middle; the rest then belongs behind it.
      if (this.#nowWaiting !== undefined) this.#nowWaiting.bytes.push(bytes);
      else if (!this.#over) this.#process(bytes);
    }
    if (this.#nowWaiting === undefined && !this.#over && !this.#backendIsFull) this.#client.resume();
  }

  get #nowWaiting(): { readonly bytes: Buffer[] } | undefined {
    return this.#waiting;
  }

  /** Takes a backend and gives it this session's settings, ahead of the first request and in the same write. */
  #attach(lease: Lease): void {
    this.#lease = lease;
    const { backend } = lease;
    backend.attach(this);
    backend.resume();
    this.#lastBackend = backend;
    this.#untouched = true;
    const { session } = backend;
    const change = settingsChange(session.settings, this.pins.settings);
    session.settings = this.pins.settings;
    if (change !== undefined) this.#ask(queryMessage(change), { own: 'settings' });
    this.#sequencesAreOthers = session.lastUser !== undefined && session.lastUser !== this;
    if (session.lastUser !== this) this.#host.processIds.moved(backend.processId);
    session.lastUser = this;
  }

  /** Sends a request of our own, of which the client hears nothing. It does away with the unnamed statement. */
  #ask(message: Buffer, request: OwnRequest): void {
    const session = this.#lease?.backend.session;
    if (session !== undefined) session.unnamed = undefined;
    this.#queue.push(Request.query, Fate.skip, request);
    this.#toBackend.insert(message);
  }

  #statementSeen(traits: TextTraits): void {
    this.pins.statementSeen(traits);
    if (traits.changesDefaults) this.pins.defaultsChanged = true;
    if (traits.readsSequenceState) this.#beforeSequenceRead();
    if (traits.namesSequences) this.pins.keep('sequence');
    if (traits.movesSequences) {
      this.#sequencesAreOthers = false;
      if (this.#host.sequences.areRead) this.pins.keep('sequence');
    }
    if (traits.seedsRandom) this.pins.keep('seed');
    if (traits.staysPrepared) this.pins.keep('oversized');
    if (traits.namesPrepared && this.#lease !== undefined && this.status !== 'E')
      this.#requests.materialize(this.#lease.backend, traits.listsPrepared);
  }

  /** What another client's statements got from a sequence is not this one's to see. */
  #beforeSequenceRead(): void {
    this.#host.sequences.areRead = true;
    this.pins.keep('sequence');
    if (!this.#sequencesAreOthers || !this.#untouched) return;
    this.#sequencesAreOthers = false;
    this.#ask(DISCARD_SEQUENCES, { own: 'settings' });
  }

  data(chunk: Buffer): void {
    try {
      this.#replies.take(chunk);
    } catch {
      this.closed();
      return;
    }
    this.#cancelIfWanted();
    if (this.#replies.hiding && this.#queue.length === 0) this.#runAgain();
    else if (this.#queue.length > 0) this.#toClient.flush();
    else if (this.#lastWords !== undefined) this.#end(this.#lastWords);
    else this.#settle();
    if (this.#client.writableLength === 0) this.lastTakenAt = performance.now();
    else if (this.#client.writableLength > HIGH_WATER_BYTES) this.#lease?.backend.pause();
  }

  /** Nothing is owed. Others get the backend before the client gets its answer: they wait for it to work, not to read. */
  #settle(): void {
    this.#settleBackend();
    this.#toClient.flush();
  }

  /** Finds out what the session holds, gives the backend back, or keeps it. */
  #settleBackend(): void {
    const lease = this.#lease;
    if (lease === undefined || this.#over || this.status !== 'I' || this.#requests.unsynced || !this.#fromClient.last) return;
    if (this.pins.suspected || this.#queue.doubtful) {
      this.pins.suspected = false;
      const probe = new StateProbe(this.pins.customSettings);
      this.#ask(probe.message, { own: 'probe', probe });
      this.#toBackend.flush();
      return;
    }
    if (this.pins.lockCheckDue) {
      this.#checkLocks(lease);
      return;
    }
    if (this.pins.settings !== lease.backend.session.settings) {
      // RESET and DISCARD go back to what the session started with, which is more than the server knows.
      const change = settingsChange(lease.backend.session.settings, this.pins.settings);
      lease.backend.session.settings = this.pins.settings;
      if (change !== undefined) {
        this.#ask(queryMessage(change), { own: 'settings' });
        this.#toBackend.flush();
        return;
      }
    }
    this.pins.restores = false;
    this.pins.unsettled = false;
    this.#replies.restored();
    if (this.#endIfAtRest()) return;
    if (this.halfClosed) this.#end(this.#lastWords ?? { reason: 'client_gone' });
    else if (!this.pins.pinned) this.#detach(lease);
  }

  #detach(lease: Lease): void {
    this.#lease = undefined;
    lease.backend.detach();
    if (this.#client.isPaused() && this.#waiting === undefined) this.#client.resume();
    if (this.pins.defaultsChanged) {
      this.pins.defaultsChanged = false;
      this.#host.defaultsChanged();
    }
    // A cancel request may still be on its way to this backend: nobody else gets it before it has arrived.
    if (this.#canceling === undefined) void lease.release(true);
    else void this.#canceling.then(() => lease.release(true));
  }

  #checkLocks(lease: Lease): void {
    this.pins.lockCheckDue = false;
    void this.#host.holdsAdvisoryLocks(lease.backend.processId).then(
      (held) => {
        this.pins.locksHeld(held);
        if (this.#lease === lease && this.#queue.length === 0) this.#settle();
      },
      () => {},
    );
  }

  drain(): void {
    if (!this.#over && this.#waiting === undefined) this.#client.resume();
  }

  closed(): void {
    this.#end({
      reason: 'backend_lost',
      ...(this.#replies.betweenMessages && !this.#replies.fatalSeen
        ? { lastWords: errorResponse(new ServiceError('backend_lost', 'the connection to the database server was lost'), 'FATAL') }
        : {}),
    });
  }

  #clientDrained(): void {
    this.lastTakenAt = performance.now();
    this.#lease?.backend.resume();
  }

  #clientEnded(): void {
    this.halfClosed = true;
    if (!this.busy) this.#end({ reason: 'client_gone' });
  }

  #endIfAtRest(): boolean {
    if (this.#endAtRest === undefined || this.#queue.length > 0 || this.status !== 'I' || this.#requests.unsynced) return false;
    this.end(this.#endAtRest);
    return true;
  }

  /** Ends the session when what was asked before has been answered; like one whose client has closed its side, in good time. */
  #endAfterReplies(end: RelayEnd): void {
    this.#lastWords = end;
    this.halfClosed = true;
    if (this.#queue.length === 0) this.#end(end);
  }

  #end(end: RelayEnd): void {
    if (this.#over) return;
    this.#over = true;
    this.#toClient.flush();
    this.#finish(end);
  }

  /** An idle backend goes back, cleaned of what the session left; one that is busy, or in a transaction, is told to stop and dropped. */
  async #giveBack(): Promise<void> {
    const lease = this.#lease;
    if (lease === undefined) return;
    this.#lease = undefined;
    lease.backend.detach();
    const idle = this.#queue.length === 0 && this.status === 'I' && !this.#requests.unsynced && this.#fromClient.last;
    if (this.#canceling !== undefined) await this.#canceling;
    if (idle && this.pins.indelible) return lease.destroy();
    if (idle) return lease.release(!this.pins.holdsState);
    if (this.#disobeyed) return lease.terminate();
    await lease.cancel();
    lease.destroy();
  }
}

/** Errors that end the session rather than the request that met them. */
function isFinal({ kind }: ServiceError): boolean {
  return kind === 'shutting_down' || kind === 'key_revoked' || kind === 'organization_suspended';
}
