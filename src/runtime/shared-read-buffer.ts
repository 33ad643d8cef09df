import { Buffer } from 'node:buffer';
import { Socket } from 'node:net';
import { copyBytes } from './bytes.ts';

/** Where Windows is told to read long before there is anything, sockets cannot read into the same memory. */
const CAN_SHARE = process.platform !== 'win32';
const READ_BYTES = 65_536;
const memory = Buffer.allocUnsafeSlow(READ_BYTES);

/** Where a socket keeps the two parts of its option `onread`; undefined in a Node that is made differently. */
const [BUFFER, CALLBACK] = ['kBuffer', 'kBufferCb'].map((name) =>
  Object.getOwnPropertySymbols(new Socket()).find(({ description }) => description === name),
);

/**
 * Has an accepted socket read into memory that all of them share, instead of having 64 kB allocated for each read; its `data`
 * events carry copies. Node lets only sockets that connect choose that (`onread`), so it is done to the accepted one what
 * that option would have done; where it has not got the shape that is known here, it stays as it is.
 * @see https://nodejs.org/api/net.html#socketconnectoptions-connectlistener
 */
export function readIntoSharedBuffer(socket: Socket): void {
  const handle: { useUserBuffer?: (memory: Uint8Array) => void } | null | undefined = Reflect.get(socket, '_handle');
  if (!CAN_SHARE || BUFFER === undefined || CALLBACK === undefined || typeof handle?.useUserBuffer !== 'function') return;
  handle.useUserBuffer(memory);
  Reflect.set(socket, BUFFER, memory);
  Reflect.set(socket, CALLBACK, (bytes: number) => {
    socket.emit('data', taken(bytes));
    return true;
  });
}

/** From now on what such a socket reads goes through its stream again, for those who use it in other ways than by `data` events. */
export function readThroughStream(socket: Socket): void {
  if (CALLBACK !== undefined && Reflect.get(socket, CALLBACK) != null)
    Reflect.set(socket, CALLBACK, (bytes: number) => socket.push(taken(bytes)));
}

/** What has just been read, out of the memory of all. */
function taken(bytes: number): Buffer {
  const chunk = Buffer.allocUnsafe(bytes);
  copyBytes(memory, 0, bytes, chunk, 0);
  return chunk;
}
