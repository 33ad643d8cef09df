import { once } from 'node:events';
import { linkSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { requestCancel } from '../../../src/backend/connection.ts';
import { makeScratch } from '../../support/scratch.ts';

it('is sent again to a server that has refused the connection at first', async () => {
  const scratch = await makeScratch();
  onTestFinished(() => scratch.remove());
  const received: string[] = [];
  const server = createServer((socket) => socket.on('data', (bytes) => received.push(bytes.toString('hex'))).on('end', () => socket.end()));
  server.listen(join(scratch.path, 'elsewhere'));
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  // The first connection is refused before this returns, so that the server is there for the second, however slow the machine is.
  const requested = requestCancel({ host: scratch.path, port: 1 }, 0x1234, 0x5678, 60_000);
  linkSync(join(scratch.path, 'elsewhere'), join(scratch.path, '.s.PGSQL.1'));
  const startedAt = performance.now();
  expect(await requested).toBe(true);
  expect(performance.now() - startedAt).toBeGreaterThan(40);
  expect(received).toEqual(['0000001004d2162e0000123400005678']);
});

it('is given up where nobody listens, and where the server does not close the connection in time', async () => {
  const scratch = await makeScratch();
  onTestFinished(() => scratch.remove());
  expect(await requestCancel({ host: scratch.path, port: 1 }, 1, 2, 5_000)).toBe(true);
  const server = createServer({ allowHalfOpen: true }, (socket) => socket.resume());
  server.listen(join(scratch.path, '.s.PGSQL.1'));
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  expect(await requestCancel({ host: scratch.path, port: 1 }, 1, 2, 50)).toBe(false);
});
