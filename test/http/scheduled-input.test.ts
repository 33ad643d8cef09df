import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { finished } from 'node:stream/promises';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { ScheduledInput } from '../../http/scheduled-input.ts';
import { InputScheduler } from '../../src/runtime/input-scheduler.ts';
import { readIntoSharedBuffer, readThroughStream } from '../../src/runtime/reused-read-buffers.ts';

const READ_BYTES = 65_536;
const COME = Buffer.alloc(10_000, 'c');
/** No two parts are the same. */
const SENT = Buffer.from(Array.from({ length: 300_000 }, (_, n) => n.toString().padStart(8)).join(''));

let client: Socket;
let socket: Socket;
let heard: Buffer[];
/** The most that had been read and not been handed on. */
let heldMost: number;
beforeEach(async () => {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  client = connect(typeof address === 'object' && address !== null ? address.port : 0, '127.0.0.1');
  [socket] = await once(server, 'connection');
  server.close();
  // As on a connection that the fast path gives up.
  readIntoSharedBuffer(socket);
  readThroughStream(socket);
  heard = [];
  heldMost = 0;
});
afterEach(() => {
  client.destroy();
  socket.destroy();
});

/** Each part takes longer than a turn may. */
function slowly(): InputScheduler {
  let now = 0;
  return new InputScheduler(() => ++now);
}

function listen(): void {
  let handedOn = 0;
  socket.on('data', (part: Buffer) => {
    heldMost = Math.max(heldMost, COME.length + socket.bytesRead - handedOn);
    handedOn += part.length;
    heard.push(part);
  });
}

it('hands on all that is sent, in order and in parts, and reads no more while a part is left', async () => {
  socket.pause();
  ScheduledInput.start(socket, slowly(), COME);
  listen();
  socket.resume();
  client.end(SENT);
  await finished(socket, { writable: false });
  expect(Buffer.concat(heard).equals(Buffer.concat([COME, SENT]))).toBe(true);
  expect(Math.max(...heard.map(({ length }) => length))).toBe(4_096);
  expect(heldMost).toBeLessThanOrEqual(COME.length + READ_BYTES);
});

it('hands on nothing while the stream is paused', async () => {
  socket.pause();
  ScheduledInput.start(socket, slowly(), COME);
  listen();
  socket.resume();
  client.end(SENT);
  for (let pauses = 0; pauses < 50; pauses += 1) {
    await once(socket, 'data');
    socket.pause();
    // As Node's HTTP server does.
    Object.assign(Reflect.get(socket, '_handle'), { reading: false }).readStop();
    const count = heard.length;
    await new Promise((resolve) => setImmediate(() => setImmediate(resolve)));
    expect(heard).toHaveLength(count);
    socket.resume();
  }
  await finished(socket, { writable: false });
  expect(Buffer.concat(heard).equals(Buffer.concat([COME, SENT]))).toBe(true);
  expect(heldMost).toBeLessThanOrEqual(COME.length + READ_BYTES);
});

const lengths = () => heard.map(({ length }) => length);

it('hands on longer parts of an organization while they are handled quickly', async () => {
  let now = 0;
  socket.pause();
  ScheduledInput.start(socket, new InputScheduler(() => now), COME);
  ScheduledInput.of(socket)?.belongsTo('org_a');
  listen();
  socket.on('data', () => {
    if (lengths().at(-2) === 32_768) now += 1;
  });
  socket.resume();
  client.end(SENT);
  await finished(socket, { writable: false });
  expect(Math.max(...lengths())).toBe(32_768);
  // The part that follows one of the longest takes a millisecond; the one after that is short again.
  const afterSlow = lengths().filter((_, n) => lengths()[n - 2] === 32_768);
  expect(Math.max(...afterSlow)).toBe(4_096);
  expect(Buffer.concat(heard).equals(Buffer.concat([COME, SENT]))).toBe(true);
});

it('hands on short parts only, where no valid key has been seen', async () => {
  socket.pause();
  ScheduledInput.start(socket, new InputScheduler(() => 0), COME);
  listen();
  socket.resume();
  client.end(SENT);
  await finished(socket, { writable: false });
  expect(Math.max(...lengths())).toBe(4_096);
});
