import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { setImmediate as turn } from 'node:timers/promises';
import { type ConnectionOptions, createSecureContext, TLSSocket, connect as tlsConnect } from 'node:tls';
import { encodeBackendMessage } from '../../src/protocol/backend.ts';
import { encodeFrontend } from '../conversations/frontend-message.ts';

/** TLS from the client's side, and the TCP connection beneath it. Certificates are not looked at unless options say so. */
export interface TlsConnection {
  readonly secure: TLSSocket;
  readonly plain: Socket;
}

/**
 * TLS after an SSLRequest, as clients have always begun it.
 * @throws Error when the server's answer is not `S`, or the handshake fails
 */
export async function requestTls(port: number, options: ConnectionOptions = {}): Promise<TlsConnection> {
  const plain = connect(port, '127.0.0.1');
  plain.write(encodeFrontend('SSLRequest'));
  const [answer] = await once(plain, 'data');
  if (String(answer) !== 'S') throw new Error(`the server answered ${answer}`);
  return handshake(plain, options);
}

/**
 * TLS from the first byte, as since PostgreSQL 17.
 * @throws Error when the handshake fails
 */
export function directTls(port: number, options: ConnectionOptions = {}): Promise<TlsConnection> {
  return handshake(connect(port, '127.0.0.1'), options);
}

async function handshake(plain: Socket, options: ConnectionOptions): Promise<TlsConnection> {
  const secure = tlsConnect({ socket: plain, rejectUnauthorized: false, ...options });
  await once(secure, 'secureConnect');
  secure.on('error', () => {});
  return { secure, plain };
}

/** Somebody between a client and a server, who listens on a port of his own. */
export interface Relay {
  readonly port: number;
  /** Stops listening and drops all connections. */
  close(): void;
}

/** Passes on what clients send byte by byte, and keeps what the server answers. */
export async function startWiretap(port: number): Promise<Relay & { readonly answered: Buffer[] }> {
  const answered: Buffer[] = [];
  const relay = await startRelay(async (client) => {
    const server = connect({ port, host: '127.0.0.1', noDelay: true });
    server.on('data', (bytes) => answered.push(bytes)).on('error', () => {});
    server.pipe(client);
    for await (const bytes of client) {
      for (const byte of bytes) {
        server.write(Buffer.of(byte));
        await turn();
      }
    }
    server.end();
  });
  return { ...relay, answered };
}

/** Speaks TLS with both sides, to the client with a certificate of his own, and reads everything. */
export function startImpostor(port: number, cert: string, key: string): Promise<Relay> {
  return startRelay(async (client) => {
    await once(client, 'readable');
    client.read(8);
    client.write('S');
    const inside = new TLSSocket(client, { isServer: true, secureContext: createSecureContext({ cert, key }) });
    const { secure } = await requestTls(port);
    inside.on('error', () => {});
    inside.pipe(secure).pipe(inside);
  });
}

/** Passes everything on until it is told to spoil what the server says; that clients close is not passed on. */
export async function startSaboteur(port: number): Promise<Relay & { spoil: boolean; readonly saidSince: Buffer[] }> {
  const saboteur = { spoil: false, saidSince: [] as Buffer[] };
  const relay = await startRelay(async (client) => {
    const server = connect({ port, host: '127.0.0.1', noDelay: true });
    server.on('data', (bytes) => {
      if (saboteur.spoil) bytes.writeUInt8(bytes.readUInt8(bytes.length - 1) ^ 0xff, bytes.length - 1);
      client.write(bytes);
    });
    server.on('error', () => {}).on('close', () => client.destroy());
    for await (const bytes of client) {
      if (saboteur.spoil) saboteur.saidSince.push(bytes);
      server.write(bytes);
    }
  });
  return Object.assign(saboteur, relay);
}

/** Speaks TLS with a certificate of his own, and asks whoever logs in for the password as it is. */
export async function startThief(cert: string, key: string): Promise<Relay & { readonly stolen: string[] }> {
  const stolen: string[] = [];
  const relay = await startRelay(async (client) => {
    await once(client, 'readable');
    client.read(8);
    client.write('S');
    const inside = new TLSSocket(client, { isServer: true, secureContext: createSecureContext({ cert, key }) });
    inside.on('error', () => {});
    await once(inside, 'data');
    inside.write(encodeBackendMessage({ name: 'AuthenticationCleartextPassword' }));
    const [password] = await once(inside, 'data');
    stolen.push(password.toString());
    inside.destroy();
  });
  return { ...relay, stolen };
}

/** Passes everything on, unread. */
export function startPassage(host: string, port: number): Promise<Relay> {
  return startRelay(async (client) => join(client, connect({ host, port, noDelay: true })));
}

/** Brings each client that begins TLS to the port that is chosen by what it says first: its ClientHello. */
export function startFork(choose: (hello: Buffer) => number): Promise<Relay> {
  return startRelay(async (client) => {
    await once(client, 'readable');
    const request = client.read(8);
    client.write('S');
    await once(client, 'readable');
    const hello: Buffer = client.read();
    const further = connect({ host: '127.0.0.1', port: choose(hello), noDelay: true });
    further.write(request);
    await once(further, 'readable');
    further.read(1);
    further.write(hello);
    join(client, further);
  });
}

function join(one: Socket, other: Socket): void {
  one.on('close', () => other.destroy());
  other.on('error', () => {}).on('close', () => one.destroy());
  one.pipe(other).pipe(one);
}

async function startRelay(relay: (client: Socket) => Promise<void>): Promise<Relay> {
  const clients = new Set<Socket>();
  const server: Server = createServer({ noDelay: true }, (client) => {
    clients.add(client);
    client.on('error', () => {}).on('close', () => clients.delete(client));
    relay(client).catch(() => client.destroy());
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  return {
    port: (server.address() as AddressInfo).port,
    close() {
      server.close();
      for (const client of clients) client.destroy();
    },
  };
}

/** Lengths of the TLS records in a stream of them, whose first is a handshake's (RFC 8446 section 5.1). */
export function recordLengths(bytes: Buffer): number[] {
  const lengths: number[] = [];
  for (let at = 0; at + 5 <= bytes.length; at += 5 + (lengths.at(-1) ?? 0)) lengths.push(bytes.readUInt16BE(at + 3));
  return lengths;
}
