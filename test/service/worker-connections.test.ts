import { afterAll, afterEach, beforeAll, expect, it } from 'vitest';
import { plainRequest, RawClient } from '../http/raw-client.ts';
import { eventually } from '../support/eventually.ts';
import { type Installation, makeInstallation, type PosternProcess } from '../support/process.ts';
import { type TestOrganization, testVariables } from '../support/service.ts';
import { killWorker, startsOf } from '../support/worker-processes.ts';

/* Two workers, of which one is killed each time: all connections are at the other then, and none is closed before there are too many. */

const CONNECTIONS = 12;

let installation: Installation;
let postern: PosternProcess;
let organization: TestOrganization;
beforeAll(async () => {
  installation = await makeInstallation();
  postern = await installation.start({
    ...testVariables(),
    POSTERN_WORKERS: '2',
    POSTERN_CLIENTS_MAX: String(CONNECTIONS),
    POSTERN_HTTP_CONNECTIONS_MAX: String(CONNECTIONS),
    POSTERN_LOGIN_TIMEOUT_MS: '600000',
    POSTERN_HTTP_HEADERS_TIMEOUT_MS: '600000',
    POSTERN_HTTP_REQUEST_TIMEOUT_MS: '600000',
    POSTERN_HTTP_SEND_TIMEOUT_MS: '600000',
  });
  await eventually('both workers have started', () => startsOf(postern) === 2);
  organization = await postern.signUp();
});
afterAll(() => installation.remove());

const strangers: RawClient[] = [];
afterEach(async () => {
  for (const { socket } of strangers.splice(0)) socket.destroy();
  // One asks for the metrics.
  await eventually('they have left', async () => (await connectionsOf('wire')) === 0 && (await connectionsOf('http')) === 1);
});

/** What all workers say together. */
async function connectionsOf(door: 'wire' | 'http'): Promise<number> {
  const metrics = await (await fetch(`${postern.opsUrl}/metrics`, { headers: { connection: 'close' } })).text();
  const values = [...metrics.matchAll(new RegExp(`^postern_${door}_connections\\{.*\\} (\\d+)`, 'gm'))];
  return values.reduce((sum, [, value]) => sum + Number(value), 0);
}

async function come(port: number, count: number): Promise<void> {
  for (let n = 0; n < count; n += 1) strangers.push(await RawClient.open(port));
}

const closed = () => strangers.filter(({ socket }) => socket.closed).length;

it('as many HTTP connections may be open as the limit says, wherever they are; then one without a key goes for each that comes', async () => {
  const port = Number(new URL(postern.httpUrl).port);
  const restarted = await killWorker(postern);
  // Of those that signed up, some may be open.
  await come(port, 2 * CONNECTIONS);
  await eventually('half of them are closed', () => closed() === CONNECTIONS);
  await restarted();
  // The new worker has none of its own that it could close.
  for (let n = 0; n < 4; n += 1) {
    const client = await RawClient.open(port);
    strangers.push(client);
    expect((await client.ask(plainRequest(organization.apiKey, { sql: 'SELECT 1 AS one' }))).status).toBe(200);
    await eventually('another one is closed', () => closed() === CONNECTIONS + n + 1);
  }
  expect(strangers.slice(-4).map(({ socket }) => socket.closed)).toEqual([false, false, false, false]);
});

it('an organization keeps as many HTTP connections as it leaves for others, wherever they are', async () => {
  const port = Number(new URL(postern.httpUrl).port);
  const asking = plainRequest(organization.apiKey, { sql: 'SELECT 1 AS one' });
  const openKnown = async () => {
    const client = await RawClient.open(port);
    strangers.push(client);
    expect((await client.ask(asking)).status).toBe(200);
    return client;
  };
  const restarted = await killWorker(postern);
  const kept: RawClient[] = [];
  while (kept.length < CONNECTIONS / 2) kept.push(await openKnown());
  const beyond = [await openKnown(), await openKnown()];
  await come(port, 2 * CONNECTIONS);
  await eventually('all that are beyond the limit are closed', () => closed() === strangers.length - CONNECTIONS);
  expect([...kept, ...beyond].map(({ socket }) => socket.closed)).toEqual([...kept.map(() => false), true, true]);
  await restarted();
  // The new worker keeps none while the other has so many.
  for (let n = 0; n < 4; n += 1) await openKnown();
  await come(port, 2 * CONNECTIONS);
  await eventually('all that are beyond the limit are closed', () => closed() === strangers.length - CONNECTIONS);
  for (const client of kept) expect((await client.ask(asking)).status).toBe(200);
  // Some have left before it was known whether they may be kept.
  for (const { socket } of kept) socket.destroy();
  for (let n = 0; n < 20; n += 1) {
    const client = await RawClient.open(port);
    client.send(asking);
    client.socket.destroy();
  }
  await eventually('as many as before are kept', async () => {
    const again: RawClient[] = [];
    while (again.length < CONNECTIONS / 2) again.push(await openKnown());
    await come(port, 2 * CONNECTIONS);
    // More may be closed while a worker takes the limit for reached, shortly after it was.
    await eventually('all that are beyond the limit are closed', () => closed() >= strangers.length - CONNECTIONS);
    const areKept = again.every(({ socket }) => !socket.closed);
    for (const { socket } of again) socket.destroy();
    return areKept;
  });
});

it('as many may be about to log in as the limit says, wherever they are; then one of them goes for each that comes', async () => {
  const restarted = await killWorker(postern);
  await come(postern.wirePort, CONNECTIONS);
  await eventually('all are accepted', async () => (await connectionsOf('wire')) === CONNECTIONS);
  expect(closed()).toBe(0);
  await come(postern.wirePort, CONNECTIONS);
  await eventually('half of them are closed', () => closed() === CONNECTIONS);
  for (const { socket, rest } of strangers) if (socket.closed) expect(String(await rest)).toContain('sorry, too many clients already');
  await restarted();
  await come(postern.wirePort, 4);
  await eventually('four more are closed', () => closed() === CONNECTIONS + 4);
  // A client may see the end of its connection before the worker does.
  await eventually('as many as may be are left', async () => (await connectionsOf('wire')) === CONNECTIONS);
});
