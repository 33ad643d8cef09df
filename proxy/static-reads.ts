import { Socket } from 'node:net';

/** What Node's sockets are made of and its types do not show. */
interface Insides {
  _handle?: { reading?: boolean; useUserBuffer?: unknown } | null;
  _server?: object | null;
}

/** Where Windows is told to read long before there is anything, sockets cannot read into the same memory. */
const CAN_SHARE = process.platform !== 'win32';
const READ_BYTES = 65_536;
const memory = Buffer.allocUnsafeSlow(READ_BYTES);

/**
 * The same connection as a socket that reads into memory that all of them share, instead of having 64 kB allocated for each
 * read; its `data` events carry copies. Node lets only sockets that connect choose that (`onread`), so the handle of the
 * accepted one is put into another socket; where it has not got the shape that is known here, it stays as it is.
 * @see https://nodejs.org/api/net.html#socketconnectoptions-connectlistener
 */
export function withStaticReads(accepted: Socket): Socket {
  const insides = accepted as unknown as Insides;
  const handle = insides._handle;
  if (!CAN_SHARE || typeof handle?.useUserBuffer !== 'function' || insides._server === undefined) return accepted;
  const reader: { socket?: Socket } = {};
  const options = {
    handle,
    allowHalfOpen: accepted.allowHalfOpen,
    onread: {
      buffer: memory,
      callback: (bytes: number) => {
        reader.socket?.emit('data', Buffer.from(memory.subarray(0, bytes)));
        return true;
      },
    },
  };
  const socket = new Socket(options);
  reader.socket = socket;
  (socket as unknown as Insides)._server = insides._server;
  insides._server = null;
  insides._handle = null;
  return socket;
}
