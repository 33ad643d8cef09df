import type { Readable } from 'node:stream';
import { TimeSlices } from '../../runtime/event-loop.ts';
import { JsonBuffer } from '../json/buffer.ts';
import { CHUNK_BYTES } from '../json/chunk-pool.ts';
import type { Parts } from '../json/value-encoder.ts';
import { ReplyStream, type RowSource } from './reply-stream.ts';
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
