import { once } from 'node:events';
import { connect } from 'node:net';
import type { Doors } from './doors.ts';

const CANCEL_REQUEST = 80_877_102;

/** CancelRequest on a connection of its own; resolves with what came back when the server has closed it. */
export async function requestCancel({ wirePort }: Pick<Doors, 'wirePort'>, processId: number, secret: Buffer): Promise<Buffer> {
  const request = Buffer.alloc(12 + secret.length);
  request.writeInt32BE(request.length, 0);
  request.writeInt32BE(CANCEL_REQUEST, 4);
  request.writeInt32BE(processId, 8);
  secret.copy(request, 12);
  const socket = connect(wirePort, '127.0.0.1');
  const received: Buffer[] = [];
  socket.on('data', (chunk) => received.push(chunk));
  socket.write(request);
  await once(socket, 'close');
  return Buffer.concat(received);
}
