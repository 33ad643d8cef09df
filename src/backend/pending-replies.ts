/** Requests that a backend replies to, by frontend message. */
export const Request = { parse: 0, bind: 1, describe: 2, execute: 3, close: 4, sync: 5, query: 6, call: 7, copyEnd: 8 } as const;
export type RequestKind = (typeof Request)[keyof typeof Request];

/**
 * What becomes of a request's reply: the client gets it (`forward`); it is dropped, because the request was Postern's own (`skip`);
 * or the request is not sent, and Postern makes the reply (`simulate`).
 */
export const Disposition = { forward: 0, skip: 1, simulate: 2 } as const;
export type ReplyDisposition = (typeof Disposition)[keyof typeof Disposition];

/** A power of two. Most clients send fewer requests at once. */
const INITIAL_CAPACITY = 8;
/** A request's kind and disposition are stored as one small number. */
const KIND_BITS = 4;
const KIND_MASK = (1 << KIND_BITS) - 1;

/** Requests in the order in which they were sent, from 0, each with the subject that was given with it. Two ring buffers. */
export class PendingReplies {
  /* Only this class sets these. */
  length = 0;
  /** Of the first request; not to be used while there is none. Most questions are about it. */
  firstKind: RequestKind = Request.sync;
  firstDisposition: ReplyDisposition = Disposition.forward;
  /** How many requests have been removed from the beginning so far. */
  dropped = 0;
  /** How many of the requests are Postern's own. */
  ours = 0;
  /** How many of the requests are Query messages. */
  queries = 0;
  #head = 0;
  readonly #requests: number[] = new Array(INITIAL_CAPACITY).fill(0);
  readonly #subjects: unknown[] = new Array(INITIAL_CAPACITY).fill(undefined);

  #at(index: number): number {
    return (this.#head + index) & (this.#requests.length - 1);
  }

  /** @param index below `length`; so for the other methods */
  kind(index: number): RequestKind {
    return ((this.#requests[this.#at(index)] ?? 0) & KIND_MASK) as RequestKind;
  }

  disposition(index: number): ReplyDisposition {
    return ((this.#requests[this.#at(index)] ?? 0) >> KIND_BITS) as ReplyDisposition;
  }

  subject(index: number): unknown {
    return this.#subjects[this.#at(index)];
  }

  push(kind: RequestKind, disposition: ReplyDisposition, subject: unknown): void {
    if (this.length === this.#requests.length) this.#grow();
    const at = this.#at(this.length);
    this.#requests[at] = kind | (disposition << KIND_BITS);
    this.#subjects[at] = subject;
    if (this.length === 0) {
      this.firstKind = kind;
      this.firstDisposition = disposition;
    }
    this.length += 1;
    this.#count(kind, disposition, 1);
  }

  #count(kind: RequestKind, disposition: ReplyDisposition, change: 1 | -1): void {
    if (kind === Request.query) this.queries += change;
    if (disposition === Disposition.skip) this.ours += change;
  }

  /** Removes requests from the beginning. */
  drop(count: number): void {
    for (let i = 0; i < count; i += 1) {
      this.#count(this.kind(i), this.disposition(i), -1);
      this.#subjects[this.#at(i)] = undefined;
    }
    this.#head = this.#at(count);
    this.length -= count;
    this.dropped += count;
    this.firstKind = this.kind(0);
    this.firstDisposition = this.disposition(0);
  }

  /** Removes the requests for which `isKept` returns false; it is true for the first one. */
  filter(isKept: (index: number) => boolean): void {
    let kept = 0;
    for (let i = 0; i < this.length; i += 1) {
      if (!isKept(i)) {
        this.#count(this.kind(i), this.disposition(i), -1);
        continue;
      }
      const [from, to] = [this.#at(i), this.#at(kept)];
      this.#requests[to] = this.#requests[from] ?? 0;
      this.#subjects[to] = this.#subjects[from];
      kept += 1;
    }
    for (let i = kept; i < this.length; i += 1) this.#subjects[this.#at(i)] = undefined;
    this.length = kept;
  }

  /** The ring is full: the requests before the head, which are the last ones, go behind the others. */
  #grow(): void {
    const capacity = this.#requests.length;
    for (let i = 0; i < capacity; i += 1) {
      const isBeforeHead = i < this.#head;
      this.#requests.push(isBeforeHead ? (this.#requests[i] ?? 0) : 0);
      this.#subjects.push(isBeforeHead ? this.#subjects[i] : undefined);
      if (isBeforeHead) this.#subjects[i] = undefined;
    }
  }
}
