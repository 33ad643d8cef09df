import { once } from 'node:events';
import { type AddressInfo, createServer, type Server } from 'node:net';
import { createSecureContext, TLSSocket } from 'node:tls';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { BackendConnection } from '../../../src/backend/connection.ts';
import { CERTIFICATE, CERTIFICATE_KEY, OTHER_CERTIFICATE } from '../../support/certificate.ts';

/** AuthenticationOk, BackendKeyData, ReadyForQuery. */
const WELCOME = Buffer.from('5200000008000000004b0000000c00000007000000085a0000000549', 'hex');

/** A server that answers SSLRequest as it is told, and lets in who speaks TLS to it then; all it hears besides. */
let server: Server;
let answer: string;
let heard: string;
beforeEach(async () => {
  answer = 'S';
  heard = '';
  server = createServer((socket) => {
    socket.on('error', () => {});
    socket.once('data', () => {
      socket.write(answer);
      const inside = answer === 'S' ? new TLSSocket(socket, { isServer: true, secureContext: CONTEXT }) : socket;
      inside.on('error', () => {});
      inside.on('data', (chunk: Buffer) => {
        heard += chunk.toString('latin1');
        inside.write(WELCOME);
      });
    });
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
});
afterEach(() => {
  server.close();
});

const CONTEXT = createSecureContext({ cert: CERTIFICATE, key: CERTIFICATE_KEY });

function open(ssl: object): Promise<BackendConnection> {
  const { port } = server.address() as AddressInfo;
  return BackendConnection.open({ host: '127.0.0.1', port, user: 'u', password: 'p', database: 'd', ssl, connectTimeoutMs: 60_000 });
}

describe('a backend to be reached by TLS (T19)', () => {
  it('gets the login when its certificate is the right one', async () => {
    const backend = await open({ ca: CERTIFICATE });
    expect(heard).toContain('user\0u\0');
    heard = '';
    await backend.cancel();
    expect(heard).toBe('\0\0\0\x10\x04\xd2\x16\x2e\0\0\0\x07\0\0\0\x08');
    backend.destroy();
  });

  it.each(['N', 'SE'])('is sent no cancel request when it answers %s', async (said) => {
    const backend = await open({ ca: CERTIFICATE });
    answer = said;
    heard = '';
    await backend.cancel();
    expect(heard).toBe('');
    backend.destroy();
  });

  it.each([
    ['with the certificate of another name', { ca: CERTIFICATE, servername: 'db.example' }, 'ERR_TLS_CERT_ALTNAME_INVALID'],
    ['with a certificate that nobody vouches for', { ca: OTHER_CERTIFICATE }, 'DEPTH_ZERO_SELF_SIGNED_CERT'],
  ])('%s is told nothing', async (_how, ssl, code) => {
    await expect(open(ssl)).rejects.toMatchObject({ code });
    expect(heard).toBe('');
  });

  it.each([
    ['that speaks none', 'N', 'The server does not support SSL connections'],
    ['in whose name somebody has said more than it may in plaintext', 'SE', 'There was an error establishing an SSL connection'],
  ])('%s is told nothing', async (_how, said, message) => {
    answer = said;
    await expect(open({ ca: CERTIFICATE })).rejects.toThrow(message);
    expect(heard).toBe('');
  });
});
