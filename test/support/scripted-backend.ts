import { once } from 'node:events';
import { createServer, type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import { BackendConnection } from '../../src/backend/connection.ts';
import { makeScratch } from './scratch.ts';

/** AuthenticationOk, BackendKeyData, ReadyForQuery. */
const WELCOME = Buffer.from('5200000008000000004b0000000c00000007000000085a0000000549', 'hex');
const CANCEL_REQUEST_CODE = 80_877_102;

/** A session whose server says what it is told to say. */
export interface ScriptedBackend {
  readonly backend: BackendConnection;
  /** What the server has heard since the login, byte by character. */
  readonly heard: string;
  /** Connections with cancel requests, which are not closed until somebody does it. */
  readonly cancels: Socket[];
  say(bytes: string | Buffer): void;
  /** Has the server not notice that its client has closed its side. */
  holdOpen(): void;
  close(): Promise<void>;
}

export async function openScriptedBackend(): Promise<ScriptedBackend> {
  const scratch = await makeScratch();
  const cancels: Socket[] = [];
  let heard = '';
  let session: Socket | undefined;
  const server: Server = createServer((socket) => {
    socket.once('data', (first: Buffer) => {
      if (first.readInt32BE(4) === CANCEL_REQUEST_CODE) {
        socket.allowHalfOpen = true;
        cancels.push(socket);
        return;
      }
      socket.write(WELCOME);
      session = socket;
      socket.on('data', (chunk: Buffer) => {
        heard += chunk.toString('latin1');
      });
    });
  }).listen(join(scratch.path, '.s.PGSQL.5432'));
  await once(server, 'listening');
  const login = { host: scratch.path, port: 5432, user: 'u', password: 'p', database: 'd', connectTimeoutMs: 60_000 };
  const backend = await BackendConnection.open(login);
  return {
    backend,
    get heard() {
      return heard;
    },
    cancels,
    say(bytes) {
      session?.write(bytes);
    },
    holdOpen() {
      if (session !== undefined) session.allowHalfOpen = true;
    },
    async close() {
      for (const socket of cancels) socket.destroy();
      backend.destroy();
      server.close();
      await scratch.remove();
    },
  };
}
