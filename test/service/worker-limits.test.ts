import type pg from 'pg';
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest';
import { plainRequest, RawClient } from '../http/raw-client.ts';
import { eventually } from '../support/eventually.ts';
import { type Installation, makeInstallation, type PosternProcess } from '../support/process.ts';
import { untilServerRuns } from '../support/running.ts';
import { type TestOrganization, testVariables } from '../support/service.ts';
import { killWorker, startsOf } from '../support/worker-processes.ts';

/* Two workers, of which one is killed each time: whoever comes then is at the other, until there are two again. */

const CLIENTS = 10;
const CLIENTS_OF_ONE = 8;
const REQUESTS = 6;

let installation: Installation;
let variables: Record<string, string>;
let postern: PosternProcess;
let acme: TestOrganization;
let other: TestOrganization;
beforeAll(async () => {
  installation = await makeInstallation();
  variables = {
    ...testVariables(),
    POSTERN_WORKERS: '2',
    POSTERN_CLIENTS_MAX: String(CLIENTS),
    POSTERN_CLIENTS_PER_TENANT: String(CLIENTS_OF_ONE),
    POSTERN_HTTP_REQUESTS_PER_TENANT: String(REQUESTS),
    POSTERN_QUEUE_TIMEOUT_MS: '60000',
    // Requests wait for a lock while a worker is started.
    POSTERN_STATEMENT_TIMEOUT_MS: '300000',
  };
  postern = await installation.start(variables);
  await eventually('both workers have started', () => startsOf(postern) === 2);
  [acme, other] = [await postern.signUp(), await postern.signUp()];
});
afterAll(() => installation.remove());

beforeEach(() =>
  eventually('the clients of the last test have left', async () => {
    const metrics = await (await fetch(`${postern.opsUrl}/metrics`)).text();
    return [...metrics.matchAll(/^postern_wire_sessions\{.*\} (\d+)/gm)].every(([, sessions]) => sessions === '0');
  }),
);

async function connect(organization: TestOrganization, count: number): Promise<pg.Client[]> {
  const clients: pg.Client[] = [];
  while (clients.length < count) clients.push(await postern.connect(organization));
  return clients;
}

/** Those whose worker has not been killed. */
async function survivorsOf(clients: readonly pg.Client[]): Promise<pg.Client[]> {
  const survived = clients.map((client) =>
    client.query('SELECT 1').then(
      () => [client],
      () => [],
    ),
  );
  return (await Promise.all(survived)).flat();
}

async function end(clients: readonly pg.Client[]): Promise<void> {
  await Promise.all(clients.map((client) => client.end()));
}

const FULL = { severity: 'FATAL', code: '53300', message: 'sorry, too many clients already' };

it('as many clients may be there as the limit says, wherever they are, and after a worker was killed', async () => {
  const clients = [...(await connect(acme, CLIENTS / 2)), ...(await connect(other, CLIENTS / 2))];
  await expect(postern.connect(acme)).rejects.toMatchObject(FULL);
  const restarted = await killWorker(postern);
  const survivors = await survivorsOf(clients);
  expect(survivors.length).toBeLessThan(CLIENTS);
  const again = await connect(other, CLIENTS - survivors.length);
  await expect(postern.connect(acme)).rejects.toMatchObject(FULL);
  await restarted();
  for (let n = 0; n < 4; n += 1) await expect(postern.connect(other)).rejects.toMatchObject(FULL);
  expect(await survivorsOf([...survivors, ...again])).toHaveLength(CLIENTS);
  await end([...survivors, ...again]);
});

it('an organization has as many clients as its own limit says', async () => {
  const restarted = await killWorker(postern);
  const clients = await connect(acme, CLIENTS_OF_ONE);
  const refusal = { severity: 'FATAL', code: '53300', message: `too many connections for organization "${acme.id}"` };
  await expect(postern.connect(acme)).rejects.toMatchObject(refusal);
  await restarted();
  for (let n = 0; n < 4; n += 1) await expect(postern.connect(acme)).rejects.toMatchObject(refusal);
  await (await postern.connect(other)).end();
  await end(clients);
});

it('as many requests of an organization may be under way as the limit says', async () => {
  const restarted = await killWorker(postern);
  const holder = await postern.connect(acme);
  await holder.query('BEGIN; SELECT pg_advisory_xact_lock(1)');
  const texts = Array.from({ length: REQUESTS }, (_, n) => `SELECT pg_advisory_xact_lock(1), ${n} AS n`);
  const replies = texts.map((text) => postern.query(acme, text));
  for (const text of texts) await untilServerRuns(text);
  const refused = async () => {
    const { status, body } = await postern.query(acme, 'SELECT 1');
    expect([status, body]).toMatchObject([
      429,
      { code: 'too_many_requests', detail: expect.stringContaining(`as it may have: ${REQUESTS}`) },
    ]);
  };
  await refused();
  expect((await postern.query(other, 'SELECT 1')).status).toBe(200);
  await restarted();
  for (let n = 0; n < 4; n += 1) await refused();
  await holder.query('COMMIT');
  expect((await Promise.all(replies)).map(({ status }) => status)).toEqual(texts.map(() => 200));
  await eventually('there is room again', async () => (await postern.query(acme, 'SELECT 1')).status === 200);
  await holder.end();
});

/** As an operator beside the service, whose workers are told of it. */
async function limit(...words: string[]): Promise<void> {
  expect(await installation.admin(['org', 'limits', acme.id, ...words], variables)).toMatchObject({ code: 0, stderr: '' });
}

it('an organization has as many clients as an operator sets while they are connected', async () => {
  const clients = await connect(acme, 3);
  await limit('--sessions', '3');
  const isRefused = async () => {
    const client = await postern.connect(acme).catch(({ code }) => code);
    if (client === '53300') return true;
    await client.end();
    return false;
  };
  await eventually('both workers refuse', async () => (await isRefused()) && (await isRefused()) && (await isRefused()) && isRefused());
  await clients.pop()?.end();
  await eventually('there is room for one', async () => !(await isRefused()));
  expect(await survivorsOf(clients)).toHaveLength(2);
  await limit('--reset');
  await eventually('there is room for more', async () => {
    const more = await postern.connect(acme).catch(() => undefined);
    if (more !== undefined) clients.push(more);
    return clients.length === CLIENTS_OF_ONE;
  });
  await end(clients);
});

it('an organization sends as many requests in a second as an operator sets, whichever worker they come to', async () => {
  const startedAt = performance.now();
  await limit('--requests-per-second', '1');
  let [served, refused] = [0, 0];
  while (refused < 10) {
    // The workers take turns with new connections.
    const client = await RawClient.open(Number(new URL(postern.httpUrl).port));
    const { status, headers } = await client.ask(plainRequest(acme.apiKey, { sql: 'SELECT 1' }));
    client.socket.destroy();
    if (status === 429) refused += 1;
    // A worker that has not been told yet says nothing of a limit.
    else if ('ratelimit' in headers) served += 1;
  }
  expect(served).toBeGreaterThanOrEqual(8);
  expect(served).toBeLessThanOrEqual(11 + (performance.now() - startedAt) / 1_000);
  await limit('--reset');
  await eventually('there is no limit any more', async () => {
    const replies = await Promise.all([1, 2, 3, 4].map(() => postern.query(acme, 'SELECT 1')));
    return replies.every(({ status, headers }) => status === 200 && !headers.has('ratelimit'));
  });
});
