import type { Duplex } from 'node:stream';
import type { BackendConnection, BackendReceiver } from '../src/backend/connection.ts';
import type { ReplyQueue } from '../src/backend/reply-queue.ts';
import { ServiceError } from '../src/errors.ts';
import type { ErrorFields, TransactionStatus } from '../src/protocol/backend.ts';
import { FrameScanner, frontendFrames } from '../src/protocol/frame.ts';
import { FrontendType } from '../src/protocol/frontend.ts';
import type { Lease } from '../src/router/lease.ts';
import { NO_WAIT, type Wait } from '../src/router/router.ts';
import { LARGE_SQL_BYTES } from '../src/router/search-path/rewrite.ts';
import { Backendless } from './backendless.ts';
import { ClientStatements } from './client-statements.ts';
import type { ClientReceiver } from './connection.ts';
import { Ending } from './ending.ts';
import { errorResponse } from './errors.ts';
import { InFlight, suits } from './in-flight.ts';
import { HIGH_WATER_BYTES, MAX_REWRITTEN_BYTES } from './limits.ts';
import { rewrittenMessage } from './messages.ts';
import type { Pins } from './pins.ts';
import type { RelayEnd, RelayHost } from './relay-host.ts';
import { isCanceled, isStalePlan, Replies } from './replies.ts';
import { Requests } from './requests.ts';
import { Run } from './run.ts';
import type { SharedPipeline } from './shared-pipeline.ts';
import type { Company, Sharer, Waiting } from './sharing.ts';
import { StatementEffects } from './statement-effects.ts';
import { StatementWatch } from './statement-watch.ts';
import { Tenure } from './tenure.ts';

const MAX_KEPT_DEFINITION_BYTES = 1_048_576;
/** Longest names that are looked at: Postgres takes 63 bytes of an SQL name, but protocol names have no limit. */
const MAX_NAMES_BYTES = 65_536;
const MAX_KEPT_BACK_BYTES = 65_536;
const FRONTEND = frontendFrames({ Q: 65_536, P: MAX_KEPT_DEFINITION_BYTES, B: MAX_NAMES_BYTES, D: MAX_NAMES_BYTES, C: MAX_NAMES_BYTES });
/** Where texts are rewritten, they have to be held whole. */
const FRONTEND_REWRITTEN = frontendFrames({
  Q: MAX_REWRITTEN_BYTES,
  P: MAX_REWRITTEN_BYTES,
  B: MAX_NAMES_BYTES,
  D: MAX_NAMES_BYTES,
  C: MAX_NAMES_BYTES,
});

/**
 * One client's conversation, carried on over whatever backend it has at the moment. A backend is borrowed for a
 * transaction, and kept while the session holds state that outlives one. Bodies go through untouched; the side whose peer
 * cannot take more is not read until it can.
 */
export class Relay implements BackendReceiver, ClientReceiver, Waiting {
  /** Among those who are watched. */
  place = -1;
  /** When the client last took bytes off our hands. */
  lastTakenAt = performance.now();
  readonly #client: Duplex;
  readonly #host: RelayHost;
  readonly #pins: Pins;
  readonly #replies: Replies;
  readonly #queue: ReplyQueue;
  readonly #requests: Requests;
  readonly #tenure: Tenure;
  readonly #toClient: Run;
  readonly #inFlight: InFlight;
  /** A request that is not to share a backend with others: it has held them up, or has been hit by what was meant for one. */
  #alone = false;
  /** What has come behind a request that shares a backend, for after its answer. */
  #held: Buffer[] | undefined;
  #fromClient: FrameScanner;
  /** Bytes that wait for a backend, and what ends the wait. */
  #waiting: { readonly bytes: Buffer[]; readonly wait: Wait } | undefined;
  readonly #backendless: Backendless;
  #bytesIn = 0;
  readonly #ending: Ending;

  constructor(client: Duplex, host: RelayHost, pins: Pins, parameters: ReadonlyMap<string, string>) {
    this.#client = client;
    this.#toClient = new Run(client);
    this.#host = host;
    this.#pins = pins;
    this.#fromClient = this.#newScanner();
    const statements = new ClientStatements();
    const watch = new StatementWatch((batch) => host.watched(batch));
    this.#replies = new Replies({
      host,
      pins,
      watch,
      parameters,
      statements,
      toClient: this.#toClient,
      backend: () => this.#tenure.backend?.session,
      notRestored: (error) => this.end(error),
      canRunAgain: (error) => this.#canRunAgain(error),
    });
    this.#queue = this.#replies.queue;
    this.#tenure = new Tenure({
      host,
      pins,
      queue: this.#queue,
      receiver: this,
      errandSince: (company) => this.#errandSince(company),
      canRunAgain: () => this.#inFlight.isUntold,
      turnBegins: (now) => this.#inFlight.turnBegins(now),
      runElsewhere: (isCanceled) => this.#runElsewhere(isCanceled),
    });
    const effects = new StatementEffects(host, pins, this.#replies, this.#tenure, (backend, alone) =>
      this.#requests.materialize(backend, alone),
    );
    this.#requests = new Requests(statements, host, this.#queue, watch, effects, this.#tenure.out);
    this.#backendless = new Backendless(this.#requests, this.#toClient);
    this.#inFlight = new InFlight(this.#requests, this.#replies, this.#toClient, host.sharing);
    this.#ending = new Ending({
      host,
      replies: this.#replies,
      toClient: this.#toClient,
      isAtRest: () => this.#isAtRest,
      giveBack: (disobeyed) => this.#giveBack(disobeyed),
    });
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
    return this.#tenure.isBehind ? undefined : this.#tenure.lease;
  }

  /** What a backend sends is written to the client at once, and only what the kernel has not taken is needed longer. */
  get holdsChunk(): boolean {
    return this.#client.writableLength > 0 || this.#toClient.bytes > 0;
  }

  /** Bytes that the client has not taken yet. */
  get unsent(): number {
    return this.#client.writableLength;
  }

  /** The client has closed its sending side and may still be reading. */
  get halfClosed(): boolean {
    return this.#ending.halfClosed;
  }

  /** As {@link Ending.byError}. */
  end(error: ServiceError): void {
    this.#ending.byError(error);
  }

  /** As {@link Ending.byForce}. */
  terminate(error: ServiceError): void {
    this.#ending.byForce(error);
  }

  /** As {@link Ending.atRest}. */
  endAtRest(error: ServiceError): void {
    this.#ending.atRest(error);
  }

  /** As {@link Ending.abandon}. */
  abandon(): void {
    this.#ending.abandon();
  }

  /** Cancels what the client is waiting for, be it an answer or a backend. Resolves when the server has taken the request. */
  async cancel(): Promise<void> {
    if (this.#waiting !== undefined) {
      this.#waiting.wait.giveUp();
      return;
    }
    await this.#tenure.cancel();
  }

  clientData(chunk: Buffer): void {
    if (this.#ending.isDeaf) return;
    this.#bytesIn += chunk.length;
    if (this.#tenure.shared !== undefined) this.#held ??= [];
    const later = this.#waiting?.bytes ?? this.#held;
    if (later === undefined) {
      this.#process(chunk);
      return;
    }
    later.push(chunk);
    // Most clients say nothing more until they are answered: only the one that goes on is not listened to for a while.
    this.#client.pause();
  }

  #process(chunk: Buffer): void {
    const scanner = this.#fromClient;
    const wasIdle = this.#queue.length === 0;
    const endsBefore = wasIdle && this.status === 'I' && !scanner.midMessage ? this.#requests.counts.ends : -1;
    this.#requests.begin();
    try {
      scanner.push(chunk);
      while (scanner.next()) {
        if (scanner.type === FrontendType.Terminate) {
          // In the middle of COPY data Postgres takes it for an error, and says so.
          if (this.#queue.copyIn) this.#tenure.out.add(scanner.buffer, scanner.start, scanner.end);
          this.#tenure.out.flush();
          this.#ending.afterReplies({ reason: 'terminated' });
          return;
        }
        if (this.#isLargeText(scanner)) {
          this.#rewriteLarge(scanner);
          break;
        }
        const { backend } = this.#tenure;
        if (backend !== undefined) this.#forward(scanner, backend);
        else if (!this.#backendless.answer(scanner) && !this.#attachFor(scanner, endsBefore >= 0 ? chunk : undefined)) break;
      }
    } catch (error) {
      this.#tenure.out.flush();
      const told = error instanceof ServiceError ? error : new ServiceError('internal', 'internal error', { cause: error });
      const end: RelayEnd = { reason: 'protocol_violation', lastWords: errorResponse(told, 'FATAL') };
      // The reply to a COPY would wait for data that cannot be told apart any more.
      if (this.#queue.copyIn) this.#ending.now(end);
      else this.#ending.afterReplies(end);
      return;
    }
    this.#tenure.out.flush();
    if (wasIdle && this.#queue.length > 0) this.#replies.since = performance.now();
    this.#keepInFlight(chunk, endsBefore);
    if (this.#tenure.lease === undefined) this.#toClient.flush();
    else if (this.#queue.length === 0) this.#settle();
    if (this.#backendIsFull) this.#client.pause();
  }

  /** A request that has come alone and whole can be run again, as long as nothing of its answer has gone out. */
  #keepInFlight(chunk: Buffer, endsBefore: number): void {
    const { counts, unsynced } = this.#requests;
    const isOne = endsBefore >= 0 && counts.ends === endsBefore + 1 && !unsynced && this.#fromClient.last;
    if (isOne && this.#queue.length > 0) this.#inFlight.begin(chunk);
    else this.#inFlight.end();
  }

  /**
   * The client knows nothing of what was prepared for it, and is not to hear that it does not fit any more; nor of others
   * that its backend was busy with, and of a cancel request that was meant for one of them.
   */
  #canRunAgain(error: ErrorFields): boolean {
    if (!this.#inFlight.isUntold) return false;
    return (this.#requests.usesRepeated && isStalePlan(error)) || (this.#tenure.isDisturbed && isCanceled(error));
  }

  /** The answer may yet be cut short by a cancel request that was meant for another: the beginning of a short one can wait. */
  get #keepsBack(): boolean {
    return this.#tenure.isDisturbed && this.#inFlight.isUntold && this.#toClient.bytes <= MAX_KEPT_BACK_BYTES;
  }

  #runAgain(): void {
    const { bytes } = this.#inFlight;
    this.#replies.hiding = false;
    if (bytes === undefined) return;
    this.#alone = true;
    this.#process(bytes);
    this.#alone = false;
  }

  /** What was sent ahead is held up where it is. */
  #runElsewhere(isCanceled: boolean): void {
    if (this.#ending.isOver) return;
    this.#queue.abandon();
    // What was answered for the server, and waited for its answers.
    this.#toClient.clear();
    this.#host.shared('set_aside');
    this.#runAgain();
    if (isCanceled) void this.cancel();
    this.#releaseHeld();
  }

  /** Since when a request has been running that others may follow. */
  #errandSince(company: Company): number | undefined {
    return this.#pins.holdsState ? undefined : this.#inFlight.errandSince(company);
  }

  get #backendIsFull(): boolean {
    const { backend } = this.#tenure;
    return backend !== undefined && backend.pendingBytes > HIGH_WATER_BYTES;
  }

  /** A text so long that others would notice its rewriting. */
  #isLargeText({ first, type, length, last }: FrameScanner): boolean {
    if (this.#host.view === undefined || !first || length < LARGE_SQL_BYTES || this.#requests.alreadyPlaced) return false;
    return last && (type === FrontendType.Query || type === FrontendType.Parse);
  }

  /** Takes the message out, rewrites it bit by bit, and goes on with it and what is behind it. */
  #rewriteLarge(scanner: FrameScanner): void {
    const message = Buffer.from(scanner.buffer.subarray(scanner.start, scanner.end));
    const waiting: { readonly bytes: Buffer[]; readonly wait: Wait } = { bytes: [Buffer.from(scanner.takeRest())], wait: NO_WAIT };
    this.#fromClient = this.#newScanner();
    this.#waiting = waiting;
    this.#client.pause();
    rewrittenMessage(message, (sql) => this.#host.view?.rewriteLarge(sql)).then(
      (rewritten) => {
        waiting.bytes.unshift(rewritten);
        if (this.#ending.isOver) return;
        this.#requests.alreadyPlaced = true;
        this.#resumeWith(waiting.bytes);
        this.#requests.alreadyPlaced = false;
      },
      (cause: unknown) => this.end(new ServiceError('internal', 'internal error', { cause })),
    );
  }

  #forward(scanner: FrameScanner, backend: BackendConnection): void {
    this.#requests.forward(scanner, backend);
    this.#tenure.touched();
  }

  /**
   * @param chunk whose beginning may be a request
   * @returns false when the message, and all behind it, has to wait for a backend
   */
  #attachFor(scanner: FrameScanner, chunk: Buffer | undefined): boolean {
    const isFirst = chunk !== undefined && scanner.buffer === chunk && scanner.start === 0;
    const backend =
      (isFirst && this.#host.sharing.isSpread ? this.#tryShare(chunk, 'quick') : undefined) ??
      this.#tenure.tryBegin() ??
      (isFirst ? this.#tryShare(chunk, 'short') : undefined);
    if (backend !== undefined) {
      this.#forward(scanner, backend);
      return true;
    }
    const bytes = [Buffer.concat([scanner.buffer.subarray(scanner.start, scanner.end), scanner.takeRest()])];
    if (!scanner.last) this.#fromClient = this.#newScanner();
    this.#replies.since = performance.now();
    // Until the wait has begun, nothing can be given up: the answer may even be there at once.
    this.#waiting = { bytes, wait: NO_WAIT };
    const wait = this.#host.enqueue((result) => this.#waited(result, bytes));
    if (this.#waiting?.bytes !== bytes) return false;
    this.#waiting = { bytes, wait };
    if (isFirst && !this.#alone && !this.#ending.isOver) this.#host.sharing.wait(this);
    return false;
  }

  /** Others are at work: a request may go behind something of its kind that another client has asked for. */
  #tryShare(chunk: Buffer, company: Company): BackendConnection | undefined {
    const { sharing } = this.#host;
    const now = performance.now();
    sharing.crowded(now);
    if (this.#alone || sharing.depth <= 1 || !this.#host.mayKeepBusy(company === 'quick')) return undefined;
    const errand = this.#requests.shortErrand(chunk, sharing.paces);
    if (errand === undefined || !suits(errand.pace, company)) return undefined;
    const shared = sharing.find(errand, this.#pins.settings, now, company);
    if (shared === undefined) return undefined;
    this.#board(shared);
    return shared.lease.backend;
  }

  join(sharer: Sharer, now: number): boolean {
    const [chunk, ...more] = this.#waiting?.bytes ?? [];
    if (this.#ending.isOver || chunk === undefined || more.length > 0) return false;
    const errand = this.#requests.shortErrand(chunk, this.#host.sharing.paces);
    const shared = errand && sharer.share(errand, this.#pins.settings, now, 'short');
    if (shared === undefined || this.#waiting?.wait.leave() !== true) return false;
    this.#board(shared);
    this.#resumeWith([chunk]);
    return true;
  }

  #board(shared: SharedPipeline): void {
    this.#tenure.board(shared);
    this.#host.shared('shared');
  }

  #waited(result: Lease | ServiceError, bytes: readonly Buffer[]): void {
    this.#host.sharing.stopWaiting(this);
    if (this.#ending.isOver) {
      if (!(result instanceof ServiceError)) void result.release(true);
    } else if (!(result instanceof ServiceError)) {
      this.#tenure.begin(result);
      this.#resumeWithOthers(bytes);
    } else if (isFinal(result)) this.end(result);
    else {
      this.#backendless.refuse(result);
      this.#resumeWith(bytes);
    }
  }

  /** Has those come along that wait for a backend, too. */
  #resumeWithOthers(bytes: readonly Buffer[]): void {
    this.#resumeWith(bytes);
    const since = this.#errandSince('short');
    // They go in the same turn, however long that has been.
    if (!this.#alone && since !== undefined) this.#host.sharing.invite(this.#tenure, since);
  }

  /** Goes on with what had to wait. */
  #resumeWith(waited: readonly Buffer[]): void {
    this.#waiting = undefined;
    for (const bytes of waited) {
      // Waiting may begin again in the middle; the rest then belongs behind it.
      if (this.#nowWaiting !== undefined) this.#nowWaiting.bytes.push(bytes);
      else if (this.#tenure.shared !== undefined && this.#queue.length > 0) this.#hold(bytes);
      else if (!this.#ending.isOver) this.#process(bytes);
    }
    if (this.#client.isPaused() && this.#mayListen && !this.#ending.isOver && !this.#backendIsFull) this.#client.resume();
  }

  #hold(bytes: Buffer): void {
    this.#held ??= [];
    this.#held.push(bytes);
  }

  /** Nothing that the client has said has been put off. */
  get #mayListen(): boolean {
    return this.#waiting === undefined && this.#held === undefined;
  }

  get #nowWaiting(): { readonly bytes: Buffer[] } | undefined {
    return this.#waiting;
  }

  data(chunk: Buffer): void {
    const { shared, isFollowed } = this.#tenure;
    let rest: Buffer | undefined;
    try {
      rest = this.#replies.take(chunk, isFollowed);
    } catch {
      this.closed();
      return;
    }
    this.#tenure.cancelIfWanted();
    if (this.#queue.length === 0) this.#answered();
    else if (!this.#ending.isOver && !this.#keepsBack) this.#toClient.flushPart(!this.#replies.betweenMessages);
    if (this.#client.writableLength === 0) this.lastTakenAt = performance.now();
    else if (this.#client.writableLength > HIGH_WATER_BYTES && !this.#ending.isOver) this.#tenure.backend?.pause();
    if (this.#tenure.shared !== undefined || shared === undefined) return;
    // The chunk may be read into again; the next one's bytes are few.
    if (rest !== undefined && rest.length > 0) shared.deliver(Buffer.from(rest));
    this.#releaseHeld();
  }

  /** All that was asked has been answered. */
  #answered(): void {
    const again = this.#replies.hiding;
    if (!this.#ending.isOver) this.#inFlight.answered(again);
    const { cancelAsked } = this.#tenure;
    // Where there seems to be more to find out, others' backend is not the place for it.
    const passesOn = again || this.#ending.isOver || this.#tenure.isFollowed || this.#pins.holdsState;
    if (this.#tenure.shared !== undefined && passesOn) {
      if (again && !this.#ending.isOver) this.#host.shared('set_aside');
      this.#tenure.passOn();
    }
    if (this.#ending.isOver) return;
    if (again) {
      this.#runAgain();
      // Too late for what was canceled on behalf of others, and meant for what is run now.
      if (cancelAsked) void this.cancel();
    } else if (this.#ending.answered()) return;
    else if (this.#tenure.lease === undefined) this.#passedOn();
    else this.#settle();
  }

  /** The backend is another's already. */
  #passedOn(): void {
    this.#inFlight.end();
    this.#toClient.flush();
    this.#ending.rested();
  }

  #releaseHeld(): void {
    const held = this.#held;
    this.#held = undefined;
    if (held === undefined || this.#ending.isOver) return;
    if (this.#waiting === undefined) this.#resumeWith(held);
    else this.#waiting.bytes.push(...held);
  }

  /** Nothing is owed. Others get the backend before the client gets its answer: they wait for it to work, not to read. */
  #settle(): void {
    this.#settleBackend();
    this.#toClient.flush();
  }

  /** Finds out what the session holds, gives the backend back, or keeps it. */
  #settleBackend(): void {
    if (this.#tenure.lease === undefined || this.#ending.isOver || !this.#isIdle) return;
    if (!this.#tenure.isSettled(() => this.#settle())) return;
    this.#pins.restores = false;
    this.#pins.unsettled = false;
    this.#inFlight.end();
    this.#replies.restored();
    if (this.#ending.rested() || this.#pins.pinned) return;
    this.#tenure.end();
    if (this.#client.isPaused() && this.#waiting === undefined) this.#client.resume();
  }

  /** Nothing is owed, and no transaction is open. */
  get #isAtRest(): boolean {
    return this.#queue.length === 0 && this.status === 'I' && !this.#requests.unsynced;
  }

  /** And nothing has begun. */
  get #isIdle(): boolean {
    return this.#isAtRest && this.#fromClient.last;
  }

  drain(): void {
    if (!this.#ending.isOver && this.#mayListen) this.#client.resume();
  }

  closed(): void {
    this.#tenure.lost();
    this.#ending.backendLost();
  }

  clientDrained(): void {
    this.lastTakenAt = performance.now();
    this.#tenure.backend?.resume();
  }

  clientEnded(): void {
    this.#ending.halfClosed = true;
    if (!this.busy) this.#ending.clientGone();
  }

  clientClosed(): void {
    this.#ending.clientGone();
  }

  async #giveBack(disobeyed: boolean): Promise<void> {
    this.#waiting?.wait.giveUp();
    // What still comes of a shared backend's answer is nobody's.
    this.#replies.hiding = true;
    if (this.#tenure.lease !== undefined) await this.#tenure.giveUp(this.#isIdle, disobeyed);
  }
}

/** Errors that end the session rather than the request that met them. */
function isFinal({ kind }: ServiceError): boolean {
  return kind === 'shutting_down' || kind === 'key_revoked' || kind === 'organization_suspended';
}
