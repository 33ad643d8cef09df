import { once } from 'node:events';
import { request } from 'node:http';
import { connect } from 'node:net';
import type { Duplex } from 'node:stream';
import { createWebSocketStream, WebSocket } from 'ws';
import { logIn } from '../../conversations/login.ts';
import { WireClient } from '../../conversations/wire-client.ts';
import type { Doors, TestOrganization } from '../../support/doors.ts';

/** One organization's way through every door, with bodies and messages as they are given; replies are thrown away. */
export class Attacker {
  readonly #doors: Doors;
  readonly #organization: TestOrganization;

  constructor(doors: Doors, organization: TestOrganization) {
    this.#doors = doors;
    this.#organization = organization;
  }

  /** @returns the status */
  api(path: string, body: string | Buffer, headers: Readonly<Record<string, string>> = {}): Promise<string> {
    const { apiKey } = this.#organization;
    return this.#post(`/api/${path}`, body, { 'content-type': 'application/json', authorization: `Bearer ${apiKey}`, ...headers });
  }

  /**
   * Sends the same on many connections at once, and goes with the first reply.
   * @param opening what is sent and answered before
   * @returns the status of the first replies
   */
  async onConnections(count: number, bytes: Buffer, opening?: Buffer): Promise<string> {
    const port = Number(new URL(this.#doors.httpUrl).port);
    const sockets = Array.from({ length: count }, () => connect(port, '127.0.0.1').setEncoding('latin1'));
    await Promise.all(sockets.map((socket) => once(socket, 'connect')));
    // Postern may close a connection whose input it has not read to its end, which resets it.
    for (const socket of sockets) socket.on('error', () => {});
    const ask = (asked: Buffer) =>
      Promise.all(
        sockets.map((socket) => {
          socket.write(asked);
          return new Promise<string>((resolve) => {
            socket.once('data', (text: string) => resolve(text));
            socket.once('close', () => resolve(''));
          });
        }),
      );
    const opened = opening && (await ask(opening));
    const answered = await ask(bytes);
    for (const socket of sockets) socket.destroy();
    const statuses = (opened ?? answered).map((text) => /^HTTP\/1\.1 (\d+)/.exec(text)?.[1]);
    return [...new Set(statuses)].join();
  }

  /** `POST /sql`, as Neon's driver calls it. @returns the status */
  neon(body: string | Buffer, headers: Readonly<Record<string, string>> = {}): Promise<string> {
    const { id, apiKey } = this.#organization;
    return this.#post('/sql', body, { 'neon-connection-string': `postgres://${id}:${apiKey}@postern.test/${id}`, ...headers });
  }

  /** Messages up to one ReadyForQuery, at the wire door. @returns the first error's SQLSTATE, 00000 without one */
  wire(...messages: readonly Buffer[]): Promise<string> {
    return this.wireWith({}, ...messages);
  }

  /** As {@link wire}, with parameters in the startup packet. */
  async wireWith(parameters: Readonly<Record<string, string>>, ...messages: readonly Buffer[]): Promise<string> {
    const { id, apiKey } = this.#organization;
    const socket = connect(this.#doors.wirePort, '127.0.0.1');
    try {
      await logIn(WireClient.over(socket), { user: id, database: id, password: apiKey }, '3.0', new Map(Object.entries(parameters)));
      socket.removeAllListeners('data');
      return await conversation(socket, messages, 1);
    } finally {
      socket.destroy();
    }
  }

  /** As {@link wire}, over a WebSocket at `/v2`, a frame for each. */
  async webSocket(...messages: readonly Buffer[]): Promise<string> {
    const { id, apiKey } = this.#organization;
    const webSocket = new WebSocket(`${this.#doors.httpUrl.replace('http:', 'ws:')}/v2`);
    const stream = createWebSocketStream(webSocket);
    stream.on('error', () => {});
    try {
      await once(webSocket, 'open');
      const login = [startup({ user: id, database: id }), message('p', `${apiKey}\0`)];
      return await conversation(stream, [...login, ...messages], 2);
    } finally {
      webSocket.terminate();
    }
  }

  /** Bytes of a stranger's at the wire door. @returns what Postern says before it closes: an SQLSTATE, or nothing */
  async stranger(bytes: Buffer): Promise<string> {
    const socket = connect(this.#doors.wirePort, '127.0.0.1');
    try {
      return await conversation(socket, [bytes], 1);
    } finally {
      socket.destroy();
    }
  }

  async #post(path: string, body: string | Buffer, headers: Readonly<Record<string, string>>): Promise<string> {
    const sent = request(`${this.#doors.httpUrl}${path}`, { method: 'POST', agent: false, headers });
    sent.end(body);
    const [reply] = await once(sent, 'response');
    // A body that is refused may not be taken to its end.
    sent.on('error', () => {});
    reply.resume();
    await once(reply, 'end').catch(() => {});
    return String(reply.statusCode);
  }
}

/** @param ready so many ReadyForQuery end it, and so does the end of the connection */
async function conversation(stream: Duplex, messages: readonly Buffer[], ready: number): Promise<string> {
  const replies = new Replies(ready);
  const ended = new Promise<void>((resolve) => {
    for (const event of ['error', 'end', 'close']) stream.once(event, () => resolve());
    stream.on('data', (chunk: Buffer) => {
      if (replies.take(chunk)) resolve();
    });
  });
  for (const bytes of messages) stream.write(bytes);
  await ended;
  return replies.sqlstate;
}

const HEADER_BYTES = 5;
/** Of an error; what it says of its kind comes first. */
const KEPT_BYTES = 256;

/** Reads of the server's messages no more than it must. */
class Replies {
  sqlstate = '00000';
  #ready: number;
  #kept: Buffer = Buffer.alloc(0);
  /** Of the message that has begun. */
  #left = 0;

  constructor(ready: number) {
    this.#ready = ready;
  }

  /** @returns whether all have come */
  take(chunk: Buffer): boolean {
    let rest = chunk;
    while (rest.length > 0) {
      const skipped = Math.min(this.#left, rest.length);
      this.#left -= skipped;
      rest = rest.subarray(skipped);
      if (this.#left > 0 || rest.length === 0) break;
      rest = this.#begin(rest);
    }
    return this.#ready <= 0;
  }

  #begin(rest: Buffer): Buffer {
    const bytes = Buffer.concat([this.#kept, rest]);
    const length = bytes.length < HEADER_BYTES ? Number.POSITIVE_INFINITY : bytes.readInt32BE(1) + 1;
    const type = bytes.toString('latin1', 0, 1);
    const wanted = type === 'E' ? Math.min(length, KEPT_BYTES) : HEADER_BYTES;
    if (bytes.length < wanted) {
      this.#kept = bytes;
      return Buffer.alloc(0);
    }
    this.#kept = Buffer.alloc(0);
    if (type === 'Z') this.#ready -= 1;
    if (type === 'E' && this.sqlstate === '00000') this.sqlstate = /\0C(.{5})\0/s.exec(bytes.toString('latin1', 0, wanted))?.[1] ?? '';
    this.#left = Math.max(0, length - bytes.length);
    return bytes.subarray(Math.min(length, bytes.length));
  }
}

/** A frontend message with a type. */
export function message(type: string, body: string | Buffer): Buffer {
  const bytes = typeof body === 'string' ? Buffer.from(body) : body;
  const head = Buffer.alloc(HEADER_BYTES);
  head.write(type, 'latin1');
  head.writeInt32BE(bytes.length + 4, 1);
  return Buffer.concat([head, bytes]);
}

export const query = (sql: string): Buffer => message('Q', `${sql}\0`);

/** Parse, Bind, Execute and Sync, without a name. */
export function extended(sql: string, name = ''): Buffer {
  const parse = message('P', `${name}\0${sql}\0\0\0`);
  return Buffer.concat([parse, message('B', `\0${name}\0\0\0\0\0\0\0`), message('E', '\0\0\0\0\0'), message('S', '')]);
}

export function startup(parameters: Readonly<Record<string, string>>): Buffer {
  const pairs = Object.entries(parameters).map(([name, value]) => `${name}\0${value}\0`);
  return message('x', `\0\x03\0\0${pairs.join('')}\0`).subarray(1);
}
