import pg from 'pg';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { makeUrlFiles, runAdmin, type UrlFiles } from '../support/clusters.ts';
import type { TestOrganization } from '../support/doors.ts';
import { eventually } from '../support/eventually.ts';
import { makeOwnCluster, type OwnCluster } from '../support/own-cluster.ts';
import { type Installation, makeInstallation, type PosternProcess } from '../support/process.ts';
import { testVariables } from '../support/service.ts';

const BACKENDS = 4;
const BACKENDS_PER_TENANT = 3;

let installation: Installation;
let postern: PosternProcess;
let second: OwnCluster;
let files: UrlFiles;
const settings = {
  ...testVariables(),
  POSTERN_WORKERS: '2',
  POSTERN_BACKENDS_MAX: String(BACKENDS),
  POSTERN_BACKENDS_PER_TENANT: String(BACKENDS_PER_TENANT),
};

beforeAll(async () => {
  [installation, second, files] = await Promise.all([makeInstallation(), makeOwnCluster(), makeUrlFiles()]);
  postern = await installation.start(settings);
});
afterAll(async () => {
  await installation.remove();
  await second.remove();
  await files.remove();
});

const clusterOf = async ({ id }: TestOrganization) =>
  new RegExp(`^${id} +active +(\\w+)`, 'm').exec(await runAdmin(settings, ['org', 'list']))?.[1];

it('workers find a cluster, and share its backends apart from those of others', async () => {
  const first = await postern.signUp();
  await runAdmin(settings, ['cluster', 'add', 'second', await files.keep('second', second.url)]);
  await eventually('both workers have found it', async () => {
    const metrics = await (await fetch(`${postern.opsUrl}/metrics`)).text();
    return [1, 2].every((worker) => metrics.includes(`postern_cluster_up{cluster="second",worker="${worker}"} 1\n`));
  });
  const there = await postern.signUp();
  const neighbour = await postern.signUp();
  expect(await Promise.all([first, there, neighbour].map(clusterOf))).toEqual(['default', 'second', 'default']);

  // All backends of the default cluster are in use,
  for (const organization of [first, first, first, neighbour]) await inTransaction(organization);
  // and the other one has as many of its own,
  const clients = [];
  for (let n = 0; n < BACKENDS_PER_TENANT; n += 1) clients.push(await inTransaction(there));
  // which count for both workers.
  let isServed = false;
  const next = inTransaction(there).then(() => {
    isServed = true;
  });
  await eventually('it waits', async () => {
    const metrics = await (await fetch(`${postern.opsUrl}/metrics`)).text();
    return /^postern_cluster_lease_waiters\{cluster="second".*\} 1$/m.test(metrics);
  });
  const admin = new pg.Client({ connectionString: second.url });
  await admin.connect();
  const sessions = async () => (await admin.query('SELECT FROM pg_stat_activity WHERE usename = $1', [there.id])).rowCount;
  // One that is closed at one worker, so that another may open one, takes a moment to end.
  await eventually('it has as many as it may', async () => (await sessions()) === BACKENDS_PER_TENANT);
  expect(isServed).toBe(false);
  await clients[0]?.query('COMMIT');
  await next;
  await admin.end();
});

async function inTransaction(organization: TestOrganization): Promise<pg.Client> {
  const client = await postern.connect(organization);
  await client.query('BEGIN; SELECT 1');
  return client;
}
