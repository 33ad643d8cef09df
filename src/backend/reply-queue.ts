import { Disposition, PendingReplies, type ReplyDisposition, Request, type RequestKind } from './pending-replies.ts';

const [ERROR, READY, PARSED, BOUND, CLOSED, NO_DATA, ROWS, COMPLETE, EMPTY, SUSPENDED, COPY_IN] = [...'EZ123nTCIsG'].map((letter) =>
  letter.charCodeAt(0),
);

/** Hears what the queue decides. */
export interface ReplyListener {
  /** The reply to a simulated request is due now: after everything before it, before anything after it. */
  simulate(request: RequestKind): void;
  /** A request whose reply is complete. */
  done(request: RequestKind, subject: unknown): void;
  /** A request that failed itself, or was thrown away because one before it had; the last one sent comes first. */
  dropped(request: RequestKind, subject: unknown, failed: boolean): void;
}

/**
 * The replies that a backend owes, in the order of the requests: the only sane state for a pipeline. After an error it
 * knows what the backend throws away, which is everything up to the next Sync, also a Query.
 * @see https://www.postgresql.org/docs/current/protocol-flow.html#PROTOCOL-FLOW-PIPELINING
 */
export class ReplyQueue {
  readonly #listener: ReplyListener;
  readonly #owed = new PendingReplies();
  /** Requests that a Sync, Query or FunctionCall of the client's ends: all that have been sent, and those that are owed. */
  #batches = 0;
  #owedBatches = 0;
  /** Of all requests that there have been, those before it are not the end of the batch being answered. */
  #noEndBefore = 0;
  /** An error came and the Sync that ends its effect has not been sent yet. */
  #discarding = false;
  /** The backend takes COPY data and ignores Sync. */
  #copyIn = false;
  /** It has ignored one behind an Execute, which wants another when the data has been sent. */
  #ignoredSync = false;
  /** A Sync has been taken for ignored by the COPY that is being answered. */
  #presumedIgnoredSync = false;
  #copyAmbiguous = false;
  #isUnclear = false;
  /** The Query that is being answered has failed: the next ReadyForQuery is its own. */
  #queryFailed = false;
  /**
   * A Query has failed inside a transaction that has not ended: its portal is still there, without a name, while its plan
   * is not. Whoever sees the transaction end says so.
   */
  danglingPortal = false;

  constructor(listener: ReplyListener) {
    this.#listener = listener;
  }

  get length(): number {
    return this.#owed.length;
  }

  /** The number of the batch, up to a Sync, Query or FunctionCall of the client's, to which belongs what is sent next. */
  get batch(): number {
    return this.#batches;
  }

  /** The number of the oldest batch that has not been answered to its end. */
  get oldestBatch(): number {
    return this.#batches - this.#owedBatches;
  }

  /** Whether the backend throws away what it is sent, up to the next Sync. */
  get discarding(): boolean {
    return this.#discarding;
  }

  get copyIn(): boolean {
    return this.#copyIn;
  }

  /** Whether the backend needs a Sync before anything else, although nothing may be owed: its transaction is still open. */
  get awaitsSync(): boolean {
    return this.#discarding || this.#ignoredSync || this.#isUnclear;
  }

  /**
   * A COPY has failed: whether before or after it came to a Sync that was sent to it, it does not say, and so there may
   * be a ReadyForQuery more to come than is known of. It stands before the answer to the next request of ours.
   */
  get copyAmbiguous(): boolean {
    return this.#copyAmbiguous;
  }

  /**
   * Such a Sync, in doubt, may also have ended the effect of the error: what has been sent between it and the next one may be
   * answered, or thrown away. From here on nobody knows what an answer belongs to.
   */
  get isUnclear(): boolean {
    return this.#isUnclear;
  }

  /** Whether what is being received now belongs to a request of ours. */
  get skipping(): boolean {
    return this.#owed.length > 0 && this.#owed.fate(0) === Disposition.skip;
  }

  /** Nothing that a client has asked is unanswered, or waits for an answer to us. */
  get onlyOurs(): boolean {
    const { length, ours } = this.#owed;
    return ours === length && (length === 0 || !isAwaited(this.#owed.subject(length - 1)));
  }

  /** Whether all that is owed belongs to one request, which has nothing prepared, closed or set. */
  get isShareable(): boolean {
    const owed = this.#owed;
    for (let i = 0; i < owed.length; i += 1) {
      const kind = owed.kind(i);
      if (owed.fate(i) === Disposition.skip || kind === Request.copyEnd || kind === Request.call) return false;
      if ((kind === Request.parse || kind === Request.close) && owed.fate(i) === Disposition.forward) return false;
      if (isEnd(kind)) return i === owed.length - 1 && owed.subject(i) === undefined;
    }
    return false;
  }

  /** Whether the answer to a Query is still to come. */
  get owesQuery(): boolean {
    return this.#owed.queries > 0;
  }

  /** What was given with requests of these kinds that are still to be answered, in order. */
  *subjectsOf(kinds: ReadonlySet<RequestKind>): Generator<unknown> {
    for (let i = 0; i < this.#owed.length; i += 1) if (kinds.has(this.#owed.kind(i))) yield this.#owed.subject(i);
  }

  /** What was given with the request that is being answered itself. */
  get subject(): unknown {
    return this.#owed.length === 0 ? undefined : this.#owed.subject(0);
  }

  /** Whether a whole request of ours is being answered, rather than one slipped in among the client's. */
  get answeringOurs(): boolean {
    return this.skipping && this.#owed.kind(0) === Request.query;
  }

  /** What was given with the Sync, Query or FunctionCall that ends the batch being answered. */
  get batchSubject(): unknown {
    const end = this.#batchEnd();
    return end === undefined ? undefined : this.#owed.subject(end);
  }

  /** There may be hundreds of thousands before it, and each asks for it. */
  #batchEnd(): number | undefined {
    const owed = this.#owed;
    let index = Math.max(0, this.#noEndBefore - owed.dropped);
    while (index < owed.length && !isEnd(owed.kind(index))) index += 1;
    this.#noEndBefore = owed.dropped + index;
    return index < owed.length ? index : undefined;
  }

  /**
   * Notes a request as it is sent, or would be sent. While the backend discards, anything but a Sync is for nothing, and
   * `dropped` at once.
   */
  push(kind: RequestKind, fate: ReplyDisposition = Disposition.forward, subject?: unknown): void {
    if (kind === Request.sync) {
      if (this.#copyIn) {
        this.#ignoredSync ||= this.#owed.length > 0 && this.#owed.kind(0) === Request.execute;
        this.#presumedIgnoredSync = true;
        return;
      }
      this.#discarding = false;
      this.#ignoredSync = false;
    } else if (this.#discarding) {
      this.#isUnclear ||= this.#copyAmbiguous && kind !== Request.copyEnd;
      this.#listener.dropped(kind, subject, false);
      return;
    } else if (kind === Request.copyEnd && this.#copyIn) {
      this.#copyIn = false;
      return;
    }
    this.#owed.push(kind, fate, subject);
    if (this.#endsBatch(this.#owed.length - 1)) {
      this.#batches += 1;
      this.#owedBatches += 1;
    }
    if (this.#owed.length === 1) this.#settle();
  }

  /** Forgets what is owed: nothing of it has been answered, or will be. */
  abandon(): void {
    this.#drop(this.#owed.length);
  }

  /** Whether the client gets a message of this type that the backend sends now. To be asked before {@link receive}. */
  forwards(type: number): boolean {
    if (!this.skipping) return true;
    if (type === READY && this.#copyAmbiguous) return true;
    if (type !== ERROR) return false;
    // A batch of the client's has failed, whoever's request it was that met the error.
    const end = this.#batchEnd();
    return end === undefined || this.#owed.fate(end) !== Disposition.skip;
  }

  /**
   * Notes a message from the backend by its type byte, after it has been passed on: replies that are due behind it are
   * simulated now. Asynchronous ones (NoticeResponse, ParameterStatus, NotificationResponse) change nothing.
   */
  receive(type: number): void {
    if (this.#owed.length === 0) {
      if (type === READY) this.#synced();
      return;
    }
    const kind = this.#owed.kind(0);
    // Whatever else is answered now was sent behind the Sync in doubt.
    if (type !== READY) this.#copyAmbiguous = false;
    switch (type) {
      case ERROR:
        this.#copyAmbiguous = this.#presumedIgnoredSync;
        this.#presumedIgnoredSync = false;
        this.#copyIn = false;
        if (kind === Request.query) {
          this.danglingPortal = true;
          this.#queryFailed = true;
        }
        if (!isEnd(kind)) this.#failed();
        return;
      case READY:
        this.#copyIn = false;
        // A Query's answer is more than that: this one is the answer to a Sync that was not ignored after all.
        if (isEnd(kind) && (kind === Request.sync || this.#queryFailed || !this.#copyAmbiguous)) this.#pop();
        this.#queryFailed = false;
        return;
      case COPY_IN:
        this.#copyStarted();
        return;
      case PARSED:
      case BOUND:
      case CLOSED:
      case NO_DATA:
        this.#pop();
        return;
      case ROWS:
        if (kind === Request.describe) this.#pop();
        return;
      case COMPLETE:
      case EMPTY:
      case SUSPENDED:
        this.#copyIn = false;
        this.#presumedIgnoredSync = false;
        if (kind === Request.execute) this.#pop();
        return;
      default:
    }
  }

  /** A Sync that seemed to be ignored has not been: the COPY had failed before it came to its data. */
  #synced(): void {
    this.#discarding = false;
    this.#ignoredSync = false;
  }

  #pop(): void {
    const kind = this.#owed.kind(0);
    const subject = this.#owed.subject(0);
    this.#advance();
    this.#listener.done(kind, subject);
    this.#settle();
  }

  #advance(): void {
    if (this.#endsBatch(0)) this.#owedBatches -= 1;
    this.#owed.drop(1);
  }

  /** Answers simulated requests that have come to the head, and lets go of what is answered by silence. */
  #settle(): void {
    while (this.#owed.length > 0) {
      const kind = this.#owed.kind(0);
      if (this.#owed.fate(0) === Disposition.simulate) {
        const subject = this.#owed.subject(0);
        this.#advance();
        this.#listener.simulate(kind);
        this.#listener.done(kind, subject);
      } else if (kind === Request.copyEnd) this.#advance();
      else return;
    }
  }

  /** The backend skips to the next Sync: so do we, or wait for it if it has not been sent. */
  #failed(): void {
    let failed = 0;
    while (failed < this.#owed.length && this.#owed.kind(failed) !== Request.sync) {
      this.#isUnclear ||= this.#copyAmbiguous && failed > 0 && this.#owed.kind(failed) !== Request.copyEnd;
      failed += 1;
    }
    this.#drop(failed, true);
    this.#discarding = this.#owed.length === 0;
  }

  /** @param firstFailed the first of them has failed itself */
  #drop(count: number, firstFailed = false): void {
    const owed = this.#owed;
    for (let i = count - 1; i >= 0; i -= 1) {
      if (this.#endsBatch(i)) this.#owedBatches -= 1;
      this.#listener.dropped(owed.kind(i), owed.subject(i), firstFailed && i === 0);
    }
    owed.drop(count);
  }

  /**
   * In COPY mode the backend ignores the Syncs that stand between the COPY and the end of its data. That is the end of this
   * one alone, as a Query may have another behind it; and where another request comes first, this COPY fails.
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
      this.#ignoredSync = !isOver && this.#owed.kind(0) === Request.execute;
      if (isOver) return true;
      this.#presumedIgnoredSync = true;
      if (this.#endsBatch(i)) this.#owedBatches -= 1;
      return false;
    });
    this.#noEndBefore = 0;
    this.#copyIn = !isOver;
  }

  #endsBatch(index: number): boolean {
    return isEnd(this.#owed.kind(index)) && this.#owed.fate(index) !== Disposition.skip;
  }
}

/** Whether a request of a client's goes on when what was given with one of ours is known. */
function isAwaited(subject: unknown): boolean {
  return (subject as { readonly isAwaited?: boolean } | undefined)?.isAwaited === true;
}

/** Requests that ReadyForQuery answers. */
function isEnd(kind: number | undefined): boolean {
  return kind === Request.sync || kind === Request.query || kind === Request.call;
}
