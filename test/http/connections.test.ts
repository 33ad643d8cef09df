import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { WebSocket } from 'ws';
import { CERTIFICATE, CERTIFICATE_KEY } from '../support/certificate.ts';
import { eventually } from '../support/eventually.ts';
import { makeScratch } from '../support/scratch.ts';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';
import { plainRequest, RawClient } from './raw-client.ts';

const UNKNOWN_KEY = `pst_${'0'.repeat(36)}`;
const WARNING = /^the HTTP door has as many connections as it may have \(POSTERN_HTTP_CONNECTIONS_MAX\)/;

let service: TestService;
const clients: RawClient[] = [];
afterEach(async () => {
  for (const { socket } of clients.splice(0)) socket.destroy();
  await service.close();
});

const port = () => Number(new URL(service.httpUrl).port);

async function open(isTls = false): Promise<RawClient> {
  const client = isTls ? await RawClient.openTls(port()) : await RawClient.open(port());
  clients.push(client);
  return client;
}

const asking = ({ apiKey }: TestOrganization) => plainRequest(apiKey, { sql: 'SELECT 1 AS one' });

/** Has shown its key. */
async function openAs(organization: TestOrganization, isTls = false): Promise<RawClient> {
  const client = await open(isTls);
  expect((await client.ask(asking(organization))).status).toBe(200);
  return client;
}

/** A body that does not come as a whole. */
const halfOf = (key: string, path = '/api/query') =>
  `POST ${path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${key}\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"sql":`;

/** Closes it, and waits until the door knows. */
async function close({ socket }: RawClient): Promise<void> {
  const gone = () => service.observations.filter(({ name }) => name === 'http.disconnected').length;
  const before = gone();
  socket.destroy();
  await eventually('the door knows that it has gone', () => gone() > before);
}

/** Two organizations, and nothing else open. */
async function signUpTwo(): Promise<[TestOrganization, TestOrganization]> {
  const headers = { connection: 'close' };
  const signUp = async (email: string) => {
    const { body } = await service.call('POST', '/api/auth/signup', { body: { orgName: 'Acme', email }, headers });
    return body as TestOrganization;
  };
  return [await signUp('one@acme.test'), await signUp('two@acme.test')];
}

describe('at the maximum of connections', () => {
  it('the oldest goes on which no valid key has been seen, and those with one stay', async () => {
    service = await startTestService({ POSTERN_HTTP_CONNECTIONS_MAX: '8' });
    const [acme] = await signUpTwo();
    const known = await openAs(acme);
    const strangers: RawClient[] = [];
    for (let n = 0; n < 7; n++) strangers.push(await open());
    for (const stranger of strangers) stranger.send(halfOf(UNKNOWN_KEY));
    for (let n = 0; n < 3; n++) {
      const latest = await openAs(acme);
      await strangers[n]?.rest;
      await close(latest);
      strangers.push(await open());
    }
    expect(strangers.map(({ socket }) => socket.closed)).toEqual([true, true, true, ...Array(7).fill(false)]);
    expect((await known.ask(asking(acme))).status).toBe(200);
    const warnings = service.observations.filter((seen) => seen.name === 'service.warning' && WARNING.test(seen.message));
    expect(warnings).toHaveLength(1);
  });

  it('an organization keeps no more than it leaves for others', async () => {
    service = await startTestService({ POSTERN_HTTP_CONNECTIONS_MAX: '8' });
    const [greedy, other] = await signUpTwo();
    const held: RawClient[] = [];
    for (let n = 0; n < 8; n++) held.push(await openAs(greedy));
    const mine: RawClient[] = [];
    for (let n = 0; n < 2; n++) mine.push(await openAs(other));
    for (let n = 0; n < 20; n++) held.push(await openAs(greedy));
    const left = () => held.filter(({ socket }) => !socket.closed).length;
    await eventually('the others are closed', () => left() <= 6);
    for (const client of mine) expect((await client.ask(asking(other))).status).toBe(200);
    expect(left()).toBe(6);
  });

  it('a WebSocket counts, and stays once it has logged in', async () => {
    service = await startTestService({ POSTERN_HTTP_CONNECTIONS_MAX: '4' });
    const [acme] = await signUpTwo();
    const url = `ws://127.0.0.1:${port()}/v2`;
    const stranger = new WebSocket(url);
    await once(stranger, 'open');
    const gone = once(stranger, 'close');
    const webSocket = new WebSocket(url);
    await once(webSocket, 'open');
    webSocket.send(startup(acme.id));
    webSocket.send(passwordMessage(acme.apiKey));
    const seen: Buffer[] = [];
    webSocket.on('message', (data: Buffer) => seen.push(data));
    await eventually('ReadyForQuery', () => Buffer.concat(seen).includes('Z\0\0\0\x05I', 0, 'latin1'));
    for (let n = 0; n < 6; n++) await openAs(acme);
    await gone;
    expect(webSocket.readyState).toBe(WebSocket.OPEN);
    webSocket.terminate();
  });

  it('it is the same over TLS, where handshakes that do not end count', async () => {
    const scratch = await makeScratch();
    const [cert, key] = [join(scratch.path, 'cert.pem'), join(scratch.path, 'key.pem')];
    await writeFile(cert, CERTIFICATE);
    await writeFile(key, CERTIFICATE_KEY);
    service = await startTestService({ POSTERN_HTTP_CONNECTIONS_MAX: '4', POSTERN_TLS_CERT: cert, POSTERN_TLS_KEY: key });
    const signingUp = await open(true);
    const text = JSON.stringify({ orgName: 'Acme', email: 'ada@acme.test' });
    const signedUp = await signingUp.ask(
      `POST /api/auth/signup HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: ${text.length}\r\n\r\n${text}`,
    );
    const acme = JSON.parse(signedUp.body) as TestOrganization;
    await signingUp.rest;
    await eventually('it is gone', () => service.observations.some(({ name }) => name === 'http.disconnected'));
    const known = await openAs(acme, true);
    const [silent, late] = [await open(), await open(true)];
    await open(true);
    await open(true);
    await silent.rest;
    expect(late.socket.closed).toBe(false);
    await openAs(acme, true);
    await late.rest;
    expect((await known.ask(asking(acme))).status).toBe(200);
    await scratch.remove();
  });
});

describe('a request whose body does not come', () => {
  const DEADLINES = { POSTERN_HTTP_HEADERS_TIMEOUT_MS: '2000', POSTERN_HTTP_REQUEST_TIMEOUT_MS: '60000' };

  it.each([
    ['with an unknown key', halfOf(UNKNOWN_KEY), 401],
    ['with an unknown key, elsewhere', halfOf(UNKNOWN_KEY, '/api/transaction'), 401],
    ['where none is needed', halfOf(UNKNOWN_KEY, '/api/auth/signup'), 408],
    ['at a path that there is not', halfOf(UNKNOWN_KEY, '/nowhere'), 404],
  ])('%s has as long as its headers', async (_, half, status) => {
    service = await startTestService(DEADLINES);
    const client = await open();
    client.send(half);
    const { replies } = await client.replies();
    expect(replies.map((reply) => reply.status)).toEqual([status]);
  });

  it('with a valid key has the time of a request', async () => {
    service = await startTestService(DEADLINES);
    const [acme] = await signUpTwo();
    const elsewhere = await open();
    for (const client of [await openAs(acme), elsewhere]) {
      const half = halfOf(acme.apiKey, client === elsewhere ? '/api/transaction' : '/api/query');
      client.send(half);
    }
    // Those of a stranger that came later are over.
    const stranger = await open();
    stranger.send(halfOf(UNKNOWN_KEY));
    await stranger.rest;
    expect(clients.map(({ socket }) => socket.closed)).toEqual([false, false, true]);
  });
});

function startup(user: string): Buffer {
  const text = Buffer.from(`\0\x03\0\0user\0${user}\0database\0${user}\0\0`, 'latin1');
  return Buffer.concat([lengthOf(text), text]);
}

function passwordMessage(apiKey: string): Buffer {
  const text = Buffer.from(`${apiKey}\0`);
  return Buffer.concat([Buffer.from('p'), lengthOf(text), text]);
}

function lengthOf(text: Buffer): Buffer {
  const length = Buffer.alloc(4);
  length.writeInt32BE(text.length + 4);
  return length;
}
