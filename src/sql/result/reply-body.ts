import type { Readable } from 'node:stream';
import { TimeSlices } from '../../runtime/event-loop.ts';
import { JsonBuffer } from '../json/buffer.ts';
import { CHUNK_BYTES } from '../json/memory.ts';
import type { Parts } from '../json/scalars.ts';
import { ReplyStream, type RowSource } from './reply-stream.ts';
import { noRoomForResults } from './result-budget.ts';

const LINE_FEED = 0x0a;
/** Of what is larger it is asked whether there is room for it: a row, or what was read before the source could pause. */
const LARGE_BYTES = 1_048_576;

/**
 * The bytes of a reply on their way to the caller. As long as they are few they are kept, so that an error can still take
 * their place; then they become a stream.
 */
export class ReplyBody {
  readonly out: JsonBuffer;
  readonly #source: RowSource;
  readonly #announce: (stream: Readable) => void;
  readonly #finalBytes: ((error: Error) => Uint8Array) | undefined;
  #stream: ReplyStream | undefined;
  /** What has gone ends within a row. */
  #isAmidRow = false;
  #isOver = false;

  /**
   * @param announce called when (and if) the reply has become too large to be kept
   * @param finalBytes what is to be said behind the last whole line when a stream breaks off; without it, the stream is destroyed
   * @param expectedBytes what it will probably be
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

  /**
   * Whether there is room for a row behind what waits for the reader; if not, the source is aborted. A large one has had its
   * room as it came; but what small ones become, as long as their columns' names may be, can be many times what they were.
   */
  hasRoomFor(rowBytes: number): boolean {
    if (this.#stream === undefined || this.#stream.overrunBytes <= LARGE_BYTES) return true;
    return this.#hasRoom(rowBytes);
  }

  /**
   * Passes on what was written to `out`, when it is enough.
   * @returns whether there was room for it; if not, the source is aborted
   */
  flow(): boolean {
    if (this.out.length < CHUNK_BYTES) return true;
    const piece = this.out.take();
    // Names of columns may be longer than their values.
    if (piece.length > LARGE_BYTES && !this.#hasRoom(piece.length)) return false;
    const stream = this.#stream ?? this.#open();
    stream.write(piece);
    return true;
  }

  /**
   * Passes on a large row while it is being written, at the reader's pace.
   * @returns whether all of it is written; if not, the source is aborted, or lost
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

  /** Nothing that comes now is of any use: what waits for the reader need not wait. */
  interrupt(): void {
    this.#stream?.interrupt();
  }

  #hasRoom(bytes: number): boolean {
    const full = this.#source.share().exhaustedBy(bytes);
    if (full !== undefined) this.#source.abort(noRoomForResults(full));
    return full === undefined;
  }

  /** The whole reply is written. */
  finish(): Buffer | Readable {
    const rest = this.out.whole();
    if (this.#stream === undefined) return rest;
    this.#stream.end(rest);
    return this.#stream.readable;
  }

  /** No more will come. Once a reader has seen the beginning, it must not take what it has for the whole. */
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
