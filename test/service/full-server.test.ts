import { setTimeout } from 'node:timers/promises';
import pg from 'pg';
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest';
import { eventually } from '../support/eventually.ts';
import { makeOwnCluster, type OwnCluster } from '../support/own-cluster.ts';
import { startTestService, type TestOrganization, type TestService, testVariables } from '../support/service.ts';

/* Two processes over a server that has fewer connection slots than both may take, and another program that has the rest of them. */

let cluster: OwnCluster;
let first: TestService;
let second: TestService;
let acme: TestOrganization;
let other: TestOrganization;
beforeAll(async () => {
  cluster = await makeOwnCluster({ max_connections: '60' });
  const variables = {
    ...testVariables(),
    DATABASE_URL: cluster.url,
    POSTERN_BACKENDS_MAX: '25',
    POSTERN_BACKENDS_PER_TENANT: '25',
  };
  first = await startTestService(variables);
  second = await startTestService({ ...variables, POSTERN_QUEUE_TIMEOUT_MS: '10000' });
  [acme, other] = [await first.signUp(), await first.signUp()];
});
afterAll(async () => {
  await first.close();
  await second.close();
  await cluster.remove();
});

/** The program's sessions. */
let program: pg.Client[];
beforeEach(async () => {
  const owner = new pg.Client(cluster.superuser);
  await owner.connect();
  await owner.query("DROP ROLE IF EXISTS program; CREATE ROLE program LOGIN PASSWORD 'program'");
  await owner.query('GRANT CONNECT ON DATABASE postgres TO program');
  await owner.end();
  program = [];
  return async () => {
    await Promise.all(program.map((session) => session.end()));
    const owner = new pg.Client(cluster.superuser);
    await owner.connect();
    await owner.query('REVOKE CONNECT ON DATABASE postgres FROM program; DROP ROLE program');
    await owner.end();
  };
});

/** Takes all slots that are free, and those of sessions that the processes do not use. */
async function fillServer(): Promise<void> {
  for (const { service } of [first, second]) while (service.pool('default')?.giveUpUnused(undefined) === true);
  const owner = new pg.Client(cluster.superuser);
  await owner.connect();
  const unused = "SELECT FROM pg_stat_activity WHERE usename = ANY ($1) AND state = 'idle'";
  await eventually('those have ended', async () => (await owner.query(unused, [[acme.id, other.id]])).rowCount === 0);
  await owner.end();
  await takeSlots();
}

async function takeSlots(): Promise<void> {
  for (;;) {
    const session = new pg.Client({ ...cluster.superuser, user: 'program', password: 'program' });
    session.on('error', () => {});
    try {
      await session.connect();
    } catch (error) {
      expect(error).toMatchObject({ code: '53300' });
      return;
    }
    program.push(session);
  }
}

/** Slots that the processes' own sessions give up meanwhile are taken too. */
async function withoutSlots<Result>(wait: Promise<Result>): Promise<Result> {
  let isOver = false;
  const over = wait.finally(() => {
    isOver = true;
  });
  const taking = (async () => {
    while (!isOver) {
      await takeSlots();
      await setTimeout(10);
    }
  })();
  return Promise.all([over, taking]).then(([result]) => result);
}

async function waiters(service: TestService): Promise<number> {
  const metrics = await (await fetch(`${service.opsUrl}/metrics`)).text();
  return Number(/^postern_lease_waiters (\d+)/m.exec(metrics)?.[1]);
}

it('clients of both processes wait, and are served when another program gives up slots', async () => {
  await fillServer();
  const answers = [first.query(acme, 'SELECT 1 AS n'), first.query(other, 'SELECT 2 AS n')];
  await eventually('both wait', async () => (await waiters(first)) === 2);
  let isServed = false;
  const served = Promise.all(answers).finally(() => {
    isServed = true;
  });
  // The service itself may take the first ones, for its control database.
  await eventually('both are served', async () => {
    await program.pop()?.end();
    return isServed;
  });
  expect((await served).map(({ body }) => body.rows)).toEqual([[{ n: 1 }], [{ n: 2 }]]);
});

it('a session that one process does not use makes room for a client of the other', async () => {
  await second.query(acme, 'SELECT 1');
  await takeSlots();
  expect((await first.query(other, 'SELECT 1 AS n')).body.rows).toEqual([{ n: 1 }]);
});

it('who has waited too long is told that the server has no slots, at both doors', async () => {
  const client = await second.connect(acme);
  await client.query('BEGIN');
  const late = await second.connect(acme);
  await fillServer();
  const refusal = { code: '53300', detail: expect.stringMatching(/^Waited 10000 ms\. The server has no connection slots free\./) };
  const refused = expect(late.query('SELECT 1')).rejects.toMatchObject({ severity: 'ERROR', ...refusal });
  const [, { status, body }] = await withoutSlots(Promise.all([refused, second.query(other, 'SELECT 1')]));
  expect([status, body]).toMatchObject([503, { code: 'pool_timeout', sqlstate: '53300', retryable: true, detail: refusal.detail }]);
  for (const one of [client, late]) await one.end();
});
