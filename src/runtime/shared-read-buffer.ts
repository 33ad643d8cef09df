import { Buffer } from 'node:buffer';
import { Socket } from 'node:net';
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
