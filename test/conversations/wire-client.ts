import { connect, Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { BackendMessage } from './backend-message.ts';

/** What has not come by then never comes: no measure of speed. */
export const PATIENCE_MS = 120_000;

/** One raw connection: bytes out, messages in. */
export class WireClient {
  /** As last reported: ParameterStatus. */
  readonly parameters = new Map<string, string>();
  /** From BackendKeyData: what a CancelRequest needs. */
  processId = 0;
  secretKey: Buffer = Buffer.alloc(0);
  /** Bytes per write; undefined: everything in one. */
  chunkBytes: number | undefined;
  /** Whether the end was read, or we closed it. */
  gone = false;
  readonly #socket: Duplex;
  #chunks: Buffer[] = [];
  #bytes = 0;
  #ended = false;
  #givenBack: BackendMessage | undefined;
  #wake: () => void = () => {};

  private constructor(socket: Duplex) {
    this.#socket = socket;
    if (socket instanceof Socket) socket.setNoDelay(true);
    socket.on('data', (chunk: Buffer) => {
      this.#chunks.push(chunk);
      this.#bytes += chunk.length;
      this.#wake();
    });
    socket.on('error', () => {});
    for (const event of ['end', 'close']) {
      socket.on(event, () => {
        this.#ended = true;
        this.#wake();
      });
    }
  }

  /** @param host a name, an address, or the folder of a Unix socket */
  static open(host: string, port: number): Promise<WireClient> {
    const place = host.startsWith('/') ? { path: `${host}/.s.PGSQL.${port}` } : { host, port };
    return new Promise((resolve, reject) => {
      const socket = connect({ ...place, allowHalfOpen: true });
      socket.once('error', reject);
      socket.once('connect', () => resolve(new WireClient(socket)));
    });
  }

  /** On a connection that somebody else has opened: with TLS, or what is no socket at all. */
  static over(socket: Duplex): WireClient {
    return new WireClient(socket);
  }

  async write(bytes: Buffer): Promise<void> {
    const step = this.chunkBytes ?? bytes.length;
    for (let at = 0; at < bytes.length; at += step) {
      const written = new Promise<void>((resolve) => this.#socket.write(bytes.subarray(at, at + step), () => resolve()));
      if (this.chunkBytes !== undefined) await written;
    }
  }

  /** @returns the next message (type '' for bytes that are none), 'EOF' when the server has closed, undefined when nothing comes in time */
  async read(timeoutMs = PATIENCE_MS): Promise<BackendMessage | 'EOF' | undefined> {
    const deadline = Date.now() + timeoutMs;
    for (;;) {
      const message = this.#givenBack ?? this.#takeMessage();
      this.#givenBack = undefined;
      if (message) {
        this.#remember(message);
        return message;
      }
      if (this.#ended && this.#bytes > 0) return { type: '', body: this.#take(this.#bytes) };
      if (this.#ended) {
        this.gone = true;
        return 'EOF';
      }
      if (!(await this.#more(deadline))) return undefined;
    }
  }

  /** Makes a message that was read the next one to be read. */
  giveBack(message: BackendMessage): void {
    this.#givenBack = message;
  }

  /** The one byte that answers SSLRequest and GSSENCRequest. */
  async readByte(timeoutMs = PATIENCE_MS): Promise<string> {
    if (this.#bytes === 0 && !this.#ended) await this.#more(Date.now() + timeoutMs);
    const byte = this.#take(Math.min(1, this.#bytes));
    return byte.toString('latin1') || 'EOF';
  }

  /** Whether anything can be read now. */
  get answered(): boolean {
    return this.#bytes > 0 || this.#ended;
  }

  /** Closes our half: what was sent is still to be answered. */
  halfClose(): void {
    this.#socket.end();
  }

  /** Closes the socket (FIN). */
  disconnect(): void {
    this.gone = true;
    this.#socket.destroy();
  }

  /** Closes the socket with RST (a Unix socket knows none). */
  reset(): void {
    this.gone = true;
    if (this.#socket instanceof Socket && this.#socket.remoteAddress !== undefined) this.#socket.resetAndDestroy();
    else this.#socket.destroy();
  }

  pause(): void {
    this.#socket.pause();
  }

  resume(): void {
    this.#socket.resume();
  }

  #more(deadline: number): Promise<boolean> {
    return new Promise((resolve) => {
      const timer = setTimeout(() => resolve(false), Math.max(0, deadline - Date.now()));
      this.#wake = () => {
        clearTimeout(timer);
        resolve(true);
      };
    });
  }

  #takeMessage(): BackendMessage | undefined {
    if (this.#bytes < 5) return undefined;
    const length = this.#peek(5).readInt32BE(1);
    if (this.#bytes < length + 1) return undefined;
    const bytes = this.#take(length + 1);
    return { type: String.fromCharCode(bytes[0] ?? 0), body: bytes.subarray(5) };
  }

  #peek(count: number): Buffer {
    const [first] = this.#chunks;
    if (first && first.length >= count) return first;
    const whole = Buffer.concat(this.#chunks);
    this.#chunks = [whole];
    return whole;
  }

  #take(count: number): Buffer {
    const first = this.#peek(count);
    this.#chunks[0] = first.subarray(count);
    if (this.#chunks[0].length === 0) this.#chunks.shift();
    this.#bytes -= count;
    return first.subarray(0, count);
  }

  #remember({ type, body }: BackendMessage): void {
    if (type === 'S') {
      const [key = '', value = ''] = body.toString('utf8').split('\0');
      this.parameters.set(key, value);
    }
    if (type === 'K') {
      this.processId = body.readInt32BE(0);
      this.secretKey = body.subarray(4);
    }
  }
}
