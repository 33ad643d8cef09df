import pg from 'pg';
import { afterAll, beforeAll, expect, inject, it } from 'vitest';
import { requestCancel } from '../support/cancel-request.ts';
import { eventually } from '../support/eventually.ts';
import { makePostgresProxy, type PostgresProxy } from '../support/postgres-proxy.ts';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';

/** One backend, somebody who holds what its clients want, and a server that takes its time with cancel requests. */
let proxy: PostgresProxy;
let service: TestService;
let organization: TestOrganization;
let holder: pg.Client;
beforeAll(async () => {
  proxy = await makePostgresProxy(inject('clusterUrl'));
  service = await startTestService({ DATABASE_URL: proxy.url, POSTERN_PLACEMENT: 'database', POSTERN_BACKENDS_PER_TENANT: '1' });
  organization = await service.signUp();
  holder = new pg.Client({ ...inject('cluster'), database: organization.id });
  await holder.connect();
});
afterAll(async () => {
  await holder.end();
  await service.close();
  await proxy.close();
});

const lock = (key: number) => `SELECT 'locked' AS state FROM pg_advisory_xact_lock(${key})`;
const somebodyWaitsFor = (key: number) =>
  eventually('somebody waits', async () => {
    const here = "locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    const { rowCount } = await holder.query(`SELECT FROM pg_locks WHERE ${here} AND objid = $1 AND NOT granted`, [key]);
    return rowCount === 1;
  });

it('a cancel request that the server takes late hits nobody else, and many of them are one to the server (X10 X14)', async () => {
  await holder.query('SELECT pg_advisory_lock(1), pg_advisory_lock(2)');
  const [first, second] = [await service.connect(organization), await service.connect(organization)];
  const running = first.query(lock(1));
  await somebodyWaitsFor(1);
  const cancels = proxy.holdCancels();
  const { processID, secretKey } = first as pg.Client & { readonly processID: number; readonly secretKey: number };
  const secret = Buffer.alloc(4);
  secret.writeInt32BE(secretKey);
  const flood = Promise.all(Array.from({ length: 30 }, () => requestCancel(service, processID, secret)));
  await eventually('the server has one', () => cancels.count > 0);

  const next = second.query(lock(2));
  await holder.query('SELECT pg_advisory_unlock(1)');
  expect((await running).rows).toEqual([{ state: 'locked' }]);
  await somebodyWaitsFor(2);
  // Nobody waits for an answer any more.
  for (const answer of await flood) expect(answer).toHaveLength(0);
  expect(cancels.count).toBe(1);
  await cancels.letThrough();
  await holder.query('SELECT pg_advisory_unlock(2)');
  expect((await next).rows).toEqual([{ state: 'locked' }]);
  await Promise.all([first.end(), second.end()]);
});
