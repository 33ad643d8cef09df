import { Buffer } from 'node:buffer';
import { type OnReadOpts, Socket } from 'node:net';

/** Who may still need a chunk that it was given. */
export interface ChunkHolder {
  readonly holdsChunk?: boolean;
}

/** Enough for a result of 1,000 rows of 100 bytes in one read, which costs less than two. */
const READ_BYTES = 131_072;
/** A read with less space than this is not worth its cost. */
const MIN_READ_BYTES = 16_384;

/**
 * A socket that reads into the same memory again and again: over earlier chunks, or after them as long as they are needed.
 * During the login the driver uses it like any other socket.
 * @see https://nodejs.org/api/net.html#new-netsocketoptions `onread`
 */
export class SocketReader {
  readonly socket: Socket;
  /** Receives each chunk. @returns the receiver, if it still needs the chunk's memory */
  deliver = (chunk: Buffer): ChunkHolder | undefined => {
    this.socket.emit('data', Buffer.from(chunk));
    return undefined;
  };
  #memory = Buffer.allocUnsafeSlow(READ_BYTES);
  /** The offset of the next read; the holder needs all bytes before it. */
  #start = 0;
  #holder: ChunkHolder | undefined;

  constructor() {
    const onread: OnReadOpts = {
      buffer: () => (this.#start === 0 ? this.#memory : this.#memory.subarray(this.#start)),
      callback: (bytes) => {
        this.#read(bytes);
        return true;
      },
    };
    const options = { allowHalfOpen: false, onread };
    this.socket = new Socket(options);
  }

  #read(bytes: number): void {
    const end = this.#start + bytes;
    const holder = this.deliver(this.#memory.subarray(this.#start, end));
    if (holder === undefined) {
      if (this.#holder?.holdsChunk !== true) this.#continueAt(undefined, 0);
    } else if ((this.#holder ?? holder) === holder && end + MIN_READ_BYTES <= READ_BYTES) this.#continueAt(holder, end);
    else {
      this.#memory = Buffer.allocUnsafeSlow(READ_BYTES);
      this.#continueAt(undefined, 0);
    }
  }

  #continueAt(holder: ChunkHolder | undefined, start: number): void {
    this.#holder = holder;
    this.#start = start;
  }
}
