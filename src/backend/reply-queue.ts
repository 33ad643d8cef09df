import { BackendType } from '../protocol/backend.ts';
import { Disposition, PendingReplies, type ReplyDisposition, Request, type RequestKind } from './pending-replies.ts';

/** Notified of the queue's decisions. */
export interface ReplyListener {
  /** The reply to a simulated request is due now: after all earlier replies, before all later ones. */
  simulate(request: RequestKind): void;
  /** The reply to a request is complete. */
  done(request: RequestKind, subject: unknown): void;
  /** A request failed, or was discarded because an earlier one failed. Called for the last request first. */
  dropped(request: RequestKind, subject: unknown, failed: boolean): void;
}

/**
 * The replies that a backend still has to send, in the order of the requests. After an error the backend discards
 * all messages up to the next Sync, even a Query, and the queue does the same.
 * @see https://www.postgresql.org/docs/current/protocol-flow.html#PROTOCOL-FLOW-PIPELINING
 */
export class ReplyQueue {
  readonly #listener: ReplyListener;
  readonly #owed = new PendingReplies();
  /* Only this class sets these. */
  /** The number of the batch that the next message belongs to; a Sync, Query or FunctionCall of the client ends a batch. */
  batch = 0;
  /** The number of the oldest batch that has not been answered completely. */
  oldestBatch = 0;
  /** The backend discards all messages up to the next Sync: an error came and the Sync that ends its effect has not been sent yet. */
  discarding = false;
  /** The backend is in COPY-in mode and ignores Sync. */
  copyIn = false;
  /**
   * A COPY has failed. The backend does not tell whether it had ignored a Sync before that, so it may send one more ReadyForQuery
   * than expected. That one precedes the answer to Postern's next request.
   */
  copyAmbiguous = false;
  /**
   * That Sync may also have ended the discarding after the error. Then messages between it and the next Sync may be
   * answered or discarded, so it is no longer known which request an answer belongs to.
   */
  isUnclear = false;
  /** No request with a lower number, counted from the first ever sent, ends the batch being answered. */
  #noEndBefore = 0;
  /** It has ignored a Sync after an Execute, so another is needed after the data. */
  #ignoredSync = false;
  /** A Sync is presumed to have been ignored by the COPY that is being answered. */
  #presumedIgnoredSync = false;
  /** The Query that is being answered has failed: the next ReadyForQuery is its own. */
  #queryFailed = false;
  /**
   * A Query has failed inside a transaction that has not ended. Its unnamed portal still exists, but without its plan.
   * Reset by the caller that sees the transaction end.
   */
  danglingPortal = false;

  constructor(listener: ReplyListener) {
    this.#listener = listener;
  }

  get length(): number {
    return this.#owed.length;
  }

  /** Whether the backend needs a Sync first, even if no reply is owed, because its implicit transaction is still open. */
  get awaitsSync(): boolean {
    return this.discarding || this.#ignoredSync || this.isUnclear;
  }

  /** Whether the reply being received is to a request of Postern's own. */
  get skipping(): boolean {
    return this.#owed.length > 0 && this.#owed.firstDisposition === Disposition.skip;
  }

  /** Only Postern's own requests are unanswered, and no client's request waits for them. */
  get onlyOurs(): boolean {
    const { length, ours } = this.#owed;
    return ours === length && (length === 0 || !isAwaited(this.#owed.subject(length - 1)));
  }

  /** Whether all owed replies belong to one batch, which prepares and closes nothing for the client. */
  get isShareable(): boolean {
    const owed = this.#owed;
    for (let i = 0; i < owed.length; i += 1) {
      const kind = owed.kind(i);
      if (owed.disposition(i) === Disposition.skip || kind === Request.copyEnd || kind === Request.call) return false;
      if ((kind === Request.parse || kind === Request.close) && owed.disposition(i) === Disposition.forward) return false;
      if (isEnd(kind)) return i === owed.length - 1 && owed.subject(i) === undefined;
    }
    return false;
  }

  /** Whether the reply to a Query is owed. */
  get owesQuery(): boolean {
    return this.#owed.queries > 0;
  }

  /** The subjects of unanswered requests of these kinds, in order. */
  *subjectsOf(kinds: ReadonlySet<RequestKind>): Generator<unknown> {
    for (let i = 0; i < this.#owed.length; i += 1) if (kinds.has(this.#owed.kind(i))) yield this.#owed.subject(i);
  }

  /** The subject of the request being answered. */
  get subject(): unknown {
    return this.#owed.length === 0 ? undefined : this.#owed.subject(0);
  }

  /** Whether a Query of Postern's own is being answered, and not a message added to a client's batch. */
  get answeringOurs(): boolean {
    return this.skipping && this.#owed.firstKind === Request.query;
  }

  /** The subject of the Sync, Query or FunctionCall that ends the batch being answered. */
  get batchSubject(): unknown {
    const end = this.#batchEnd();
    return end === undefined ? undefined : this.#owed.subject(end);
  }

  /** Remembers how far it has searched: a batch may have hundreds of thousands of requests, and each asks for its end. */
  #batchEnd(): number | undefined {
    const owed = this.#owed;
    let index = Math.max(0, this.#noEndBefore - owed.dropped);
    while (index < owed.length && !isEnd(owed.kind(index))) index += 1;
    this.#noEndBefore = owed.dropped + index;
    return index < owed.length ? index : undefined;
  }

  /**
   * Adds a request when it is sent, or would be sent. While the backend discards messages, a request other than Sync is
   * `dropped` at once.
   */
  push(kind: RequestKind, disposition: ReplyDisposition = Disposition.forward, subject?: unknown): void {
    if (kind === Request.sync) {
      if (this.copyIn) {
        this.#ignoredSync ||= this.#owed.length > 0 && this.#owed.firstKind === Request.execute;
        this.#presumedIgnoredSync = true;
        return;
      }
      this.discarding = false;
      this.#ignoredSync = false;
    } else if (this.discarding) {
      this.isUnclear ||= this.copyAmbiguous && kind !== Request.copyEnd;
      this.#listener.dropped(kind, subject, false);
      return;
    } else if (kind === Request.copyEnd && this.copyIn) {
      this.copyIn = false;
      return;
    }
    this.#owed.push(kind, disposition, subject);
    if (endsBatch(kind, disposition)) this.batch += 1;
    if (this.#owed.length === 1) this.#settle();
  }

  /** Drops all owed replies. None has begun, and none will. */
  abandon(): void {
    this.#drop(this.#owed.length);
  }

  /** Whether a message of this type that the backend sends now is forwarded to the client. Called before {@link receive}. */
  forwards(type: number): boolean {
    if (!this.skipping) return true;
    if (type === BackendType.ReadyForQuery && this.copyAmbiguous) return true;
    if (type !== BackendType.ErrorResponse) return false;
    // The client's batch has failed, even if the error is that of a request that Postern added to it.
    const end = this.#batchEnd();
    return end === undefined || this.#owed.disposition(end) !== Disposition.skip;
  }

  /**
   * Processes a backend message by its type byte, after it has been forwarded: simulated replies that are due after it are
   * made now. Asynchronous messages (NoticeResponse, ParameterStatus, NotificationResponse) change nothing.
   */
  receive(type: number): void {
    if (this.#owed.length === 0) {
      if (type === BackendType.ReadyForQuery) this.#synced();
      return;
    }
    const kind = this.#owed.firstKind;
    // Any other message answers a request that was sent after the doubtful Sync.
    if (type !== BackendType.ReadyForQuery) this.copyAmbiguous = false;
    switch (type) {
      case BackendType.ErrorResponse:
        this.copyAmbiguous = this.#presumedIgnoredSync;
        this.#presumedIgnoredSync = false;
        this.copyIn = false;
        if (kind === Request.query) {
          this.danglingPortal = true;
          this.#queryFailed = true;
        }
        if (!isEnd(kind)) this.#failed();
        return;
      case BackendType.ReadyForQuery:
        this.copyIn = false;
        // A Query has other replies before ReadyForQuery, so this one answers a Sync that was not ignored.
        if (isEnd(kind) && (kind === Request.sync || this.#queryFailed || !this.copyAmbiguous)) this.#pop();
        this.#queryFailed = false;
        return;
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
        this.#presumedIgnoredSync = false;
        if (kind === Request.execute) this.#pop();
        return;
      default:
    }
  }

  /** The presumably ignored Sync was not ignored: the COPY had failed before it read any data. */
  #synced(): void {
    this.discarding = false;
    this.#ignoredSync = false;
  }

  #pop(): void {
    const kind = this.#owed.firstKind;
    const subject = this.#owed.subject(0);
    this.#advance();
    this.#listener.done(kind, subject);
    this.#settle();
  }

  #advance(): void {
    if (endsBatch(this.#owed.firstKind, this.#owed.firstDisposition)) this.oldestBatch += 1;
    this.#owed.drop(1);
  }

  /** Answers simulated requests at the head of the queue, and removes requests that have no reply. */
  #settle(): void {
    while (this.#owed.length > 0) {
      const kind = this.#owed.firstKind;
      if (this.#owed.firstDisposition === Disposition.simulate) {
        const subject = this.#owed.subject(0);
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
    while (failed < this.#owed.length && this.#owed.kind(failed) !== Request.sync) {
      this.isUnclear ||= this.copyAmbiguous && failed > 0 && this.#owed.kind(failed) !== Request.copyEnd;
      failed += 1;
    }
    this.#drop(failed, true);
    this.discarding = this.#owed.length === 0;
  }

  /** @param firstFailed whether the first of them has failed itself */
  #drop(count: number, firstFailed = false): void {
    const owed = this.#owed;
    for (let i = count - 1; i >= 0; i -= 1) {
      if (endsBatch(owed.kind(i), owed.disposition(i))) this.oldestBatch += 1;
      this.#listener.dropped(owed.kind(i), owed.subject(i), firstFailed && i === 0);
    }
    owed.drop(count);
  }

  /**
   * In COPY-in mode the backend ignores the Syncs between the COPY and the end of its data. The first CopyDone or CopyFail ends
   * this COPY only, as a Query may contain another; if another request comes first, this COPY fails.
   */
  #copyStarted(): void {
    let isOver = false;
    this.#owed.filter((i) => {
      const kind = this.#owed.kind(i);
      if (i === 0) return true;
      if (kind !== Request.sync) {
        const isEndOfData = !isOver && kind === Request.copyEnd;
        isOver = true;
        return !isEndOfData;
      }
      this.#ignoredSync = !isOver && this.#owed.firstKind === Request.execute;
      if (isOver) return true;
      this.#presumedIgnoredSync = true;
      if (endsBatch(kind, this.#owed.disposition(i))) this.oldestBatch += 1;
      return false;
    });
    this.#noEndBefore = 0;
    this.copyIn = !isOver;
  }
}

function endsBatch(kind: RequestKind, disposition: ReplyDisposition): boolean {
  return isEnd(kind) && disposition !== Disposition.skip;
}

/** Whether a client's request waits for the answer to Postern's own request with this subject. */
function isAwaited(subject: unknown): boolean {
  return (subject as { readonly isAwaited?: boolean } | undefined)?.isAwaited === true;
}

/** Whether ReadyForQuery ends the reply to this request. */
function isEnd(kind: number | undefined): boolean {
  return kind === Request.sync || kind === Request.query || kind === Request.call;
}
