import { subscribe } from 'node:diagnostics_channel';
import type { Socket } from 'node:net';
import { eventually } from '../support/eventually.ts';
import type { RawClient } from './raw-client.ts';

/** Of open connections, by the client's port. */
const sockets = new Map<number | undefined, Socket>();

subscribe('net.server.socket', (message) => {
  const { socket } = message as { readonly socket: Socket };
  const { remotePort } = socket;
  sockets.set(remotePort, socket);
  socket.once('close', () => sockets.delete(remotePort));
});

/** The door's end of a connection, where the door is in this process: it tells what has arrived there, and what has not left. */
export async function serverEnd({ socket: { localPort } }: RawClient): Promise<Socket> {
  await eventually('the connection is accepted', () => sockets.has(localPort));
  return sockets.get(localPort) as Socket;
}

/** Sends bytes, and waits until the door has them. */
export async function deliver(client: RawClient, bytes: string): Promise<void> {
  const end = await serverEnd(client);
  const expected = end.bytesRead + Buffer.byteLength(bytes, 'latin1');
  client.send(bytes);
  await eventually('it has arrived', () => end.bytesRead >= expected);
}
