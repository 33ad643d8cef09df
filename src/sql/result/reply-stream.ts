import { Readable } from 'node:stream';
import { ServiceError } from '../../errors.ts';
import type { MemoryReservation } from '../../runtime/memory-budget.ts';
import { CHUNK_BYTES, takeChunk } from '../json/chunk-pool.ts';
import type { ResultMemory } from '../session/receive-budget.ts';

/** How many unread bytes the stream may hold before the backend is paused. */
const STREAM_BUFFER_BYTES = 262_144;

/** The source of the rows, which can be paused. */
export interface RowSource extends ResultMemory {
  pause(): void;
  resume(): void;
  abort(reason: ServiceError): void;
  /** Why further rows are not needed; undefined while they are. */
  readonly abortReason: ServiceError | undefined;
}

const NOTHING = new Uint8Array();

/**
 * A reply that is being sent. It pauses its source while too many bytes are unread. Bytes that arrive nevertheless (large rows,
 * and data read together with them) wait outside the stream and are counted in the memory budget.
 */
export class ReplyStream {
  readonly readable: Readable;
  readonly #source: RowSource;
  readonly #waiting: Uint8Array[] = [];
  #waitingBytes = 0;
  #overrunBytes = 0;
  /** How many bytes of the first waiting piece have been passed to the stream. */
  #handedOver = 0;
  #reservation: MemoryReservation | undefined;
  #isPaused = false;
  /** The source has ended. */
  #isOver = false;
  /** No more pieces will be added. */
  #isComplete = false;
  /** Resolves the promise of a caller that waits for the reader. */
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
    // Readers handle errors themselves. Without a listener, an error before there is a reader would end the process.
    this.readable.on('error', () => {});
  }

  /** The number of bytes that have arrived since the source was paused. */
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

  /** Resolves when more may be written, when the reader is gone, or by {@link interrupt}. */
  taken(): Promise<void> | undefined {
    if (!this.#isPaused || this.#isOver || this.readable.destroyed) return undefined;
    return new Promise((resolve) => {
      this.#wake = resolve;
    });
  }

  /** Ends waits for the reader. */
  interrupt(): void {
    this.#wake?.();
    this.#wake = undefined;
  }

  /** Writes the last pieces. */
  end(...pieces: readonly Uint8Array[]): void {
    this.#isOver = true;
    for (const piece of pieces) this.write(piece);
    this.#isComplete = true;
    if (this.#waiting.length === 0) this.readable.push(null);
  }

  /** Ends the stream with an error. */
  fail(error: Error): void {
    this.#isOver = true;
    this.interrupt();
    this.readable.destroy(error);
  }

  /** Passes waiting pieces to the stream until it is full. @returns whether it accepts more */
  #handOver(): boolean {
    let takesMore = true;
    while (takesMore && this.#waiting.length > 0) takesMore = this.readable.push(this.#nextPiece());
    return takesMore;
  }

  /** Large pieces are passed as copies of parts: the original is released with the last copy, before that is read. */
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

  /** Counts all unread bytes, waiting ones and those in the stream. */
  #count(): void {
    this.#reservation ??= this.#source.reservation();
    this.#reservation.resize(this.#waitingBytes + this.readable.readableLength);
  }

  #pause(): void {
    this.#isPaused = true;
    if (!this.#isOver) this.#source.pause();
  }

  /** Called when the stream accepts more. */
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
    this.#reservation?.resize(0);
    this.interrupt();
  }
}
