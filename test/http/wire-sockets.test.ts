import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { WebSocket } from 'ws';
import { WebSocketEndpoint, type WebSocketStream } from '../../http/neon/websocket.ts';
import { createServer, type HttpServer, type ServerDeadlines } from '../../http/server.ts';
import { MemoryBudget } from '../../src/runtime/memory-budget.ts';
import { eventually } from '../support/eventually.ts';

/** What a WebSocket is like from inside, without any database. */
const KEEPALIVE_MS = 100;
const PATIENT: ServerDeadlines = { headersTimeoutMs: 10_000, requestTimeoutMs: 10_000, keepAliveTimeoutMs: 10_000, sendTimeoutMs: 10_000 };
const streams: WebSocketStream[] = [];
let bodies: MemoryBudget;
let sockets: WebSocketEndpoint;
let door: HttpServer;
let url: string;

beforeEach(async () => {
  streams.length = 0;
  bodies = new MemoryBudget({ perOrganizationBytes: 25_000_000, allBytes: 60_000_000 });
  sockets = new WebSocketEndpoint({
    openWire: (stream) => streams.push(stream.on('error', () => {})),
    clientAddress: ({ remoteAddress = '' }) => remoteAddress,
    maxFrameBytes: 16_000_000,
    connections: { authenticated() {} },
    isRefused: () => false,
    bodies,
    keepAliveMs: KEEPALIVE_MS,
  });
  door = createServer((_request, reply) => reply.end(), PATIENT, undefined, sockets.takeOver);
  door.server.listen(0, '127.0.0.1');
  await once(door.server, 'listening');
  url = `ws://127.0.0.1:${(door.server.address() as AddressInfo).port}/v2`;
});
afterEach(async () => {
  sockets.close(0);
  door.closeAll();
  door.server.close();
  await once(door.server, 'close');
});

interface Open {
  readonly webSocket: WebSocket;
  readonly stream: WebSocketStream;
}

async function open(options: { readonly autoPong?: boolean } = {}): Promise<Open> {
  const webSocket = new WebSocket(url, options);
  webSocket.on('error', () => {});
  await once(webSocket, 'open');
  await eventually('the stream', () => streams.length > 0);
  const stream = streams.shift();
  if (stream === undefined) throw new Error('no stream');
  return { webSocket, stream };
}

it('a client that answers pings stays, one that does not is gone', async () => {
  const living = await open();
  const dead = await open({ autoPong: false });
  living.stream.resume();
  dead.stream.resume();
  await once(dead.stream, 'close');
  for (let n = 0; n < 3; n += 1) await once(living.webSocket, 'ping');
  expect(living.webSocket.readyState).toBe(WebSocket.OPEN);
});

it('a client that is not being read is not expected to answer', async () => {
  const { webSocket, stream } = await open({ autoPong: false });
  stream.known('org');
  // More than the kernel takes for both ends of a connection.
  const data = Buffer.alloc(1_000_000, 'x');
  for (let n = 0; n < 80; n += 1) webSocket.send(data);
  const other = await open();
  other.stream.resume();
  for (let n = 0; n < 4; n += 1) await once(other.webSocket, 'ping');
  expect(webSocket.bufferedAmount).toBeGreaterThan(0);
  let received = 0;
  stream.on('data', (chunk: Buffer) => {
    received += chunk.length;
  });
  await eventually('all of it', () => received === 80_000_000);
});

it('what a client does not take is kept in sight', async () => {
  const { webSocket, stream } = await open();
  stream.resume();
  webSocket.pause();
  const chunk = Buffer.alloc(1_000_000, 'x');
  for (let n = 0; n < 30; n += 1) stream.write(chunk);
  expect(stream.writableLength).toBeGreaterThan(1_000_000);
  const drained = once(stream, 'drain');
  webSocket.resume();
  await drained;
  expect(stream.writableLength).toBe(0);
});

it('a client that closes ends the stream behind what it has sent', async () => {
  const { webSocket, stream } = await open();
  webSocket.send(Buffer.from('last words'));
  webSocket.close();
  await once(webSocket, 'close');
  const chunks: Buffer[] = [];
  for await (const chunk of stream) chunks.push(chunk);
  expect(Buffer.concat(chunks).toString()).toBe('last words');
  await eventually('the stream to be closed', () => stream.closed);
});

it('the end of the stream closes the WebSocket behind what was written', async () => {
  const { webSocket, stream } = await open();
  const received: Buffer[] = [];
  webSocket.on('message', (data: Buffer) => received.push(data));
  stream.resume();
  stream.end('last words');
  const [code] = await once(webSocket, 'close');
  expect([code, Buffer.concat(received).toString()]).toEqual([1000, 'last words']);
});

it('nobody new is let in while closing, and those who stay are dropped', async () => {
  const { webSocket, stream } = await open();
  stream.resume();
  sockets.close(50);
  const late = new WebSocket(url);
  const [error] = await once(late, 'error');
  expect(String(error)).toContain('200');
  await once(webSocket, 'close');
});

it('what clients send before it is known who they are has to find room', async () => {
  // Four of the largest frames, and nothing more.
  const clients = [];
  for (let n = 0; n < 7; n += 1) clients.push(await open());
  const most = Buffer.alloc(10_000_000, 'x');
  const left = Promise.race(clients.map(async (client) => once(client.webSocket, 'close').then(() => client)));
  // Frames that are not whole.
  for (const { webSocket } of clients) webSocket.send(most, { fin: false });
  const loser = await left;
  const [winner, ...others] = clients.filter((client) => client !== loser);
  if (winner === undefined) throw new Error('nobody is left');
  winner.webSocket.send('y');
  const come = counted(winner.stream);
  await eventually('all of its frame', () => come.bytes === most.length + 1);
  winner.stream.known('org');
  // From now on it takes no room.
  const next = await open();
  const nextCome = counted(next.stream);
  for (const { webSocket } of [winner, next]) webSocket.send(most);
  await eventually('both frames', () => come.bytes === 2 * most.length + 1 && nextCome.bytes === most.length);
  for (const { webSocket } of others) expect(webSocket.readyState).toBe(WebSocket.OPEN);
});

it('what clients of one organization send takes room until it is handed on', async () => {
  const clients = [];
  for (let n = 0; n < 3; n += 1) clients.push(await open());
  const [first, second, third] = clients as [Open, Open, Open];
  for (const { stream } of clients) stream.known('org');
  const most = Buffer.alloc(10_000_000, 'x');
  // A frame of which nobody has read anything yet, and two that are not whole.
  first.webSocket.send(most);
  second.webSocket.send(most, { fin: false });
  await eventually('most of it', () => second.webSocket.bufferedAmount === 0);
  third.webSocket.send(most, { fin: false });
  const [code] = await once(third.webSocket, 'close');
  expect([1006, 1013]).toContain(code);
  third.stream.resume();
  expect(first.webSocket.readyState).toBe(WebSocket.OPEN);
  expect(second.webSocket.readyState).toBe(WebSocket.OPEN);
  const other = await open();
  other.stream.known('other');
  const otherCome = counted(other.stream);
  other.webSocket.send(most);
  await eventually('the frame of another organization', () => otherCome.bytes === most.length);
  const firstCome = counted(first.stream);
  await eventually('the first frame', () => firstCome.bytes === most.length);
  // There is room again.
  const next = await open();
  next.stream.known('org');
  const nextCome = counted(next.stream);
  next.webSocket.send(most);
  await eventually('the next frame', () => nextCome.bytes === most.length);
});

it('a large frame is handed on a piece at a time, and in the order in which it came', async () => {
  const { webSocket, stream } = await open();
  const sent = Buffer.from(Array.from({ length: 500_000 }, (_, index) => index % 251));
  for (const end of [1, 70_000, 70_000, 400_000, 500_000]) webSocket.send(sent.subarray(0, end));
  webSocket.close();
  const pieces: Buffer[] = [];
  stream.on('data', (piece: Buffer) => {
    pieces.push(piece);
    stream.pause();
    setImmediate(() => stream.resume());
  });
  await once(stream, 'close');
  expect(Math.max(...pieces.map(({ length }) => length))).toBeLessThanOrEqual(65_536);
  const wanted = Buffer.concat([1, 70_000, 70_000, 400_000, 500_000].map((end) => sent.subarray(0, end)));
  expect(Buffer.concat(pieces).equals(wanted)).toBe(true);
});

it('pings of a client take no room', async () => {
  const { webSocket, stream } = await open();
  stream.known('org');
  stream.resume();
  bodies.count('org', 24_900_000);
  for (let n = 0; n < 1_000; n += 1) {
    webSocket.ping(Buffer.alloc(120));
    await once(webSocket, 'pong');
  }
  webSocket.send('y', { binary: true });
  await once(stream, 'data');
  expect(webSocket.readyState).toBe(WebSocket.OPEN);
});

function counted(stream: WebSocketStream): { bytes: number } {
  const come = { bytes: 0 };
  stream.on('data', ({ length }: Buffer) => {
    come.bytes += length;
  });
  return come;
}
