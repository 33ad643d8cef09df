import { Readable } from 'node:stream';
import { ServiceError } from '../errors.ts';
import { JsonBuffer } from './json/buffer.ts';
import { CHUNK_BYTES } from './json/memory.ts';

/** What may wait in the stream for its reader; beyond it the backend has to wait. */
const STREAM_BUFFER_BYTES = 262_144;

const LINE_FEED = 0x0a;

/** Where the rows come from, at a pace that can be set. */
export interface RowSource {
  pause(): void;
  resume(): void;
  abort(reason: ServiceError): void;
}

/**
 * The bytes of a reply on their way to the caller. As long as they are few they are kept, so that an error can still take
 * their place; then they become a stream that pauses its source while its reader is behind.
 */
export class ReplyBody {
  readonly out: JsonBuffer;
  readonly #source: RowSource;
  readonly #announce: (stream: Readable) => void;
  readonly #lastWords: ((error: Error) => Uint8Array) | undefined;
  #stream: Readable | undefined;
  #isPaused = false;
  #isOver = false;

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

  /** Passes on what was written to `out`, when it is enough. */
  flow(): void {
    if (this.out.length < CHUNK_BYTES) return;
    this.#stream ??= this.#open();
    const chunk = this.out.take();
    if (this.#stream.destroyed || this.#stream.push(chunk) || this.#isPaused) return;
    this.#isPaused = true;
    this.#source.pause();
  }

  /** The whole reply is written. */
  finish(): Buffer | Readable {
    this.#isOver = true;
    const rest = this.out.whole();
    if (this.#stream === undefined) return rest;
    this.#stream.push(rest);
    this.#stream.push(null);
    return this.#stream;
  }

  /** No more will come. Once a reader has seen the beginning, it must not take what it has for the whole. */
  fail(error: Error): void {
    this.#isOver = true;
    const stream = this.#stream;
    if (stream === undefined || stream.destroyed) return;
    if (this.#lastWords === undefined) {
      stream.destroy(error);
      return;
    }
    const rest = this.out.take();
    stream.push(rest.subarray(0, rest.lastIndexOf(LINE_FEED) + 1));
    stream.push(this.#lastWords(error));
    stream.push(null);
  }

  #open(): Readable {
    const stream = new Readable({
      highWaterMark: STREAM_BUFFER_BYTES,
      read: () => this.#goOn(),
      destroy: (error, callback) => {
        if (!this.#isOver) this.#source.abort(new ServiceError('query_canceled', 'the caller has gone away'));
        callback(error);
      },
    });
    // Whoever reads the stream hears of an error; before anyone does, it must not end the process.
    stream.on('error', () => {});
    this.#announce(stream);
    return stream;
  }

  #goOn(): void {
    if (!this.#isPaused || this.#isOver) return;
    this.#isPaused = false;
    this.#source.resume();
  }
}
