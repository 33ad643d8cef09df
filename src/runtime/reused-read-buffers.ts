import { Buffer } from 'node:buffer';
import { type OnReadOpts, Socket } from 'node:net';
import { copyBytes } from './bytes.ts';

/** On Windows a read is started before there is input, so sockets cannot read into the same memory. */
const CAN_SHARE = process.platform !== 'win32';
const READ_BYTES = 65_536;
const memory = Buffer.allocUnsafeSlow(READ_BYTES);

/** The symbols under which a socket keeps the two parts of its option `onread`; undefined in a Node that has other ones. */
const [BUFFER, CALLBACK] = ['kBuffer', 'kBufferCb'].map((name) =>
  Object.getOwnPropertySymbols(new Socket()).find(({ description }) => description === name),
);

/**
 * Has an accepted socket read into one buffer that all sockets share, instead of 64 kB that are allocated for each read; its `data`
 * events carry copies. Node has an option for this (`onread`), but only for sockets that connect. So this sets on the accepted
 * socket what that option sets. A socket without the expected internals is left as it is.
 * @see https://nodejs.org/api/net.html#socketconnectoptions-connectlistener
 */
export function readIntoSharedBuffer(socket: Socket): void {
  const handle: { useUserBuffer?: (memory: Uint8Array) => void } | null | undefined = Reflect.get(socket, '_handle');
  if (!CAN_SHARE || BUFFER === undefined || CALLBACK === undefined || typeof handle?.useUserBuffer !== 'function') return;
  handle.useUserBuffer(memory);
  Reflect.set(socket, BUFFER, memory);
  Reflect.set(socket, CALLBACK, (bytes: number) => {
    socket.emit('data', copyOfRead(bytes));
    return true;
  });
}

/** Makes the socket's stream usable again, for callers that need more of it than `data` events. */
export function readThroughStream(socket: Socket): void {
  if (CALLBACK !== undefined && Reflect.get(socket, CALLBACK) != null)
    Reflect.set(socket, CALLBACK, (bytes: number) => socket.push(copyOfRead(bytes)));
}

/** A copy of the bytes just read into the shared buffer. */
function copyOfRead(bytes: number): Buffer {
  const chunk = Buffer.allocUnsafe(bytes);
  copyBytes(memory, 0, bytes, chunk, 0);
  return chunk;
}

/** Who may still need a chunk that it was given. */
export interface ChunkHolder {
  readonly holdsChunk?: boolean;
}

/** Enough for a result of 1,000 rows of 100 bytes in one read, which costs less than two. */
const OWN_READ_BYTES = 131_072;
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
  #memory = Buffer.allocUnsafeSlow(OWN_READ_BYTES);
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
    } else if ((this.#holder ?? holder) === holder && end + MIN_READ_BYTES <= OWN_READ_BYTES) this.#continueAt(holder, end);
    else {
      this.#memory = Buffer.allocUnsafeSlow(OWN_READ_BYTES);
      this.#continueAt(undefined, 0);
    }
  }

  #continueAt(holder: ChunkHolder | undefined, start: number): void {
    this.#holder = holder;
    this.#start = start;
  }
}
