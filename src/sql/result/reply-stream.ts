import { Readable } from 'node:stream';
import { ServiceError } from '../../errors.ts';
import type { MemoryReservation } from '../../runtime/memory-budget.ts';
import { CHUNK_BYTES, takeChunk } from '../json/memory.ts';
import type { ResultMemory } from '../session/receive-budget.ts';

/** What may wait in the stream for its reader; beyond it the backend has to wait. */
const STREAM_BUFFER_BYTES = 262_144;

/** Where the rows come from, at a pace that can be set. */
export interface RowSource extends ResultMemory {
  pause(): void;
  resume(): void;
  abort(reason: ServiceError): void;
  /** Why what still arrives is of no use. */
  readonly abortReason: ServiceError | undefined;
}

const NOTHING = new Uint8Array();

/**
 * A reply that has begun to be sent. It pauses its source while its reader is behind; what comes all the same, large rows
 * and what has been read with them, waits outside the stream, and is counted.
 */
export class ReplyStream {
  readonly readable: Readable;
  readonly #source: RowSource;
  readonly #waiting: Uint8Array[] = [];
  #waitingBytes = 0;
  #overrunBytes = 0;
  /** Of the first that waits, so many bytes have been handed to the stream. */
  #handedOver = 0;
  #share: MemoryReservation | undefined;
  #isPaused = false;
  /** The source has come to its end. */
  #isOver = false;
  /** Nothing is to be written behind what waits. */
  #isComplete = false;
  /** Tells who waits for the reader. */
  #wake: (() => void) | undefined;

  constructor(source: RowSource) {
    this.#source = source;
    this.readable = new Readable({
      highWaterMark: STREAM_BUFFER_BYTES,
      read: () => {
        this.#goOn();
        this.#count();
      },
      destroy: (error, callback) => {
        if (!this.#isOver) source.abort(new ServiceError('query_canceled', 'the caller has gone away'));
        this.#forget();
        callback(error);
      },
    });
    // Whoever reads the stream hears of an error; before anyone does, it must not end the process.
    this.readable.on('error', () => {});
  }

  /** What has come since the source was told to pause. */
  get overrunBytes(): number {
    return this.#overrunBytes;
  }

  write(piece: Uint8Array): void {
    if (this.readable.destroyed || piece.length === 0) return;
    this.#waiting.push(piece);
    this.#waitingBytes += piece.length;
    if (this.#isPaused) this.#overrunBytes += piece.length;
    else if (!this.#handOver()) this.#pause();
    this.#count();
  }

  /** More may be written: to be waited for by who can. It is kept, too, when nobody reads any more, or by {@link interrupt}. */
  taken(): Promise<void> | undefined {
    if (!this.#isPaused || this.#isOver || this.readable.destroyed) return undefined;
    return new Promise((resolve) => {
      this.#wake = resolve;
    });
  }

  /** Whoever waits for the reader need not wait any more. */
  interrupt(): void {
    this.#wake?.();
    this.#wake = undefined;
  }

  /** These are the last pieces. */
  end(...pieces: readonly Uint8Array[]): void {
    this.#isOver = true;
    for (const piece of pieces) this.write(piece);
    this.#isComplete = true;
    if (this.#waiting.length === 0) this.readable.push(null);
  }

  /** Breaks off. */
  fail(error: Error): void {
    this.#isOver = true;
    this.interrupt();
    this.readable.destroy(error);
  }

  /** Hands to the stream what waits, for as long as it takes it. @returns whether it takes more */
  #handOver(): boolean {
    let takesMore = true;
    while (takesMore && this.#waiting.length > 0) takesMore = this.readable.push(this.#nextPiece());
    return takesMore;
  }

  /** Of what is large, copies: it goes when the last one has been made, not when that has been read. */
  #nextPiece(): Uint8Array {
    const [first = NOTHING] = this.#waiting;
    const isSmall = first.length <= STREAM_BUFFER_BYTES;
    const start = this.#handedOver;
    const end = isSmall ? first.length : Math.min(start + CHUNK_BYTES, first.length);
    this.#handedOver = end;
    if (end === first.length) {
      this.#waiting.shift();
      this.#waitingBytes -= end;
      this.#handedOver = 0;
    }
    if (isSmall) return first;
    const copy = takeChunk().subarray(0, end - start);
    copy.set(first.subarray(start, end));
    return copy;
  }

  /** All that waits for the reader, here and in the stream. */
  #count(): void {
    this.#share ??= this.#source.share();
    this.#share.resize(this.#waitingBytes + this.readable.readableLength);
  }

  #pause(): void {
    this.#isPaused = true;
    if (!this.#isOver) this.#source.pause();
  }

  /** There is room in the stream again. */
  #goOn(): void {
    if (!this.#isPaused) return;
    const takesMore = this.#handOver();
    if (this.#waiting.length > 0) return;
    if (this.#isComplete) this.readable.push(null);
    else if (takesMore && !this.#isOver) {
      this.#isPaused = false;
      this.#overrunBytes = 0;
      this.#source.resume();
      this.interrupt();
    }
  }

  #forget(): void {
    this.#waiting.length = 0;
    this.#waitingBytes = 0;
    this.#share?.resize(0);
    this.interrupt();
  }
}
