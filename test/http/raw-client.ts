import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';

/** A reply as it came over the network. */
export interface RawReply {
  readonly status: number;
  /** Names as they are written. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

/** A bare connection to the JSON door: sends bytes as it is told to, and reads replies one after the other. */
export class RawClient {
  readonly socket: Socket;
  /** Resolves with what nobody has read of all that came, once the connection is closed. */
  readonly rest: Promise<Buffer>;
  readonly #come: Buffer[] = [];

  private constructor(socket: Socket) {
    this.socket = socket;
    socket.setNoDelay(true);
    socket.on('data', (chunk) => this.#come.push(chunk));
    socket.on('error', () => {});
    this.rest = new Promise((resolve) => socket.once('close', () => resolve(Buffer.concat(this.#come))));
  }

  static async open(port: number): Promise<RawClient> {
    const client = new RawClient(connect(port, '127.0.0.1'));
    await once(client.socket, 'connect');
    return client;
  }

  static async openTls(port: number): Promise<RawClient> {
    const client = new RawClient(connectTls({ port, host: '127.0.0.1', rejectUnauthorized: false }));
    await once(client.socket, 'secureConnect');
    return client;
  }

  send(bytes: string | Buffer): void {
    this.socket.write(typeof bytes === 'string' ? Buffer.from(bytes, 'latin1') : bytes);
  }

  /** @throws Error when the connection ends before one has come as a whole */
  async reply(): Promise<RawReply> {
    for (;;) {
      const come = Buffer.concat(this.#come);
      const found = readReply(come);
      if (found !== undefined) {
        this.#come.splice(0, this.#come.length, come.subarray(found.end));
        return found.reply;
      }
      if (this.socket.closed) throw new Error(`the connection ended; ${come.length} bytes of a reply had come`);
      await Promise.race([once(this.socket, 'data'), this.rest]);
    }
  }

  async ask(bytes: string | Buffer): Promise<RawReply> {
    this.send(bytes);
    return this.reply();
  }

  /** All that come until the connection is closed, and whether the last of them is whole. */
  async replies(): Promise<{ readonly replies: RawReply[]; readonly whole: boolean }> {
    let come = await this.rest;
    const replies: RawReply[] = [];
    for (let found = readReply(come); found !== undefined; found = readReply(come)) {
      replies.push(found.reply);
      come = come.subarray(found.end);
    }
    return { replies, whole: come.length === 0 };
  }
}

/** Reads the reply that bytes begin with; undefined while it is not whole. */
function readReply(bytes: Buffer): { readonly reply: RawReply; readonly end: number } | undefined {
  const headEnd = bytes.indexOf('\r\n\r\n');
  if (headEnd < 0) return undefined;
  const [statusLine = '', ...lines] = bytes.toString('latin1', 0, headEnd).split('\r\n');
  const status = Number(/^HTTP\/1\.1 (\d{3}) /.exec(statusLine)?.[1]);
  const headers = Object.fromEntries(lines.map((line) => line.split(/: (.*)/, 2) as [string, string]));
  const start = headEnd + 4;
  const body = headers['Transfer-Encoding'] === 'chunked' ? readChunks(bytes, start) : readLength(bytes, start, headers);
  return body && { reply: { status, headers, body: body.text }, end: body.end };
}

function readLength(bytes: Buffer, start: number, headers: Record<string, string>) {
  const end = start + Number(headers['content-length'] ?? headers['Content-Length'] ?? 0);
  return end > bytes.length ? undefined : { text: bytes.toString('utf8', start, end), end };
}

function readChunks(bytes: Buffer, start: number) {
  const chunks: Buffer[] = [];
  for (let at = start; ; ) {
    const lineEnd = bytes.indexOf('\r\n', at);
    if (lineEnd < 0) return undefined;
    const size = Number.parseInt(bytes.toString('latin1', at, lineEnd), 16);
    const end = lineEnd + 2 + size;
    if (end + 2 > bytes.length) return undefined;
    if (size === 0) return { text: Buffer.concat(chunks).toString(), end: end + 2 };
    chunks.push(bytes.subarray(lineEnd + 2, end));
    at = end + 2;
  }
}

/**
 * A request for `/api/query` such as most clients send; headers that are given come first.
 * @param body a value, its JSON text, or the very bytes
 * @returns a character for each byte
 */
export function plainRequest(apiKey: string, body: unknown, ...headers: readonly string[]): string {
  const bytes = Buffer.isBuffer(body) ? body : Buffer.from(typeof body === 'string' ? body : JSON.stringify(body));
  const text = bytes.toString('latin1');
  return [
    'POST /api/query HTTP/1.1',
    ...headers,
    'Host: localhost',
    `Authorization: Bearer ${apiKey}`,
    'Content-Type: application/json',
    `Content-Length: ${text.length}`,
    '',
    text,
  ].join('\r\n');
}

const GET_HEALTH = 'GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n';

/** A connection that is served by Node's server: it goes there with its first request that is no query. */
export async function openElsewhere(port: number): Promise<RawClient> {
  const client = await RawClient.open(port);
  const { status } = await client.ask(GET_HEALTH);
  if (status !== 200) throw new Error(`the door answered ${status}`);
  return client;
}
