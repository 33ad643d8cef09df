import { Readable } from 'node:stream';
import { ServiceError } from '../errors.ts';
import { TimeSlices } from '../runtime/event-loop.ts';
import type { MemoryReservation } from '../runtime/memory-budget.ts';
import { CHUNK_BYTES, JsonBuffer, takeChunk } from './json-buffer.ts';
import type { Parts } from './json-values.ts';
import type { ResultMemory } from './pipeline.ts';
import { noRoomForResults } from './result-budget.ts';

const LINE_FEED = 0x0a;
/** For larger rows, and for larger amounts read before the source could pause, the memory budget is checked. */
const LARGE_BYTES = 1_048_576;

/**
 * The bytes of a reply to the client. While they are few they are kept, so that an error can still replace them; when they are more,
 * they are streamed.
 */
export class ReplyBody {
  readonly out: JsonBuffer;
  readonly #source: RowSource;
  readonly #announce: (stream: Readable) => void;
  readonly #finalBytes: ((error: Error) => Uint8Array) | undefined;
  #stream: ReplyStream | undefined;
  /** The bytes sent so far end within a row. */
  #isAmidRow = false;
  #isOver = false;
  /** Written to the stream. */
  #streamedBytes = 0;

  /**
   * @param announce called if the reply becomes too large to be kept, with the stream
   * @param finalBytes the bytes to send after the last whole line when a stream fails; without it, the stream is destroyed
   * @param expectedBytes the probable length of the reply
   */
  constructor(
    source: RowSource,
    announce: (stream: Readable) => void,
    finalBytes: ((error: Error) => Uint8Array) | undefined,
    expectedBytes?: number,
  ) {
    this.out = new JsonBuffer(expectedBytes);
    this.#source = source;
    this.#announce = announce;
    this.#finalBytes = finalBytes;
  }

  /** How many have been written until now. To be asked before {@link finish}. */
  get bytes(): number {
    return this.#streamedBytes + this.out.length;
  }

  /**
   * Whether the memory budget allows for another row; if not, the source is aborted. The memory for a large row was reserved when
   * it was received. The JSON of small rows may be many times as long as the rows themselves, because it repeats the columns' names.
   */
  hasRoomFor(rowBytes: number): boolean {
    if (this.#stream === undefined || this.#stream.overrunBytes <= LARGE_BYTES) return true;
    return this.#hasRoom(rowBytes);
  }

  /**
   * Sends the bytes written to `out`, when there are enough for a chunk.
   * @returns whether the memory budget allows for them; if not, the source is aborted
   */
  flow(): boolean {
    if (this.out.length < CHUNK_BYTES) return true;
    const piece = this.out.take();
    // The columns' names may be longer than their values.
    if (piece.length > LARGE_BYTES && !this.#hasRoom(piece.length)) return false;
    const stream = this.#stream ?? this.#open();
    this.#streamedBytes += piece.length;
    stream.write(piece);
    return true;
  }

  /**
   * Sends a large row in parts as it is written, and waits for the reader.
   * @returns whether the whole row is written; if not, the source is aborted or lost
   */
  async flowInParts(row: Parts): Promise<boolean> {
    const slices = new TimeSlices();
    this.#isAmidRow = true;
    for (const _ of row) {
      if (!this.flow()) return false;
      const pause = this.#stream?.taken() ?? slices.pause();
      if (pause !== undefined) await pause;
      if (this.#isOver || this.#source.abortReason !== undefined) return false;
    }
    this.#isAmidRow = false;
    return this.flow();
  }

  /** Called when further rows are not needed. Writes that wait for the reader continue at once. */
  interrupt(): void {
    this.#stream?.interrupt();
  }

  #hasRoom(bytes: number): boolean {
    const full = this.#source.reservation().exhaustedBy(bytes);
    if (full !== undefined) this.#source.abort(noRoomForResults(full));
    return full === undefined;
  }

  /** Called when the whole reply is written. */
  finish(): Buffer | Readable {
    const rest = this.out.whole();
    if (this.#stream === undefined) return rest;
    this.#stream.end(rest);
    return this.#stream.readable;
  }

  /** Called when the reply fails. A reader that has received a part of it must notice that it is incomplete. */
  fail(error: Error): void {
    const stream = this.#stream;
    this.#isOver = true;
    if (stream === undefined) return;
    if (this.#finalBytes === undefined || this.#isAmidRow) {
      stream.fail(error);
      return;
    }
    const rest = this.out.take();
    stream.end(rest.subarray(0, rest.lastIndexOf(LINE_FEED) + 1), this.#finalBytes(error));
  }

  #open(): ReplyStream {
    const stream = new ReplyStream(this.#source);
    this.#stream = stream;
    this.#announce(stream.readable);
    return stream;
  }
}

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
class ReplyStream {
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
