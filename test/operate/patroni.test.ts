import { readFile } from 'node:fs/promises';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { needDebian } from '../clients/debian.ts';
import { eventually } from '../support/eventually.ts';
import { type NumberingWriters, startNumberingWriters } from '../support/numbering-writers.ts';
import { type Installation, makeInstallation, type PosternProcess } from '../support/process.ts';
import type { TestOrganization } from '../support/service.ts';
import { workerPids } from '../support/worker-processes.ts';
import { type PatroniCluster, startPatroni } from './patroni.ts';

type Settled = Awaited<ReturnType<PatroniCluster['settled']>>;

/** From the promotion on. */
const SERVICE_WITHIN_MS = 10_000;

let patroni: PatroniCluster;
let installation: Installation;
let postern: PosternProcess;
let organization: TestOrganization;
let writers: NumberingWriters;
/** The processes of the service at its start. */
let started: readonly string[];

beforeAll(async () => {
  needDebian('etcd-server', 'patroni', 'postgresql-15');
  [patroni, installation] = await Promise.all([startPatroni(), makeInstallation()]);
  await patroni.settled();
  postern = await installation.start({ DATABASE_URL: patroni.url, POSTERN_SECRET: 'of three servers', POSTERN_WORKERS: '2' });
  // The service is up with the first of them.
  await eventually('both workers run', async () => (await workerPids(postern)).length === 2);
  started = await processes();
  organization = await postern.signUp();
  writers = await startNumberingWriters(postern, organization);
});
afterAll(async () => {
  await writers?.stop();
  await installation?.remove();
  await patroni?.remove();
});

/** The supervisor and the workers, each with the time of its start. */
async function processes(): Promise<string[]> {
  const pids = [postern.pid, ...(await workerPids(postern))];
  // The 22nd field; the second one has the name in parentheses.
  const startOf = async (pid: number) => (await readFile(`/proc/${pid}/stat`, 'utf8')).replace(/^.*\) /s, '').split(' ')[19];
  return Promise.all(pids.map(async (pid) => `${pid} since ${await startOf(pid)}`));
}

it.each([
  ['is switched over', ({ leader, synchronous }: Settled) => patroni.switchOver(leader, synchronous), async () => {}],
  ['is killed', ({ leader }: Settled) => leader.signal('SIGKILL'), ({ leader }: Settled) => leader.start()],
  ['hangs', ({ leader }: Settled) => leader.signal('SIGSTOP'), ({ leader }: Settled) => leader.signal('SIGCONT')],
])('when the leader %s, the promoted standby serves, and nothing acknowledged is lost', async (_how, fail, repair) => {
  const before = await patroni.settled();
  const idle = await postern.connect(organization);
  await idle.query('SELECT 1');
  await writers.allWrote(5);

  const failing = fail(before);
  await patroni.promoted(before.leader);
  const promotedAt = performance.now();
  await writers.allWrote(1, SERVICE_WITHIN_MS);
  if (process.env.TEST_TIMES !== undefined) console.log(`served ${Math.round(performance.now() - promotedAt)} ms after the promotion`);
  await failing;
  // Sessions of the sign-up's own may still be with the former leader.
  const signedUp = () => postern.signUp().then(({ id }) => id, String);
  await expect.poll(signedUp, { timeout: SERVICE_WITHIN_MS }).toMatch(/^org_/);
  expect((await idle.query('SELECT 1 AS one')).rows).toEqual([{ one: 1 }]);
  await idle.end();
  // A former leader that comes back changes nothing.
  await repair(before);
  const after = await patroni.settled();
  expect(after.leader.name).not.toBe(before.leader.name);
  await writers.allWrote(5);
  const { lost, repeated } = await writers.compare();
  expect({ lost, repeated }).toEqual({ lost: [], repeated: [] });
  expect(await processes()).toEqual(started);
});
