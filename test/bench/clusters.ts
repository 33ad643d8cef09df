import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { parseCommand } from '../../src/admin/admin.ts';
import { type OperatorSession, openOperator } from '../../src/admin/operations.ts';
import { readConfig } from '../../src/config.ts';
import { doorsAt, type JsonReply, type TestOrganization } from '../support/doors.ts';
import { type ServerProcess, startServerProcess } from '../support/server-process.ts';
import type { Bench } from './bench.ts';
import { SECRET, startPostern } from './postern.ts';
import { POSTERN } from './reach.ts';
import type { Scenario } from './scenario.ts';
import type { Series } from './series.ts';

const ORGANIZATIONS = 2_000;
const QUICK_ORGANIZATIONS = 200;
const AT_ONCE = 32;
const NAMES = ['b', 'c'];

interface Placed {
  readonly organization: TestOrganization;
  readonly cluster: string;
}

/** Whether clusters keep out of each other's way, with many organizations: an answer that is wrong, or does not come, fails the bench. */
export const CLUSTERS: Scenario = {
  name: 'clusters',
  about: `${ORGANIZATIONS} organizations on three servers, of which one is killed: sign-ups, then a statement of each over HTTP`,
  async run(bench) {
    const settings = { POSTERN_CONTROL_DATABASE: 'postern_clusters', POSTERN_PLACEMENT: 'schema', POSTERN_SIGNUPS_PER_HOUR: '1000000' };
    const postern = await startPostern({ ...bench, pool: bench.options.pool, env: settings });
    bench.closing.defer(() => postern.child.end());
    const variables = { ...settings, DATABASE_URL: bench.cluster.adminUrl, POSTERN_SECRET: SECRET };
    const servers = await Promise.all(NAMES.map(() => startServerProcess()));
    for (const server of servers) bench.closing.defer(() => server.remove());
    for (const [at, name] of NAMES.entries()) {
      const path = join(bench.folder, `url-${name}`);
      await writeFile(path, (servers[at] as ServerProcess).url, { mode: 0o600 });
      await asOperator(variables, (operator) => parseCommand(['cluster', 'add', name, `file:${path}`])(operator, async () => undefined));
    }

    const count = bench.options.quick ? QUICK_ORGANIZATIONS : ORGANIZATIONS;
    const doors = doorsAt(Number(new URL(postern.httpUrl).port), postern.wirePort);
    const organizations: TestOrganization[] = [];
    const signUps = await timed(bench, Array.from({ length: count }), async () => {
      organizations.push(await doors.signUp());
    });
    const listed = await asOperator(variables, ({ operator }) => operator.organizations());
    const clusters = new Map(listed.map(({ id, placement }) => [id, placement.cluster]));
    const placed = organizations.map((organization) => ({ organization, cluster: clusters.get(organization.id) ?? '' }));
    checkSpread(placed);

    const ask = async ({ organization }: Placed) => expectRow(await doors.query(organization, 'SELECT 1 AS one'));
    const all = await timed(bench, placed, ask);
    const hit = placed.filter(({ cluster }) => cluster === 'b');
    const others = placed.filter(({ cluster }) => cluster !== 'b');
    // It is killed while the others ask.
    const rest = timed(bench, others, ask);
    await servers[0]?.kill();
    const restPerSecond = await rest;
    const refused = await timed(bench, hit, async ({ organization }) => expectRefusal(await doors.query(organization, 'SELECT 1 AS one')));
    return [
      figure(`${count} sign-ups`, 'sign-ups/s', signUps),
      figure(`a statement of each of ${count}`, 'req/s', all),
      figure(`… of ${others.length}, while the server of ${hit.length} is killed`, 'req/s', restPerSecond),
      figure(`… of the ${hit.length}: refused`, 'req/s', refused),
    ];
  },
};

/** The sessions that an operator needs are closed afterwards: the service needs all that the servers have. */
async function asOperator<Result>(variables: Record<string, string>, work: (session: OperatorSession) => Promise<Result>): Promise<Result> {
  const session = await openOperator(readConfig(variables));
  try {
    return await work(session);
  } finally {
    await session.close();
  }
}

function checkSpread(placed: readonly Placed[]): void {
  for (const name of ['default', ...NAMES]) {
    const count = placed.filter(({ cluster }) => cluster === name).length;
    if (Math.abs(count - placed.length / 3) > placed.length / 30) throw new Error(`${count} of ${placed.length} are on cluster ${name}`);
  }
}

function expectRow({ status, body }: JsonReply): void {
  if (status !== 200 || body.rows[0]?.one !== 1) throw new Error(`answered ${status}: ${JSON.stringify(body)}`);
}

function expectRefusal({ status, body }: JsonReply): void {
  if (status !== 503 || body.code !== 'not_ready') throw new Error(`answered ${status} and not 503: ${JSON.stringify(body)}`);
}

/** Does something for each, some at once. @returns how many a second */
async function timed<T>({ signal }: Bench, all: readonly T[], one: (item: T) => Promise<void>): Promise<number> {
  const startedAt = performance.now();
  const left = all.values();
  const work = async () => {
    for (const item of left) {
      signal.throwIfAborted();
      await one(item);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  return (all.length * 1_000) / (performance.now() - startedAt);
}

function figure(label: string, unit: string, perSecond: number): Series {
  return { scenario: 'clusters', case: label, unit, figures: new Map([[POSTERN, [perSecond]]]) };
}
