import type { Readable } from 'node:stream';
import { ServiceError } from '../../src/errors.ts';

/** The client has closed its side, or the connection was lost, while a message was expected. */
export class ClientGone extends Error {
  override readonly name = 'ClientGone';
}

/** A wait for a complete message. */
interface PendingRead {
  /** Looks for the message in the received bytes. @returns whether the wait is over. @throws the error that refuses the message */
  readonly look: () => boolean;
  readonly reject: (error: unknown) => void;
}

const NOTHING = Buffer.alloc(0);
const LENGTH_BYTES = 4;
/** Type and length. */
const HEADER_BYTES = 1 + LENGTH_BYTES;

/** Reads the messages of a login one by one, on demand. The stream is paused while none is expected. */
export class LoginMessageReader {
  readonly #stream: Readable;
  /** Received bytes that have not been read yet. */
  #unread: Buffer = NOTHING;
  #pending: PendingRead | undefined;

  constructor(stream: Readable) {
    this.#stream = stream;
  }

  arrived(chunk: Buffer): void {
    this.#unread = this.#unread.length === 0 ? chunk : Buffer.concat([this.#unread, chunk]);
    if (this.#pending === undefined) this.#stream.pause();
    else this.#lookAgain(this.#pending);
  }

  /** The expected message will not arrive. */
  ended(): void {
    this.#pending?.reject(new ClientGone());
    this.#pending = undefined;
  }

  /** Whether there are received bytes that have not been read. */
  get hasUnread(): boolean {
    return this.#unread.length > 0;
  }

  /** @returns the received bytes that have not been read; none are left */
  takeUnread(): Buffer {
    const unread = this.#unread;
    this.#unread = NOTHING;
    return unread;
  }

  /** The first received byte. It can still be read. @throws ClientGone */
  firstByte(): Promise<number> {
    return this.#read(() => this.#unread[0]);
  }

  /**
   * @returns the packet after its length word, which counts itself
   * @throws ClientGone, also when the length is less than `minBytes` or more than `maxBytes`
   */
  readPacket(minBytes: number, maxBytes: number): Promise<Buffer> {
    return this.#read(() => {
      const unread = this.#unread;
      if (unread.length < LENGTH_BYTES) return undefined;
      const length = unread.readUInt32BE(0);
      if (length < minBytes || length > maxBytes) throw new ClientGone();
      return unread.length < length ? undefined : this.#take(length).subarray(LENGTH_BYTES);
    });
  }

  /**
   * @param type the expected type; a message of another type is refused before the rest of it is read
   * @param expected the message's name, for the error
   * @param tooLong the error for a message longer than `maxBytes`, which is not read
   * @returns the body
   * @throws ClientGone, ServiceError `protocol_violation`
   */
  readMessage(type: number, expected: string, maxBytes: number, tooLong: () => ServiceError): Promise<Buffer> {
    return this.#read(() => {
      const unread = this.#unread;
      const got = unread[0];
      if (got === undefined) return undefined;
      if (got !== type) throw new ServiceError('protocol_violation', `expected ${expected} response, got message type ${got}`);
      if (unread.length < HEADER_BYTES) return undefined;
      const length = unread.readUInt32BE(1);
      if (length < LENGTH_BYTES) throw new ServiceError('protocol_violation', 'invalid message length');
      if (length - LENGTH_BYTES > maxBytes) throw tooLong();
      return unread.length < 1 + length ? undefined : this.#take(1 + length).subarray(HEADER_BYTES);
    });
  }

  /** @param take takes the message from the received bytes; undefined: more are needed. @throws ClientGone, what `take` throws */
  #read<T>(take: () => T | undefined): Promise<T> {
    return new Promise((resolve, reject) => {
      const look = () => {
        const found = take();
        if (found !== undefined) resolve(found);
        return found !== undefined;
      };
      if (look()) return;
      const stream = this.#stream;
      if (stream.readableEnded || stream.destroyed) throw new ClientGone();
      if (stream.isPaused()) stream.resume();
      this.#pending = { look, reject };
    });
  }

  #lookAgain(pending: PendingRead): void {
    try {
      if (pending.look()) this.#pending = undefined;
    } catch (error) {
      this.#pending = undefined;
      pending.reject(error);
    }
  }

  #take(length: number): Buffer {
    const all = this.#unread;
    if (length === all.length) {
      this.#unread = NOTHING;
      return all;
    }
    // A client that sends more than expected is paused until more is read.
    this.#stream.pause();
    this.#unread = all.subarray(length);
    return all.subarray(0, length);
  }
}
