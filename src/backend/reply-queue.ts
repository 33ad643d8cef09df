/** Requests whose replies a backend owes, by the message that asked. */
export const Request = { parse: 0, bind: 1, describe: 2, execute: 3, close: 4, sync: 5, query: 6, call: 7, copyEnd: 8 } as const;
export type RequestKind = (typeof Request)[keyof typeof Request];

/**
 * What becomes of a request's reply: the client gets it (`forward`); nobody does, because the request was ours (`skip`);
 * or the request was never sent and the reply is ours to make (`simulate`).
 */
export const Fate = { forward: 0, skip: 1, simulate: 2 } as const;
export type ReplyFate = (typeof Fate)[keyof typeof Fate];

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

const INITIAL_CAPACITY = 16;

/**
 * The replies that a backend owes, in the order of the requests: the only sane state for a pipeline. After an error it
 * knows what the backend throws away, which is everything up to the next Sync, also a Query.
 * @see https://www.postgresql.org/docs/current/protocol-flow.html#PROTOCOL-FLOW-PIPELINING
 */
export class ReplyQueue {
  readonly #listener: ReplyListener;
  #kinds = new Uint8Array(INITIAL_CAPACITY);
  #fates = new Uint8Array(INITIAL_CAPACITY);
  #subjects: unknown[] = new Array(INITIAL_CAPACITY).fill(undefined);
  #head = 0;
  #length = 0;
  /** Requests that a Sync, Query or FunctionCall of the client's ends: all that have been sent, and those that are owed. */
  #batches = 0;
  #owedBatches = 0;
  /** An error came and the Sync that ends its effect has not been sent yet. */
  #discarding = false;
  /** The backend takes COPY data and ignores Sync. */
  #copyIn = false;
  /** It has ignored one behind an Execute, which wants another when the data has been sent. */
  #ignoredSync = false;
  /** A Sync has been taken for ignored by the COPY that is being answered. */
  #swallowedSync = false;
  #doubtful = false;
  /**
   * A Query has failed inside a transaction that has not ended: its portal is still there, without a name, while its plan
   * is not. Whoever sees the transaction end says so.
   */
  strayPortal = false;

  constructor(listener: ReplyListener) {
    this.#listener = listener;
  }

  get length(): number {
    return this.#length;
  }

  /** The number of the batch, up to a Sync, Query or FunctionCall of the client's, to which belongs what is sent next. */
  get batch(): number {
    return this.#batches;
  }

  /** The number of the oldest batch that has not been answered to its end. */
  get batchAnswered(): number {
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
    return this.#discarding || this.#ignoredSync;
  }

  /**
   * A COPY has failed: whether before or after it came to a Sync that was sent to it, it does not say, and so there may
   * be a ReadyForQuery more to come than is known of. It stands before the answer to the next request of ours.
   */
  get doubtful(): boolean {
    return this.#doubtful;
  }

  /** Whether what is being received now belongs to a request of ours. */
  get skipping(): boolean {
    return this.#length > 0 && this.#fates[this.#head] === Fate.skip;
  }

  /** Nothing that a client has asked is unanswered. */
  get onlyOurs(): boolean {
    const mask = this.#kinds.length - 1;
    for (let i = 0; i < this.#length; i += 1) if (this.#fates[(this.#head + i) & mask] !== Fate.skip) return false;
    return true;
  }

  /** Whether all that is owed belongs to one request, which has nothing prepared, closed or set. */
  get isErrand(): boolean {
    const mask = this.#kinds.length - 1;
    for (let i = 0; i < this.#length; i += 1) {
      const at = (this.#head + i) & mask;
      const kind = this.#kinds[at];
      if (this.#fates[at] === Fate.skip || kind === Request.copyEnd || kind === Request.call) return false;
      if ((kind === Request.parse || kind === Request.close) && this.#fates[at] === Fate.forward) return false;
      if (isEnd(kind)) return i === this.#length - 1 && this.#subjects[at] === undefined;
    }
    return false;
  }

  /** Whether the answer to a request of this kind is still to come. */
  owes(kind: RequestKind): boolean {
    const mask = this.#kinds.length - 1;
    for (let i = 0; i < this.#length; i += 1) if (this.#kinds[(this.#head + i) & mask] === kind) return true;
    return false;
  }

  /** What was given with requests of these kinds that are still to be answered, in order. */
  *subjectsOf(kinds: ReadonlySet<RequestKind>): Generator<unknown> {
    const mask = this.#kinds.length - 1;
    for (let i = 0; i < this.#length; i += 1) {
      const at = (this.#head + i) & mask;
      if (kinds.has(this.#kinds[at] as RequestKind)) yield this.#subjects[at];
    }
  }

  /** What was given with the request that is being answered itself. */
  get subject(): unknown {
    return this.#length === 0 ? undefined : this.#subjects[this.#head];
  }

  /** Whether a whole request of ours is being answered, rather than one slipped in among the client's. */
  get answeringOurs(): boolean {
    return this.skipping && this.#kinds[this.#head] === Request.query;
  }

  /** What was given with the Sync, Query or FunctionCall that ends the batch being answered. */
  get batchSubject(): unknown {
    const end = this.#batchEnd();
    return end === undefined ? undefined : this.#subjects[end];
  }

  #batchEnd(): number | undefined {
    for (let i = 0; i < this.#length; i += 1) {
      const at = (this.#head + i) & (this.#kinds.length - 1);
      if (isEnd(this.#kinds[at])) return at;
    }
    return undefined;
  }

  /**
   * Notes a request as it is sent, or would be sent. While the backend discards, anything but a Sync is for nothing, and
   * `dropped` at once.
   */
  push(kind: RequestKind, fate: ReplyFate = Fate.forward, subject?: unknown): void {
    if (kind === Request.sync) {
      if (this.#copyIn) {
        this.#ignoredSync ||= this.#kinds[this.#head] === Request.execute;
        this.#swallowedSync = true;
        return;
      }
      this.#discarding = false;
      this.#ignoredSync = false;
    } else if (this.#discarding) {
      this.#listener.dropped(kind, subject, false);
      return;
    } else if (kind === Request.copyEnd) this.#copyIn = false;
    if (this.#length === this.#kinds.length) this.#grow();
    const at = (this.#head + this.#length) & (this.#kinds.length - 1);
    this.#kinds[at] = kind;
    this.#fates[at] = fate;
    this.#subjects[at] = subject;
    this.#length += 1;
    if (this.#endsBatch(at)) {
      this.#batches += 1;
      this.#owedBatches += 1;
    }
    if (this.#length === 1) this.#settle();
  }

  /** Forgets what is owed: nothing of it has been answered, or will be. */
  abandon(): void {
    this.#drop(this.#length);
  }

  /** Whether the client gets a message of this type that the backend sends now. To be asked before {@link receive}. */
  forwards(type: number): boolean {
    if (this.#length === 0 || this.#fates[this.#head] !== Fate.skip) return true;
    if (type === READY && this.#doubtful) return true;
    if (type !== ERROR) return false;
    // A batch of the client's has failed, whoever's request it was that met the error.
    const end = this.#batchEnd();
    return end === undefined || this.#fates[end] !== Fate.skip;
  }

  /**
   * Notes a message from the backend by its type byte, after it has been passed on: replies that are due behind it are
   * simulated now. Asynchronous ones (NoticeResponse, ParameterStatus, NotificationResponse) change nothing.
   */
  receive(type: number): void {
    if (this.#length === 0) {
      if (type === READY) this.#synced();
      return;
    }
    const kind = this.#kinds[this.#head];
    // Whatever else is answered now was sent behind the Sync in doubt.
    if (type !== READY) this.#doubtful = false;
    switch (type) {
      case ERROR:
        this.#doubtful = this.#swallowedSync;
        this.#swallowedSync = false;
        this.#copyIn = false;
        if (kind === Request.query) this.strayPortal = true;
        if (!isEnd(kind)) this.#failed();
        return;
      case READY:
        this.#copyIn = false;
        // A Query's answer is more than that: this one is the answer to a Sync that was not ignored after all.
        if (isEnd(kind) && (kind === Request.sync || !this.#doubtful)) this.#pop();
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
        this.#swallowedSync = false;
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
    const kind = this.#kinds[this.#head] as RequestKind;
    const subject = this.#subjects[this.#head];
    this.#advance();
    this.#listener.done(kind, subject);
    this.#settle();
  }

  #advance(): void {
    if (this.#endsBatch(this.#head)) this.#owedBatches -= 1;
    this.#subjects[this.#head] = undefined;
    this.#head = (this.#head + 1) & (this.#kinds.length - 1);
    this.#length -= 1;
  }

  /** Answers simulated requests that have come to the head, and lets go of what is answered by silence. */
  #settle(): void {
    while (this.#length > 0) {
      const kind = this.#kinds[this.#head] as RequestKind;
      if (this.#fates[this.#head] === Fate.simulate) {
        const subject = this.#subjects[this.#head];
        this.#advance();
        this.#listener.simulate(kind);
        this.#listener.done(kind, subject);
      } else if (kind === Request.copyEnd) this.#advance();
      else return;
    }
  }

  /** The backend skips to the next Sync: so do we, or wait for it if it has not been sent. */
  #failed(): void {
    const mask = this.#kinds.length - 1;
    let failed = 0;
    while (failed < this.#length && this.#kinds[(this.#head + failed) & mask] !== Request.sync) failed += 1;
    this.#drop(failed, true);
    this.#discarding = this.#length === 0;
  }

  /** @param firstFailed the first of them has failed itself */
  #drop(count: number, firstFailed = false): void {
    const mask = this.#kinds.length - 1;
    for (let i = count - 1; i >= 0; i -= 1) {
      const at = (this.#head + i) & mask;
      if (this.#endsBatch(at)) this.#owedBatches -= 1;
      this.#listener.dropped(this.#kinds[at] as RequestKind, this.#subjects[at], firstFailed && i === 0);
      this.#subjects[at] = undefined;
    }
    this.#head = (this.#head + count) & mask;
    this.#length -= count;
  }

  /** In COPY mode the backend ignores the Syncs that stand between the COPY and the end of its data. */
  #copyStarted(): void {
    this.#copyIn = true;
    const mask = this.#kinds.length - 1;
    let kept = 1;
    let ended = false;
    for (let i = 1; i < this.#length; i += 1) {
      const from = (this.#head + i) & mask;
      ended ||= this.#kinds[from] === Request.copyEnd;
      if (this.#kinds[from] === Request.sync) {
        this.#ignoredSync = !ended && this.#kinds[this.#head] === Request.execute;
        this.#swallowedSync ||= !ended;
        if (!ended) {
          if (this.#endsBatch(from)) this.#owedBatches -= 1;
          continue;
        }
      }
      const to = (this.#head + kept) & mask;
      this.#kinds[to] = this.#kinds[from] as number;
      this.#fates[to] = this.#fates[from] as number;
      this.#subjects[to] = this.#subjects[from];
      kept += 1;
    }
    this.#length = kept;
    if (ended) this.#copyIn = false;
  }

  #endsBatch(at: number): boolean {
    return isEnd(this.#kinds[at]) && this.#fates[at] !== Fate.skip;
  }

  #grow(): void {
    const capacity = this.#kinds.length;
    const order = Array.from({ length: capacity }, (_, i) => (this.#head + i) & (capacity - 1));
    const kinds = new Uint8Array(capacity * 2);
    const fates = new Uint8Array(capacity * 2);
    const subjects: unknown[] = new Array(capacity * 2).fill(undefined);
    for (const [i, from] of order.entries()) {
      kinds[i] = this.#kinds[from] as number;
      fates[i] = this.#fates[from] as number;
      subjects[i] = this.#subjects[from];
    }
    this.#kinds = kinds;
    this.#fates = fates;
    this.#subjects = subjects;
    this.#head = 0;
  }
}

/** Requests that ReadyForQuery answers. */
function isEnd(kind: number | undefined): boolean {
  return kind === Request.sync || kind === Request.query || kind === Request.call;
}
