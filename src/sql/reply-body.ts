import type { Readable } from 'node:stream';
import { JsonBuffer } from './json/buffer.ts';
import { CHUNK_BYTES } from './json/memory.ts';
import { ReplyStream, type RowSource, STREAM_BUFFER_BYTES } from './reply-stream.ts';
import { noRoomForResults } from './result-share.ts';

const LINE_FEED = 0x0a;

/**
 * The bytes of a reply on their way to the caller. As long as they are few they are kept, so that an error can still take
 * their place; then they become a stream.
 */
export class ReplyBody {
  readonly out: JsonBuffer;
  readonly #source: RowSource;
  readonly #announce: (stream: Readable) => void;
  readonly #lastWords: ((error: Error) => Uint8Array) | undefined;
  #stream: ReplyStream | undefined;

  /**
   * @param announce called when (and if) the reply has become too large to be kept
   * @param lastWords what is to be said behind the last whole line when a stream breaks off; without it, the stream is destroyed
   * @param expectedBytes what it will probably be
   */
  constructor(
    source: RowSource,
    announce: (stream: Readable) => void,
    lastWords: ((error: Error) => Uint8Array) | undefined,
    expectedBytes?: number,
  ) {
    this.out = new JsonBuffer(expectedBytes);
    this.#source = source;
    this.#announce = announce;
    this.#lastWords = lastWords;
  }

  /** Whether there is room for a row of so many bytes behind what waits for the reader; if not, the source is aborted. */
  hasRoomFor(rowBytes: number): boolean {
    const waitingBytes = this.#stream === undefined ? 0 : this.#stream.waitingBytes;
    if (waitingBytes + rowBytes <= STREAM_BUFFER_BYTES) return true;
    const full = this.#source.share().fullFor(rowBytes);
    if (full !== undefined) this.#source.abort(noRoomForResults(full));
    return full === undefined;
  }

  /** Passes on what was written to `out`, when it is enough. */
  flow(): void {
    if (this.out.length < CHUNK_BYTES) return;
    const stream = this.#stream ?? this.#open();
    stream.write(this.out.take());
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
    if (stream === undefined) return;
    if (this.#lastWords === undefined) {
      stream.fail(error);
      return;
    }
    const rest = this.out.take();
    stream.end(rest.subarray(0, rest.lastIndexOf(LINE_FEED) + 1), this.#lastWords(error));
  }

  #open(): ReplyStream {
    const stream = new ReplyStream(this.#source);
    this.#stream = stream;
    this.#announce(stream.readable);
    return stream;
  }
}
