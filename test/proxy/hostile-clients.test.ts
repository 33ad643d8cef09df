import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { WireClient } from '../conversations/wire-client.ts';
import type { TestOrganization } from '../support/doors.ts';
import { type Installation, makeInstallation, type PosternProcess } from '../support/process.ts';
import { SeededRandom } from '../support/random.ts';
import { openSession } from '../support/raw-session.ts';
import { testVariables } from '../support/service.ts';

/** Against a process of its own: whatever comes, it lives, logs no failure of ours, and serves the next client. */
let installation: Installation;
let postern: PosternProcess;
/** One that gives clients little time to log in. */
let hasty: PosternProcess;
let organization: TestOrganization;
beforeAll(async () => {
  installation = await makeInstallation();
  postern = await installation.start({ ...testVariables(), POSTERN_LOG_LEVEL: 'info' });
  hasty = await installation.start({ ...testVariables(), POSTERN_LOGIN_TIMEOUT_MS: '5000', POSTERN_LOG_LEVEL: 'info' });
  organization = await postern.signUp();
});
afterAll(() => installation.remove());

async function isUnharmed(): Promise<void> {
  const client = await postern.connect(organization);
  expect((await client.query('SELECT 1 AS one')).rows).toEqual([{ one: 1 }]);
  await client.end();
  expect((await postern.query(organization, 'SELECT 1 AS one')).body.rows).toEqual([{ one: 1 }]);
  expectNoFailure(postern);
}

function expectNoFailure(of: PosternProcess): void {
  expect(of.log().filter(({ level }) => Number(level) >= 50)).toEqual([]);
}

/** Sends all of it, hangs up or closes its half, and waits until the other side has closed as well. */
async function attack(port: number, chunks: readonly Buffer[], hangUp: boolean): Promise<void> {
  const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true });
  socket.on('error', () => {});
  await once(socket, 'connect');
  await finish(socket, chunks, hangUp);
}

async function finish(socket: Socket, chunks: readonly Buffer[], hangUp: boolean): Promise<void> {
  const closed = new Promise((resolve) => socket.once('close', resolve));
  for (const chunk of chunks) socket.write(chunk);
  socket.resume();
  if (hangUp) socket.resetAndDestroy();
  else socket.end();
  socket.once('end', () => socket.destroy());
  await closed;
}

async function attackLoggedIn(chunks: readonly Buffer[], hangUp: boolean): Promise<void> {
  const client = await openSession(postern, organization);
  for (const chunk of chunks) void client.write(chunk);
  if (hangUp) client.reset();
  else client.halfClose();
  while (!client.gone && typeof (await client.read()) === 'object');
  client.disconnect();
}

function int32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeInt32BE(value | 0);
  return bytes;
}

const STARTUP_CODES = [196_608, 196_610, 196_609 + 997, 80_877_102, 80_877_103, 80_877_104, 131_072, 0, -1];
const MESSAGE_TYPES = 'QPBEDCSHFXdcfpTZKRrvW?\0';

/** Bytes that look like the beginning of a connection, more or less. */
function opening(random: SeededRandom): Buffer {
  const code = STARTUP_CODES[random.below(STARTUP_CODES.length)] ?? 0;
  const body = random.below(2) === 0 ? random.bytes(random.below(200)) : Buffer.from(`user\0${organization.id}\0database\0\0\0`);
  const honest = 8 + body.length;
  const lengths = [honest, honest, honest, honest + 1, honest - 1, 10_001, 4, 0, -1, 0x7fffffff];
  return Buffer.concat([int32(lengths[random.below(lengths.length)] ?? 0), int32(code), body]);
}

/** Bytes that look like a message, more or less. */
function message(random: SeededRandom): Buffer {
  const type = MESSAGE_TYPES.charCodeAt(random.below(MESSAGE_TYPES.length));
  const body = random.below(3) === 0 ? Buffer.from('SELECT 1\0SELECT 2\0\0\0') : random.bytes(random.below(80));
  const honest = 4 + body.length;
  const lengths = [honest, honest, honest, honest, honest, honest + 3, 3, 0, -1, 0x40000000];
  return Buffer.concat([Buffer.from([type]), int32(lengths[random.below(lengths.length)] ?? 0), body]);
}

describe('a run of random bytes', () => {
  it.each([1, 2, 3])('instead of a login harms nobody (seed %i)', async (seed) => {
    const random = new SeededRandom(seed);
    const attacks = Array.from({ length: 100 }, () => {
      const bytes =
        random.below(2) === 0 ? random.bytes(random.below(2_000)) : Buffer.concat([opening(random), message(random), message(random)]);
      return attack(postern.wirePort, random.cut(bytes, 500), random.below(3) === 0);
    });
    await Promise.all(attacks);
    await isUnharmed();
  });

  it.each([4, 5, 6])('after the login harms nobody (seed %i)', async (seed) => {
    const random = new SeededRandom(seed);
    const attacks = Array.from({ length: 40 }, () => {
      const bytes = Buffer.concat(Array.from({ length: 1 + random.below(30) }, () => message(random)));
      return attackLoggedIn(random.cut(bytes, 300), random.below(2) === 0);
    });
    await Promise.all(attacks);
    await isUnharmed();
  });

  it('against the JSON door harms nobody', async () => {
    const random = new SeededRandom(7);
    const port = Number(new URL(postern.httpUrl).port);
    const heads = [
      '',
      'POST /api/query HTTP/1.1\r\n',
      `POST /api/query HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${organization.apiKey}\r\n`,
    ];
    await Promise.all(
      Array.from({ length: 60 }, () => {
        const head = Buffer.from(heads[random.below(heads.length)] ?? '');
        return attack(port, random.cut(Buffer.concat([head, random.bytes(random.below(2_000))]), 500), random.below(3) === 0);
      }),
    );
    await isUnharmed();
  });
});

describe('somebody who has come to the wrong door', () => {
  // All at once: each takes as long as a login may.
  it.concurrent.each([
    ['HTTP', 'GET / HTTP/1.1\r\nHost: localhost\r\n\r\n'],
    ['TLS where there is none', '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03'],
    ['SSH', 'SSH-2.0-OpenSSH_9.2\r\n'],
    ['a startup packet of a gigabyte', '\x40\x00\x00\x00\x00\x03\x00\x00'],
    ['nothing at all', ''],
    ['a single byte', '\0'],
  ])('with %s is closed without a word, at the latest when the login takes too long', async (_what, bytes) => {
    const client = await WireClient.open('127.0.0.1', hasty.wirePort);
    await client.write(Buffer.from(bytes, 'latin1'));
    expect(await client.read()).toBe('EOF');
    client.disconnect();
    expectNoFailure(hasty);
  });

  it('does not keep others out by coming in crowds', async () => {
    const crowd = await Promise.all(Array.from({ length: 200 }, () => WireClient.open('127.0.0.1', postern.wirePort)));
    await isUnharmed();
    for (const client of crowd) client.reset();
  });
});
