import { readFile } from 'node:fs/promises';
import pg from 'pg';
import { afterAll, beforeAll, expect, inject, it, onTestFinished } from 'vitest';
import { requestCancel } from '../support/cancel-request.ts';
import { eventually } from '../support/eventually.ts';
import { type Installation, makeInstallation, type PosternProcess } from '../support/process.ts';
import { untilServerRuns } from '../support/running.ts';
import { type TestOrganization, testVariables } from '../support/service.ts';

const BACKENDS = 3;
/** An advisory lock that all may have at once. */
const LOCK = 4711;
/** Several processes are started one after the other, which may take a busy machine a minute each. */
const STARTS_MS = 600_000;
const STARTS = { timeout: 2 * STARTS_MS };

let installation: Installation;
let postern: PosternProcess;
let organization: TestOrganization;
beforeAll(async () => {
  installation = await makeInstallation();
  postern = await installation.start({
    ...testVariables(),
    POSTERN_WORKERS: '2',
    POSTERN_BACKENDS_PER_TENANT: String(BACKENDS),
    POSTERN_SHUTDOWN_TIMEOUT_MS: '60000',
  });
  await serving(2);
  organization = await postern.signUp();
});
afterAll(() => installation.remove());

/** Waits until so many workers have started in all. */
function serving(count: number): Promise<void> {
  return eventually(`${count} workers have started`, async () => starts().length === count, STARTS_MS);
}

function starts(): unknown[] {
  return postern.log().filter(({ event }) => event === 'service.started');
}

/** The value of a metric for each worker. A connection that is kept may be closed by its worker when it is used again. */
async function metric(name: string): Promise<Record<string, number>> {
  const text = await (await fetch(`${postern.opsUrl}/metrics`, { headers: { connection: 'close' } })).text();
  const values = [...text.matchAll(new RegExp(`^${name}\\{(?:.*,)?worker="(\\d+)"[^}]*\\} (\\d+)`, 'gm'))];
  const sums: Record<string, number> = {};
  for (const [, worker = '', value] of values) sums[worker] = (sums[worker] ?? 0) + Number(value);
  return sums;
}

/** So many clients that each worker has some. */
async function clients(count: number): Promise<pg.Client[]> {
  return Promise.all(Array.from({ length: count }, () => postern.connect(organization)));
}

async function end(all: readonly pg.Client[]): Promise<void> {
  await Promise.all(all.map((client) => client.end()));
}

/** The process ids of the workers, of those that serve now. */
async function workerPids(): Promise<number[]> {
  const children = await readFile(`/proc/${postern.pid}/task/${postern.pid}/children`, 'utf8');
  return children.trim().split(' ').map(Number);
}

it('all workers serve both ports, and the metrics say which did what', async () => {
  const all = await clients(8);
  await Promise.all(all.map((client) => client.query('SELECT 1')));
  // A worker that takes its time is left out.
  let sessions: Record<string, number> = {};
  await eventually('both workers tell of theirs', async () => {
    sessions = await metric('postern_wire_sessions');
    return Object.keys(sessions).length === 2;
  });
  const { 1: one = 0, 2: other = 0 } = sessions;
  expect([one > 0, other > 0, one + other]).toEqual([true, true, 8]);
  await end(all);
  const replies = await Promise.all(Array.from({ length: 8 }, () => postern.query(organization, 'SELECT 1 AS one')));
  expect(replies.every(({ body }) => body.rows[0].one === 1)).toBe(true);
});

it('the metrics leave out a worker that hangs', async () => {
  const pids = await workerPids();
  // A worker that does not accept a connection gets no further ones, and one may be kept from before: the other worker answers.
  process.kill(pids[0] ?? 0, 'SIGSTOP');
  try {
    const stopped = new AbortController();
    const scrapes = [1, 2, 3, 4].map(async () => (await fetch(`${postern.opsUrl}/metrics`, { signal: stopped.signal })).text());
    const text = await Promise.any(scrapes);
    stopped.abort();
    expect(new Set([...text.matchAll(/^postern_wire_sessions\{.*worker="(\d)"/gm)].map(([, worker]) => worker)).size).toBe(1);
  } finally {
    process.kill(pids[0] ?? 0, 'SIGCONT');
  }
});

it('an organization has as many backends as its limit says, whichever workers its clients are at', async () => {
  const all = await clients(12);
  const server = new pg.Client({ connectionString: inject('clusterUrl') });
  await server.connect();
  onTestFinished(() => server.end());
  // A session that is closed at one worker, so that another may open one, takes a moment to end, but it has no locks.
  const text = `SELECT count(*)::int AS count FROM pg_locks WHERE locktype = 'advisory' AND objid = ${LOCK} AND granted
    AND database = (SELECT oid FROM pg_database WHERE datname = $1)`;
  const atWork = async () => (await server.query(text, [organization.id])).rows[0].count;
  const working = Promise.all(
    all.map(async (client) => {
      for (let n = 0; n < 15; n += 1) await client.query(`SELECT pg_sleep(0.02) FROM pg_advisory_xact_lock_shared(${LOCK})`);
    }),
  );
  let isDone = false;
  void working.finally(() => {
    isDone = true;
  });
  const counts: number[] = [];
  while (!isDone) counts.push(await atWork());
  await working;
  expect(Math.max(...counts)).toBeLessThanOrEqual(BACKENDS);
  expect(Math.max(...counts)).toBeGreaterThan(1);
  await end(all);
});

it('a worker whose clients need a backend gets one that another has idle, or in use', async () => {
  const [one, other, third, fourth] = await clients(4);
  if (one === undefined || other === undefined || third === undefined || fourth === undefined) throw new Error('too few');
  // Whichever worker they are at: three transactions take all that there are, one after the other at each worker.
  for (const client of [one, other, third]) await client.query('BEGIN');
  const waiting = fourth.query('SELECT 1 AS one');
  await one.query('COMMIT');
  expect((await waiting).rows).toEqual([{ one: 1 }]);
  for (const client of [other, third]) await client.query('COMMIT');
  for (const client of [fourth, third, other, one, fourth]) await client.query('SELECT 1');
  await end([one, other, third, fourth]);
});

it('a cancel request reaches the session whichever worker it comes to, 20 of 20', async () => {
  for (let n = 0; n < 20; n += 1) {
    const client = await postern.connect(organization);
    const { processID, secretKey } = client as pg.Client & { readonly processID: number; readonly secretKey: number };
    const secret = Buffer.alloc(4);
    secret.writeInt32BE(secretKey);
    const text = `SELECT pg_sleep(60) AS worker_${n}`;
    const sleeping = client.query(text).catch((error: unknown) => error);
    await untilServerRuns(text);
    await requestCancel(postern, processID, secret);
    expect(await sleeping).toMatchObject({ code: '57014' });
    await client.end();
  }
});

it('one that is killed takes only its own clients with it, and is started again', async () => {
  await postern.query(organization, 'CREATE TABLE acknowledged (n int)');
  const before = starts().length;
  const all = await clients(16);
  const ended = all.map((client) => new Promise<boolean>((resolve) => client.once('end', () => resolve(true))));
  let acknowledged = 0;
  const writing = Promise.all(
    all.map(async (client) => {
      for (let n = 0; n < 50; n += 1) {
        const isWritten = await client.query('INSERT INTO acknowledged VALUES (1)').then(
          () => true,
          () => false,
        );
        if (!isWritten) return false;
        acknowledged += 1;
      }
      return true;
    }),
  );
  const [killed = 0] = await workerPids();
  process.kill(killed, 'SIGKILL');
  const survived = await writing;
  // Connections are spread, but not strictly in turn.
  const survivors = survived.filter((one) => one).length;
  expect([survivors > 0, survivors < all.length]).toEqual([true, true]);
  await serving(before + 1);
  const [{ count }] = (await postern.query(organization, 'SELECT count(*) FROM acknowledged')).body.rows;
  // Some may have been written and not acknowledged.
  expect(Number(count)).toBeGreaterThanOrEqual(acknowledged);
  expect(Number(count)).toBeLessThanOrEqual(acknowledged + all.length);
  expect(postern.log()).toContainEqual(
    expect.objectContaining({ level: 'warn', msg: expect.stringMatching(/^worker \d has ended \(SIGKILL\)/) }),
  );
  await Promise.all(all.map((client, at) => (survived[at] ? client.end() : ended[at])));
  const fresh = await clients(8);
  await Promise.all(fresh.map((client) => client.query('SELECT 1')));
  await end(fresh);
});

it('a connection that a worker has not taken when it is killed goes to another', async () => {
  const before = starts().length;
  const [killed = 0] = await workerPids();
  process.kill(killed, 'SIGSTOP');
  // The first or the second is sent to the one that does not take it; it gets no further ones.
  const all = Array.from({ length: 4 }, () => postern.connect(organization));
  let connected = 0;
  for (const one of all) void one.then(() => (connected += 1));
  await eventually('the other worker has taken all others', async () => connected === 3);
  process.kill(killed, 'SIGKILL');
  const served = await Promise.all(all);
  for (const client of served) expect((await client.query('SELECT 1 AS one')).rows).toEqual([{ one: 1 }]);
  await end(served);
  await serving(before + 1);
});

it('SIGUSR2 replaces all workers, while everybody who comes is served', STARTS, async () => {
  const before = starts().length;
  const former = await workerPids();
  const kept = await postern.connect(organization);
  await kept.query('BEGIN');
  postern.signal('SIGUSR2');
  let served = 0;
  await eventually(
    'all are replaced',
    async () => {
      const client = await postern.connect(organization);
      await client.query('SELECT 1');
      await client.end();
      expect((await postern.query(organization, 'SELECT 1 AS one')).body.rows).toEqual([{ one: 1 }]);
      served += 1;
      return starts().length === before + 2;
    },
    STARTS_MS,
  );
  expect(served).toBeGreaterThan(0);
  await eventually('the former worker without clients has ended', async () => (await workerPids()).length === 3);
  // A client goes on where it began, until it leaves.
  await kept.query('COMMIT');
  expect((await kept.query('SELECT 1 AS one')).rows).toEqual([{ one: 1 }]);
  const { processID, secretKey } = kept as pg.Client & { readonly processID: number; readonly secretKey: number };
  const secret = Buffer.alloc(4);
  secret.writeInt32BE(secretKey);
  const sleeping = kept.query('SELECT pg_sleep(60) AS at_the_former').catch((error: unknown) => error);
  await untilServerRuns('SELECT pg_sleep(60) AS at_the_former');
  await requestCancel(postern, processID, secret);
  expect(await sleeping).toMatchObject({ code: '57014' });
  await kept.end();
  await eventually('the former workers have ended', async () => (await workerPids()).every((pid) => !former.includes(pid)));
  expect(await workerPids()).toHaveLength(2);
});

it('of workers that wait for their clients, the earliest stops when three later ones wait in its place', {
  timeout: 5 * STARTS_MS,
}, async () => {
  const generations: { client: pg.Client; isOpen: boolean }[][] = [];
  for (let n = 0; n < 4; n += 1) {
    const generation: { client: pg.Client; isOpen: boolean }[] = [];
    generations.push(generation);
    while (Object.values(await metric('postern_wire_sessions')).filter((sessions) => sessions > 0).length < 2) {
      const one = { client: await postern.connect(organization), isOpen: true };
      one.client.once('end', () => {
        one.isOpen = false;
      });
      generation.push(one);
    }
    const before = starts().length;
    postern.signal('SIGUSR2');
    await serving(before + 2);
  }
  const [earliest = [], ...later] = generations;
  await eventually('the earliest have stopped', () => earliest.every(({ isOpen }) => !isOpen));
  for (const { client } of later.flat()) expect((await client.query('SELECT 1 AS one')).rows).toEqual([{ one: 1 }]);
  await end(later.flat().map(({ client }) => client));
  await eventually('the former workers have ended', async () => (await workerPids()).length === 2);
});

it('SIGUSR2 while workers are being replaced has all replaced once more', STARTS, async () => {
  const before = starts().length;
  postern.signal('SIGUSR2');
  await eventually('the first is started', () => starts().length > before, STARTS_MS);
  postern.signal('SIGUSR2');
  for (const count of [2, 3, 4]) await eventually(`${count} are started`, () => starts().length >= before + count, STARTS_MS);
  await eventually('the former workers have ended', async () => (await workerPids()).length === 2);
});

it('SIGTERM stops all', async () => {
  const pids = await workerPids();
  const { code, stderr } = await postern.end('SIGTERM');
  expect([code, stderr]).toEqual([0, '']);
  for (const pid of pids) expect(() => process.kill(pid, 0)).toThrow('ESRCH');
});

it('a worker that has waited too long for its clients ends their sessions between transactions', STARTS, async () => {
  const impatient = await installation.start({
    ...testVariables(),
    POSTERN_WORKERS: '2',
    POSTERN_REPLACE_TIMEOUT_MS: '100',
    POSTERN_SHUTDOWN_TIMEOUT_MS: '60000',
  });
  const { connect, signUp } = impatient;
  const client = await connect(await signUp());
  const told = new Promise((resolve) => client.once('error', resolve));
  await client.query('BEGIN');
  const stopping = ({ event, reason, transactions }: Record<string, unknown>) =>
    event === 'service.stopping' && reason === 'replaced' && transactions === 1;
  await eventually(
    'its worker stops',
    () => {
      // A signal that comes before all workers serve does nothing.
      impatient.signal('SIGUSR2');
      return impatient.log().some(stopping);
    },
    STARTS_MS,
  );
  // It does not speak of a second signal: there was no first one, and the other workers stay.
  expect(impatient.log().find(stopping)).toMatchObject({ msg: 'stopping: waits up to 60 s for 1 transaction' });
  await client.query('COMMIT');
  expect(await told).toMatchObject({ severity: 'FATAL', code: '57P01' });
  await impatient.end('SIGTERM');
});
