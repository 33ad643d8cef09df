import { once } from 'node:events';
import { createServer, type Server } from 'node:net';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { BackendConnection } from '../../../src/backend/connection.ts';
import { eventually } from '../../support/eventually.ts';
import { makeScratch, type Scratch } from '../../support/scratch.ts';

/** AuthenticationOk, BackendKeyData, ReadyForQuery. */
const WELCOME = Buffer.from('5200000008000000004b0000000c00000007000000085a0000000549', 'hex');
const TERMINATE = 'X\0\0\0\x04';

/** A server that lets everybody in, and what it hears then. */
let scratch: Scratch;
let server: Server;
let heard: string;
let backend: BackendConnection;
beforeEach(async () => {
  scratch = await makeScratch();
  heard = '';
  server = createServer((socket) => {
    socket.once('data', () => {
      socket.write(WELCOME);
      socket.on('data', (chunk: Buffer) => {
        heard += chunk.toString('latin1');
      });
    });
  }).listen(join(scratch.path, '.s.PGSQL.5432'));
  await once(server, 'listening');
  const login = { host: scratch.path, port: 5432, user: 'u', password: 'p', database: 'd', connectTimeoutMs: 5_000 };
  backend = await BackendConnection.open(login);
});
afterEach(async () => {
  backend.destroy();
  server.close();
  await scratch.remove();
});

/** What the connection has ended with. */
function failure(): Promise<Error | undefined> {
  return new Promise((resolve) => backend.attach({ data() {}, drain() {}, closed: resolve }));
}

describe('what is to be written soon', () => {
  const LARGE = Buffer.alloc(100_000, 'L');

  it('goes out in order with what is written at once', async () => {
    backend.writeSoon(Buffer.from('1'));
    backend.writeSoon(Buffer.from('2'));
    backend.write(Buffer.from('3'));
    backend.writeSoon(Buffer.from('4'));
    backend.writeSoon(LARGE);
    backend.writeSoon(Buffer.from('5'));
    await eventually('all is there', () => heard.length >= LARGE.length + 5);
    expect(heard).toBe(`1234${LARGE.toString('latin1')}5`);
  });

  it('goes out ahead of Terminate', async () => {
    backend.writeSoon(Buffer.from('soon'));
    backend.end();
    expect(await failure()).toBeUndefined();
    expect(heard).toBe(`soon${TERMINATE}`);
  });

  it('is forgotten with a connection that is dropped', async () => {
    backend.writeSoon(Buffer.from('soon'));
    backend.destroy();
    expect(await failure()).toBeUndefined();
  });
});
