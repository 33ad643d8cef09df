import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { type IncomingMessage, request } from 'node:http';
import { request as secureRequest } from 'node:https';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { WebSocket } from 'ws';
import { mask, unmask } from '../../http/neon/websocket.ts';
import { CERTIFICATE, CERTIFICATE_KEY } from '../support/certificate.ts';
import { eventually } from '../support/eventually.ts';
import { queryMessage } from '../support/raw-session.ts';
import { makeScratch } from '../support/scratch.ts';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';
import { talk } from './door.ts';

describe('masking', () => {
  const key = Buffer.from('37fa213d', 'hex');
  const payload = Buffer.from(Array.from({ length: 64 }, (_, at) => at * 7));
  const places = [0, 1, 2, 3].flatMap((offset) => [0, 1, 2, 3, 4, 5, 7, 8, 23, 24, 47].map((length) => [offset, length] as const));

  it.each(places)('is as RFC 6455 says, byte by byte: from %i, %i bytes', (offset, length) => {
    const source = payload.subarray(0, length);
    const masked = Buffer.from(source.map((byte, at) => byte ^ (key[at % 4] ?? 0)));
    const output = Buffer.alloc(80, 'x');
    mask(payload, key, output, offset, length);
    expect(output).toEqual(Buffer.concat([Buffer.alloc(offset, 'x'), masked, Buffer.alloc(80 - offset - length, 'x')]));
    const inPlace = output.subarray(offset, offset + length);
    unmask(inPlace, key);
    expect(inPlace).toEqual(source);
  });
});

/** The wire protocol over WebSockets, byte by byte; Neon's clients, which speak it so, are in test/clients. */
let service: TestService;
let acme: TestOrganization;
beforeAll(async () => {
  service = await startTestService({ POSTERN_TRUST_PROXY: '127.0.0.1' });
  acme = await service.signUp();
});
afterAll(() => service.close());

interface Conversation {
  readonly webSocket: WebSocket;
  /** What has come so far, as Latin-1. */
  heard(): string;
  until(text: string): Promise<void>;
  /** The code it was closed with. */
  readonly closed: Promise<number>;
}

const urlOf = ({ httpUrl }: TestService, path = '/v2') => httpUrl.replace('http:', 'ws:') + path;

async function converse(url: string, headers: Record<string, string> = {}): Promise<Conversation> {
  const webSocket = new WebSocket(url, { headers });
  const chunks: Buffer[] = [];
  webSocket.on('message', (data: Buffer) => chunks.push(data));
  webSocket.on('error', () => {});
  const closed = new Promise<number>((resolve) => webSocket.once('close', resolve));
  await once(webSocket, 'open');
  const heard = () => Buffer.concat(chunks).toString('latin1');
  return {
    webSocket,
    heard,
    until: (text) => {
      // Looks at each chunk once, together with the end of those before: there may be many.
      let [looked, end] = [0, ''];
      return eventually(`${JSON.stringify(text)} to come`, () => {
        for (const chunk of chunks.slice(looked)) {
          const part = end + chunk.toString('latin1');
          if (part.includes(text)) return true;
          looked += 1;
          end = part.slice(-text.length);
        }
        return false;
      });
    },
    closed,
  };
}

function counted(type: string, body: string): Buffer {
  const length = Buffer.alloc(4);
  length.writeInt32BE(body.length + 4);
  return Buffer.concat([Buffer.from(type), length, Buffer.from(body, 'latin1')]);
}

const startup = ({ id }: TestOrganization) => counted('', `\0\x03\0\0user\0${id}\0database\0${id}\0application_name\0socket\0\0`);
const password = (key: string) => counted('p', `${key}\0`);
const ASKS_FOR_PASSWORD = 'R\0\0\0\x08\0\0\0\x03';
const LOGGED_IN = 'R\0\0\0\x08\0\0\0\0';
const READY = 'Z\0\0\0\x05I';
const TERMINATE = Buffer.from('X\0\0\0\x04');

/** One that is logged in. */
async function session(headers?: Record<string, string>): Promise<Conversation> {
  const conversation = await converse(urlOf(service), headers);
  conversation.webSocket.send(Buffer.concat([startup(acme), password(acme.apiKey)]));
  await conversation.until(READY);
  return conversation;
}

/** The status line and body of the answer to a request that asks for something else than HTTP/1.1. */
async function askToUpgrade(path: string, upgrade: Record<string, string>, body?: string): Promise<{ status: number; text: string }> {
  const asking = request(`${service.httpUrl}${path}`, {
    method: body === undefined ? 'GET' : 'POST',
    headers: { connection: 'Upgrade', ...upgrade },
  });
  asking.end(body);
  const [reply]: [IncomingMessage] = (await once(asking, 'response')) as [IncomingMessage];
  const chunks: Buffer[] = [];
  for await (const chunk of reply) chunks.push(chunk);
  return { status: reply.statusCode ?? 0, text: Buffer.concat(chunks).toString() };
}

describe('a conversation', () => {
  it('asks for the key in the clear', async () => {
    const { webSocket, heard, until, closed } = await converse(urlOf(service));
    webSocket.send(startup(acme));
    await until(ASKS_FOR_PASSWORD);
    expect(heard()).toBe(ASKS_FOR_PASSWORD);
    webSocket.send(password(acme.apiKey));
    await until(READY);
    expect(heard().startsWith(ASKS_FOR_PASSWORD + LOGGED_IN)).toBe(true);
    webSocket.send(queryMessage('select 42 as answer'));
    await until('SELECT 1');
    expect(heard()).toContain('D\0\0\0\x0c\0\x01\0\0\0\x0242');
    webSocket.send(TERMINATE);
    expect(await closed).toBe(1000);
  });

  it('may be sent all at once', async () => {
    const { webSocket, heard, until } = await converse(`${urlOf(service)}?address=db.test:5432`);
    webSocket.send(Buffer.concat([startup(acme), password(acme.apiKey), queryMessage('select 1'), queryMessage('select 2')]));
    await until('D\0\0\0\x0b\0\x01\0\0\0\x012');
    expect(heard().startsWith(ASKS_FOR_PASSWORD + LOGGED_IN)).toBe(true);
    webSocket.close();
  });

  it('may come in frames of a byte', async () => {
    const { webSocket, until } = await converse(urlOf(service));
    for (const byte of Buffer.concat([startup(acme), password(acme.apiKey), queryMessage('select 1')])) webSocket.send(Buffer.of(byte));
    await until('D\0\0\0\x0b\0\x01\0\0\0\x011');
    webSocket.close();
  });

  it('ends with the reason when the key is wrong', async () => {
    const { webSocket, heard, closed } = await converse(urlOf(service));
    webSocket.send(Buffer.concat([startup(acme), password('wrong')]));
    expect(await closed).toBe(1000);
    expect(heard()).toContain(`SFATAL\0VFATAL\0C28P01\0Mpassword authentication failed for user "${acme.id}"\0`);
  });

  it('has the same deadline for the login as on the wire', async () => {
    const hasty = await startTestService({ POSTERN_LOGIN_TIMEOUT_MS: '1000' });
    const { closed } = await converse(urlOf(hasty));
    expect(await closed).toBe(1006);
    await hasty.close();
  });

  it('offers no further encryption', async () => {
    const { webSocket, heard, until } = await converse(urlOf(service));
    webSocket.send(Buffer.from([0, 0, 0, 8, 4, 210, 22, 47]));
    await until('N');
    webSocket.send(startup(acme));
    await until(ASKS_FOR_PASSWORD);
    expect(heard()).toBe(`N${ASKS_FOR_PASSWORD}`);
    webSocket.close();
  });

  it('carries large values both ways', async () => {
    const { webSocket, heard, until } = await session();
    const text = 'x'.repeat(4_000_000);
    webSocket.send(queryMessage(`select '${text}' || 'end of text'`));
    await until('end of text');
    await until('SELECT 1');
    expect(heard()).toContain(`${text}end of text`);
    webSocket.close();
  });

  it('is closed when it is text', async () => {
    const { webSocket, closed } = await converse(urlOf(service));
    webSocket.send('select 1');
    expect(await closed).toBe(1003);
  });

  it('is closed when a frame is larger than a request body may be', async () => {
    const { webSocket, closed } = await session();
    webSocket.send(Buffer.alloc(16 * 1_048_576 + 1));
    expect(await closed).toBe(1009);
  });

  it('is recorded, with the address that a trusted proxy says', async () => {
    const { webSocket } = await session({ 'x-forwarded-for': '203.0.113.7' });
    webSocket.close();
    const find = async () => (await service.call('GET', '/api/audit?action=login', { key: acme.apiKey })).body.data;
    await eventually('an audit entry', async () => (await find()).some(({ sourceIp }: { sourceIp: string }) => sourceIp === '203.0.113.7'));
  });

  it('that breaks off has its statement cancelled', async () => {
    const { webSocket } = await session();
    webSocket.send(queryMessage('select pg_advisory_lock(5), pg_sleep(60)'));
    const isFree = async () => (await service.query(acme, 'select pg_try_advisory_xact_lock(5) as free')).body.rows[0].free;
    await eventually('the lock to be held', async () => !(await isFree()));
    webSocket.terminate();
    await eventually('the lock to be free', isFree);
  });

  it('that is closed in order has its statement cancelled too', async () => {
    const { webSocket, closed } = await session();
    webSocket.send(queryMessage('select pg_advisory_lock(6), pg_sleep(60)'));
    const isFree = async () => (await service.query(acme, 'select pg_try_advisory_xact_lock(6) as free')).body.rows[0].free;
    await eventually('the lock to be held', async () => !(await isFree()));
    webSocket.close();
    await closed;
    await eventually('the lock to be free', isFree);
  });

  it('holds the database up while it is not read, and goes on when it is', async () => {
    const { webSocket, heard, until } = await session();
    webSocket.pause();
    // The first thing that the statement does is to be seen, the last is not before its rows are taken.
    webSocket.send(
      queryMessage("select pg_advisory_lock(7); select repeat('x', 10000) from generate_series(1, 5000); select pg_advisory_unlock(7)"),
    );
    const isFree = async () => (await service.query(acme, 'select pg_try_advisory_xact_lock(7) as free')).body.rows[0].free;
    await eventually('the lock to be held', async () => !(await isFree()));
    for (let n = 0; n < 50; n += 1) expect(await isFree()).toBe(false);
    webSocket.resume();
    await until('SELECT 5000');
    await eventually('the lock to be free', isFree);
    expect(heard().length).toBeGreaterThan(50_000_000);
    webSocket.close();
  });
});

describe('a request to upgrade', () => {
  it('to HTTP/2 is served as if it had not asked', async () => {
    const body = JSON.stringify({ sql: 'select 1 as n' });
    const headers = {
      upgrade: 'h2c',
      'http2-settings': 'AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA',
      'content-type': 'application/json',
      'content-length': String(body.length),
      authorization: `Bearer ${acme.apiKey}`,
    };
    const { status, text } = await askToUpgrade('/api/query', headers, body);
    expect([status, JSON.parse(text).rows]).toEqual([200, [{ n: 1 }]]);
  });

  it('with a large body too, and the connection can be used again', async () => {
    const sql = `select length('${'x'.repeat(300_000)}') as n`;
    const body = JSON.stringify({ sql });
    const head = (upgrade: string) =>
      `POST /api/query HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAuthorization: Bearer ${acme.apiKey}\r\n${upgrade}Content-Length: ${body.length}\r\n\r\n`;
    const { reply } = talk(
      service.service.httpPort,
      head('Connection: Upgrade\r\nUpgrade: h2c\r\n'),
      body,
      head('Connection: close\r\n'),
      body,
    );
    expect((await reply).match(/HTTP\/1\.1 200 OK/g)).toHaveLength(2);
    expect((await reply).match(/"rows":\[\{"n":300000\}\]/g)).toHaveLength(2);
  });

  it('behind a request that is not answered yet ends the connection', async () => {
    const body = JSON.stringify({ sql: 'select pg_sleep(60)' });
    const head = `POST /api/query HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAuthorization: Bearer ${acme.apiKey}\r\nContent-Length: ${body.length}\r\n\r\n`;
    const { reply } = talk(
      service.service.httpPort,
      head,
      body,
      'GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n',
    );
    expect(await reply).toBe('');
  });

  it('to a WebSocket elsewhere finds nothing', async () => {
    const { status } = await askToUpgrade('/v3', { upgrade: 'websocket', 'sec-websocket-version': '13', 'sec-websocket-key': 'x' });
    expect(status).toBe(404);
  });

  it('without what RFC 6455 asks for is refused', async () => {
    expect((await askToUpgrade('/v2', { upgrade: 'websocket' })).status).toBe(400);
  });
});

it('sessions end in order when the service closes', async () => {
  const closing = await startTestService();
  const organization = await closing.signUp();
  const { webSocket, heard, until, closed } = await converse(urlOf(closing));
  webSocket.send(Buffer.concat([startup(organization), password(organization.apiKey)]));
  await until(READY);
  await closing.close();
  expect(await closed).toBe(1000);
  expect(heard()).toContain('SFATAL\0VFATAL\0C57P01\0Mterminating connection due to administrator command\0');
});

it('all of it goes inside TLS as well', async () => {
  const scratch = await makeScratch();
  const [cert, key] = [join(scratch.path, 'server.crt'), join(scratch.path, 'server.key')];
  await writeFile(cert, CERTIFICATE);
  await writeFile(key, CERTIFICATE_KEY);
  const secure = await startTestService({ POSTERN_TLS_CERT: cert, POSTERN_TLS_KEY: key, POSTERN_TLS: 'require' });
  const { port } = new URL(secure.httpUrl);
  const webSocket = new WebSocket(`wss://localhost:${port}/v2`, { ca: CERTIFICATE });
  await once(webSocket, 'open');
  webSocket.send(startup(acme));
  const [asked] = await once(webSocket, 'message');
  expect(asked.toString('latin1')).toBe(ASKS_FOR_PASSWORD);
  webSocket.terminate();
  const asking = secureRequest({
    host: 'localhost',
    port,
    path: '/healthz',
    ca: CERTIFICATE,
    headers: { connection: 'Upgrade', upgrade: 'h2c' },
  });
  asking.end();
  const [reply] = await once(asking, 'response');
  expect(reply.statusCode).toBe(200);
  reply.resume();
  await secure.close();
  await scratch.remove();
});
