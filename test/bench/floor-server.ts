/**
 * The least that Node can do between a client and PostgreSQL: sockets that are relayed as they are, one to one, read into
 * memory that they share. It knows no protocol and pools nothing. A process of its own; started with the path of
 * PostgreSQL's Unix socket; says its port.
 */
import { connect, createServer, type Socket } from 'node:net';
import { readIntoSharedBuffer } from '../../src/runtime/reused-read-buffers.ts';

const path = process.argv[2] ?? '';
const READ_BYTES = 65_536;
const memory = Buffer.allocUnsafeSlow(READ_BYTES);

const server = createServer({ noDelay: true }, (client) => {
  readIntoSharedBuffer(client);
  const backend = connect({
    path,
    onread: {
      buffer: memory,
      callback: (bytes) => {
        client.write(Buffer.from(memory.subarray(0, bytes)));
        return true;
      },
    },
  });
  client.on('data', (chunk) => backend.write(chunk));
  endTogether(client, backend);
  endTogether(backend, client);
});
server.listen(0, '127.0.0.1', () => process.stdout.write(`${JSON.stringify(server.address())}\n`));

function endTogether(one: Socket, other: Socket): void {
  one.on('error', () => {}).on('close', () => other.destroy());
}
