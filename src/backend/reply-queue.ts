import type { Counted } from '../catalog/statement-counters.ts';
import { BackendType } from '../protocol/backend.ts';

/** Notified of the queue's decisions. */
export interface ReplyListener {
  /** The reply to a simulated request is due now: after all earlier replies, before all later ones. */
  simulate(request: RequestKind): void;
  /** The reply to a request is complete. */
  done(request: RequestKind, subject: unknown): void;
  /** A request failed, or was discarded because an earlier one failed. Called for the last request first. */
  dropped(request: RequestKind, subject: unknown, failed: boolean): void;
}

/** A power of two. Most clients send fewer requests at once. */
/** Enough for a Query; most clients are idle. */
const INITIAL_CAPACITY = 4;
/** A request's kind and disposition are stored as one small number. */
const KIND_BITS = 4;
const KIND_MASK = (1 << KIND_BITS) - 1;

/**
 * The replies that a backend still has to send, in the order of the requests, each with the subject that was given with it. After
 * an error the backend discards all messages up to the next Sync, even a Query, and the queue does the same.
 * @see https://www.postgresql.org/docs/current/protocol-flow.html#PROTOCOL-FLOW-PIPELINING
 */
export class ReplyQueue {
  readonly #listener: ReplyListener;
  /* Only this class sets these. */
  /** The number of replies that are owed. */
  length = 0;
  /** Whether the reply being received is to a request of Postern's own. */
  skipping = false;
  /** The number of the batch that the next message belongs to; a Sync, Query or FunctionCall of the client ends a batch. */
  batch = 0;
  /** The number of the oldest batch that has not been answered completely. */
  oldestBatch = 0;
  /**
   * Why the backend needs a Sync first, even if no reply is owed: its implicit transaction is still open.
   *
   * - `ignored`: it has ignored one after an Execute, in COPY-in mode, so another is needed after the data;
   * - `discarding`: an error came, and it discards all messages up to the next Sync, which has not been sent yet;
   * - `unclear`: as `discarding`, but a Sync that it may have ignored may also have ended the discarding. So it is no longer known
   *   which request an answer belongs to.
   */
  missingSync: 'none' | 'ignored' | 'discarding' | 'unclear' = 'none';
  /** The backend is in COPY-in mode and ignores Sync. */
  copyIn = false;
  /**
   * What is known of a Sync that was sent during a COPY. It is presumed to be `ignored` by the COPY that is being answered. If that
   * fails, it is `ambiguous`: the backend does not tell whether it had ignored it before, so it may send one more ReadyForQuery than
   * expected. That one precedes the answer to Postern's next request.
   */
  syncInCopy: 'none' | 'ignored' | 'ambiguous' = 'none';
  /**
   * A Query has failed. Until it is `answered`, the next ReadyForQuery is its own. After that it is inside a transaction that has
   * not ended, where its unnamed portal still exists, but without its plan. Reset by the caller that sees the transaction end.
   */
  failedQuery: 'none' | 'unanswered' | 'answered' = 'none';
  /** Of the first request; not to be used while there is none. Most questions are about it. */
  #firstKind: RequestKind = Request.sync;
  /** How many of the requests are Query messages. */
  #queries = 0;
  /** How many of the first requests do not end the batch being answered, as far as it has been searched. */
  #noEndBefore = 0;
  /** Where the first request is in the ring buffers. */
  #head = 0;
  #requests: number[] = new Array(INITIAL_CAPACITY).fill(0);
  #subjects: unknown[] = new Array(INITIAL_CAPACITY).fill(undefined);
  /** Those of requests that have been removed stay until others take their places. */
  #counted: (Counted | undefined)[] = new Array(INITIAL_CAPACITY).fill(undefined);

  constructor(listener: ReplyListener) {
    this.#listener = listener;
  }

  /** Only Postern's own requests are unanswered, and no client's request waits for them. */
  get onlyOurs(): boolean {
    for (let i = 0; i < this.length; i += 1) if (this.#disposition(i) !== Disposition.skip) return false;
    return this.length === 0 || !isAwaited(this.#subject(this.length - 1));
  }

  /** Whether all owed replies belong to one batch, which prepares and closes nothing for the client. */
  get isShareable(): boolean {
    for (let i = 0; i < this.length; i += 1) {
      const kind = this.#kind(i);
      if (this.#disposition(i) === Disposition.skip || kind === Request.copyEnd || kind === Request.call) return false;
      if ((kind === Request.parse || kind === Request.close) && this.#disposition(i) === Disposition.forward) return false;
      if (isEnd(kind)) return i === this.length - 1 && this.#subject(i) === undefined;
    }
    return false;
  }

  /** Whether the reply to a Query is owed. */
  get owesQuery(): boolean {
    return this.#queries > 0;
  }

  /** The subjects of unanswered requests of these kinds, in order. */
  *subjectsOf(kinds: ReadonlySet<RequestKind>): Generator<unknown> {
    for (let i = 0; i < this.length; i += 1) if (kinds.has(this.#kind(i))) yield this.#subject(i);
  }

  /** The subject of the request being answered. */
  get subject(): unknown {
    return this.length === 0 ? undefined : this.#subject(0);
  }

  /** The statements of the request being answered. */
  get counted(): Counted | undefined {
    return this.length === 0 ? undefined : this.#counted[this.#head];
  }

  /** The statements of the request that fails if an error comes now: the first, up to the next Sync, that has any. */
  get countedNext(): Counted | undefined {
    for (let i = 0; i < this.length && this.#kind(i) !== Request.sync; i += 1) {
      const counted = this.#counted[this.#at(i)];
      if (counted !== undefined) return counted;
    }
    return undefined;
  }

  /** The request that is answered next. */
  get kind(): RequestKind | undefined {
    return this.length === 0 ? undefined : this.#firstKind;
  }

  /** Whether a Query of Postern's own is being answered, and not a message added to a client's batch. */
  get answeringOurs(): boolean {
    return this.skipping && this.#firstKind === Request.query;
  }

  /** The subject of the Sync, Query or FunctionCall that ends the batch being answered. */
  get batchSubject(): unknown {
    const end = this.#batchEnd();
    return end < this.length ? this.#subject(end) : undefined;
  }

  /**
   * Remembers how far it has searched: a batch may have hundreds of thousands of requests, and each asks for its end.
   * @returns `length` if the end has not been sent
   */
  #batchEnd(): number {
    while (this.#noEndBefore < this.length && !isEnd(this.#kind(this.#noEndBefore))) this.#noEndBefore += 1;
    return this.#noEndBefore;
  }

  /**
   * Adds a request when it is sent, or would be sent. While the backend discards messages, a request other than Sync is
   * `dropped` at once.
   * @param counted its statements, if their runs are counted
   */
  push(kind: RequestKind, disposition: ReplyDisposition = Disposition.forward, subject?: unknown, counted?: Counted): void {
    if (kind === Request.sync) {
      if (this.copyIn) {
        if (this.#firstKind === Request.execute) this.#syncIs('ignored');
        this.syncInCopy = 'ignored';
        return;
      }
      this.#syncIs('none');
    } else if (this.missingSync === 'discarding' || this.missingSync === 'unclear') {
      if (this.syncInCopy === 'ambiguous' && kind !== Request.copyEnd) this.#syncIs('unclear');
      this.#listener.dropped(kind, subject, false);
      return;
    } else if (kind === Request.copyEnd && this.copyIn) {
      this.copyIn = false;
      return;
    }
    this.#add(kind, disposition, subject, counted);
    if (this.length === 1) this.#settle();
  }

  /** What is unclear remains so. */
  #syncIs(missing: typeof this.missingSync): void {
    if (this.missingSync !== 'unclear') this.missingSync = missing;
  }

  /** Drops all owed replies. None has begun, and none will. */
  abandon(): void {
    this.#drop(this.length);
  }

  /** Whether a message of this type that the backend sends now is forwarded to the client. Called before {@link receive}. */
  forwards(type: number): boolean {
    if (!this.skipping) return true;
    if (type === BackendType.ReadyForQuery && this.syncInCopy === 'ambiguous') return true;
    if (type !== BackendType.ErrorResponse) return false;
    // The client's batch has failed, even if the error is that of a request that Postern added to it.
    const end = this.#batchEnd();
    return end === this.length || this.#disposition(end) !== Disposition.skip;
  }

  /**
   * Processes a backend message by its type byte, after it has been forwarded: simulated replies that are due after it are
   * made now. Asynchronous messages (NoticeResponse, ParameterStatus, NotificationResponse) change nothing.
   */
  receive(type: number): void {
    if (this.length === 0) {
      // The Sync that was presumed to be ignored was not: the COPY had failed before it read any data.
      if (type === BackendType.ReadyForQuery) this.#syncIs('none');
      return;
    }
    const kind = this.#firstKind;
    // Any other message answers a request that was sent after the doubtful Sync.
    if (type !== BackendType.ReadyForQuery && this.syncInCopy === 'ambiguous') this.syncInCopy = 'none';
    switch (type) {
      case BackendType.ErrorResponse:
        if (this.syncInCopy === 'ignored') this.syncInCopy = 'ambiguous';
        this.copyIn = false;
        if (kind === Request.query) this.failedQuery = 'unanswered';
        if (!isEnd(kind)) this.#failed();
        return;
      case BackendType.ReadyForQuery: {
        this.copyIn = false;
        // A Query has other replies before ReadyForQuery, so this one answers a Sync that was not ignored.
        const isOwn = kind === Request.sync || this.failedQuery === 'unanswered' || this.syncInCopy !== 'ambiguous';
        if (this.failedQuery === 'unanswered') this.failedQuery = 'answered';
        if (isEnd(kind) && isOwn) this.#pop();
        return;
      }
      case BackendType.CopyInResponse:
        this.#copyStarted();
        return;
      case BackendType.ParseComplete:
      case BackendType.BindComplete:
      case BackendType.CloseComplete:
      case BackendType.NoData:
        this.#pop();
        return;
      case BackendType.RowDescription:
        if (kind === Request.describe) this.#pop();
        return;
      case BackendType.CommandComplete:
      case BackendType.EmptyQueryResponse:
      case BackendType.PortalSuspended:
        this.copyIn = false;
        this.syncInCopy = 'none';
        if (kind === Request.execute) this.#pop();
        return;
      default:
    }
  }

  #pop(): void {
    const kind = this.#firstKind;
    const subject = this.#subject(0);
    this.#advance();
    this.#listener.done(kind, subject);
    this.#settle();
  }

  #advance(): void {
    if (this.#endsBatch(0)) this.oldestBatch += 1;
    this.#remove(1);
  }

  /** Answers simulated requests at the head of the queue, and removes requests that have no reply. */
  #settle(): void {
    while (this.length > 0) {
      const kind = this.#firstKind;
      if (this.#disposition(0) === Disposition.simulate) {
        const subject = this.#subject(0);
        this.#advance();
        this.#listener.simulate(kind);
        this.#listener.done(kind, subject);
      } else if (kind === Request.copyEnd) this.#advance();
      else return;
    }
  }

  /** The backend discards messages up to the next Sync. So does the queue; if none has been sent yet, it waits for it. */
  #failed(): void {
    let failed = 0;
    while (failed < this.length && this.#kind(failed) !== Request.sync) {
      if (this.syncInCopy === 'ambiguous' && failed > 0 && this.#kind(failed) !== Request.copyEnd) this.#syncIs('unclear');
      failed += 1;
    }
    this.#drop(failed, true);
    this.#syncIs(this.length === 0 ? 'discarding' : 'none');
  }

  /** @param firstFailed whether the first of them has failed itself */
  #drop(count: number, firstFailed = false): void {
    for (let i = count - 1; i >= 0; i -= 1) {
      if (this.#endsBatch(i)) this.oldestBatch += 1;
      this.#listener.dropped(this.#kind(i), this.#subject(i), firstFailed && i === 0);
    }
    this.#remove(count);
  }

  /**
   * In COPY-in mode the backend ignores the Syncs between the COPY and the end of its data. The first CopyDone or CopyFail ends
   * this COPY only, as a Query may contain another; if another request comes first, this COPY fails.
   */
  #copyStarted(): void {
    let isOver = false;
    let kept = 1;
    for (let i = 1; i < this.length; i += 1) {
      const kind = this.#kind(i);
      const isIgnored = !isOver && (kind === Request.sync || kind === Request.copyEnd);
      if (kind === Request.sync) this.#syncIs(isIgnored && this.#firstKind === Request.execute ? 'ignored' : 'none');
      else isOver = true;
      if (!isIgnored) {
        this.#requests[this.#at(kept)] = this.#requests[this.#at(i)] ?? 0;
        this.#subjects[this.#at(kept)] = this.#subject(i);
        this.#counted[this.#at(kept)] = this.#counted[this.#at(i)];
        kept += 1;
      } else if (kind === Request.sync) {
        this.syncInCopy = 'ignored';
        if (this.#endsBatch(i)) this.oldestBatch += 1;
      }
    }
    for (let i = kept; i < this.length; i += 1) this.#subjects[this.#at(i)] = undefined;
    this.length = kept;
    this.#noEndBefore = 0;
    this.copyIn = !isOver;
  }

  #at(index: number): number {
    return (this.#head + index) & (this.#requests.length - 1);
  }

  /** @param index below `length`; so for the other methods */
  #kind(index: number): RequestKind {
    return ((this.#requests[this.#at(index)] ?? 0) & KIND_MASK) as RequestKind;
  }

  #disposition(index: number): ReplyDisposition {
    return ((this.#requests[this.#at(index)] ?? 0) >> KIND_BITS) as ReplyDisposition;
  }

  #subject(index: number): unknown {
    return this.#subjects[this.#at(index)];
  }

  #endsBatch(index: number): boolean {
    return isEnd(this.#kind(index)) && this.#disposition(index) !== Disposition.skip;
  }

  #add(kind: RequestKind, disposition: ReplyDisposition, subject: unknown, counted: Counted | undefined): void {
    if (this.length === this.#requests.length) this.#grow();
    const at = this.#at(this.length);
    this.#requests[at] = kind | (disposition << KIND_BITS);
    this.#subjects[at] = subject;
    this.#counted[at] = counted;
    this.length += 1;
    if (this.length === 1) this.#firstChanged();
    if (kind === Request.query) this.#queries += 1;
    if (this.#endsBatch(this.length - 1)) this.batch += 1;
  }

  /** Removes requests from the beginning. */
  #remove(count: number): void {
    for (let i = 0; i < count; i += 1) {
      if (this.#kind(i) === Request.query) this.#queries -= 1;
      this.#subjects[this.#at(i)] = undefined;
    }
    this.#head = this.#at(count);
    this.length -= count;
    this.#noEndBefore = Math.max(0, this.#noEndBefore - count);
    this.#firstChanged();
  }

  #firstChanged(): void {
    this.#firstKind = this.#kind(0);
    this.skipping = this.length > 0 && this.#disposition(0) === Disposition.skip;
  }

  /** The ring is full. */
  #grow(): void {
    this.#requests = this.#doubled(this.#requests, 0);
    this.#subjects = this.#doubled(this.#subjects, undefined);
    this.#counted = this.#doubled(this.#counted, undefined);
    this.#head = 0;
  }

  /** @returns the ring from its head on. An array that grows by itself would take three times as much memory */
  #doubled<T>(ring: readonly T[], nothing: T): T[] {
    const doubled = new Array<T>(2 * ring.length).fill(nothing);
    for (let i = 0; i < ring.length; i += 1) doubled[i] = ring[(this.#head + i) % ring.length] as T;
    return doubled;
  }
}

/** Whether ReadyForQuery ends the reply to this request. */
function isEnd(kind: RequestKind): boolean {
  return kind === Request.sync || kind === Request.query || kind === Request.call;
}

/** Whether a client's request waits for the answer to Postern's own request with this subject. */
function isAwaited(subject: unknown): boolean {
  return (subject as { readonly isAwaited?: boolean } | undefined)?.isAwaited === true;
}

/** Requests that a backend replies to, by frontend message. */
export const Request = { parse: 0, bind: 1, describe: 2, execute: 3, close: 4, sync: 5, query: 6, call: 7, copyEnd: 8 } as const;
export type RequestKind = (typeof Request)[keyof typeof Request];

/**
 * What becomes of a request's reply: the client gets it (`forward`); it is dropped, because the request was Postern's own (`skip`);
 * or the request is not sent, and Postern makes the reply (`simulate`).
 */
export const Disposition = { forward: 0, skip: 1, simulate: 2 } as const;
type ReplyDisposition = (typeof Disposition)[keyof typeof Disposition];
