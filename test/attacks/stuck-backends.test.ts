import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parseCommand } from '../../src/admin/admin.ts';
import { type OperatorSession, openOperator } from '../../src/admin/operations.ts';
import { readConfig } from '../../src/config.ts';
import type { TestCluster } from '../support/cluster.setup.ts';
import { eventually } from '../support/eventually.ts';
import { hasPostgres15, startPostgres15 } from '../support/postgres15.ts';
import { startPostgres18 } from '../support/postgres18.ts';
import { serverUrl } from '../support/server-url.ts';
import { startTestService, type TestOrganization, type TestService, testVariables } from '../support/service.ts';

const SESSIONS = 2;
const HOSTILE = 8;
const LONG_MS = 120_000;

const servers = [
  { name: 'PostgreSQL 18', placement: 'database', start: startPostgres18 },
  { name: 'PostgreSQL 18', placement: 'schema', start: startPostgres18 },
  ...(hasPostgres15 ? [{ name: 'PostgreSQL 15', placement: 'database', start: startPostgres15 }] : []),
] as const;

const SLEEP = 'SELECT pg_sleep(600)';

describe.each(servers)('backends that obey nobody, on $name in the $placement placement', ({ placement, start }) => {
  let cluster: TestCluster & { stop(): Promise<void> };
  let service: TestService;
  let superuser: pg.Client;
  let operating: OperatorSession;
  let hostile: TestOrganization[];
  const halted = new Set<number>();

  beforeAll(async () => {
    cluster = await start();
    const variables = {
      ...testVariables(),
      DATABASE_URL: serverUrl(cluster),
      POSTERN_PLACEMENT: placement,
      POSTERN_BACKENDS_MAX: '0',
      POSTERN_BACKENDS_PER_TENANT: String(SESSIONS),
      POSTERN_QUEUE_TIMEOUT_MS: '5000',
    };
    service = await startTestService(variables);
    superuser = new pg.Client(cluster);
    await superuser.connect();
    operating = await openOperator(readConfig(variables));
    hostile = await Promise.all(Array.from({ length: HOSTILE }, () => service.signUp()));
  });
  afterAll(async () => {
    goOn([...halted]);
    await operating.close();
    await service.close();
    await superuser.end();
    await cluster.stop();
  });

  const admin = (...words: string[]) => parseCommand(words)(operating, async () => undefined);

  /** Processes of the organization's on the server. */
  async function processesOf({ id }: TestOrganization, statement = ''): Promise<number[]> {
    const { rows } = await superuser.query(
      "SELECT pid FROM pg_stat_activity WHERE usename = $1 AND starts_with(query, $2) AND backend_type = 'client backend'",
      [id, statement],
    );
    return rows.map(({ pid }) => pid);
  }

  /** Has all of the organization's sessions run what goes on whatever anybody says: their processes take no signal. */
  async function halt(organization: TestOrganization): Promise<void> {
    const clients = await Promise.all(Array.from({ length: SESSIONS }, () => service.connect(organization)));
    for (const client of clients) client.query(SLEEP).catch(() => {});
    await eventually('they run', async () => (await processesOf(organization, SLEEP)).length === SESSIONS);
    for (const pid of await processesOf(organization, SLEEP)) {
      process.kill(pid, 'SIGSTOP');
      halted.add(pid);
    }
    // What has been asked last is not waited for.
    for (const client of clients) (client as unknown as { connection: { stream: { destroy(): void } } }).connection.stream.destroy();
  }

  function goOn(pids: readonly number[]): void {
    for (const pid of pids) {
      halted.delete(pid);
      process.kill(pid, 'SIGCONT');
    }
  }

  async function isServed(organization: TestOrganization): Promise<boolean> {
    return (await service.query(organization, 'SELECT 1')).status === 200;
  }

  const stuckNow = async () => (await (await fetch(`${service.opsUrl}/metrics`)).text()).match(/^postern_stuck_backends\{.*$/gm) ?? [];
  const statusOf = async ({ id }: TestOrganization) => (await operating.operator.organizations()).find((one) => one.id === id)?.status;

  it(
    'count until they have gone: nobody gets more than the cap and two, strangers are served, operators obeyed',
    async () => {
      for (const organization of hostile) await halt(organization);
      const beyond = async (organization: TestOrganization) => {
        const client = await service.connect(organization);
        const refused = expect(client.query('SELECT 1')).rejects.toMatchObject({ code: '53300' });
        expect((await service.query(organization, 'SELECT 1')).body).toMatchObject({ code: 'pool_timeout' });
        await refused;
        await client.end();
        expect((await processesOf(organization)).length).toBeLessThanOrEqual(SESSIONS + 2);
      };
      await Promise.all(hostile.map(beyond));
      const lines = hostile.map(({ id }) => `postern_stuck_backends{organization="${id}"} ${SESSIONS}`).sort();
      await eventually('all are told', async () => (await stuckNow()).sort().join() === lines.join(), LONG_MS);
      await Promise.all(hostile.map(beyond));
      for (const { id } of hostile) {
        const told = service.observations.filter((one) => one.name === 'backend.stuck' && one.organizationId === id);
        expect(told).toHaveLength(SESSIONS);
      }

      const stranger = await service.signUp();
      expect(await isServed(stranger)).toBe(true);
      const client = await service.connect(stranger);
      expect((await client.query('SELECT 1 AS one')).rows).toEqual([{ one: 1 }]);
      await client.end();

      const [suspended, dropped, kept] = hostile as [TestOrganization, TestOrganization, TestOrganization];
      const running = '; still running: process \\d+ since 20[-0-9T:.]+Z, process \\d+ since 20[-0-9T:.]+Z; ';
      expect(await admin('org', 'suspend', suspended.id)).toMatch(new RegExp(`^${suspended.id} is suspended${running}`));
      const byItself = { key: dropped.apiKey, body: { confirm: dropped.id } };
      expect(await service.call('DELETE', '/api/organization', byItself)).toMatchObject({ status: 202, body: { status: 'dropping' } });
      expect(await admin('org', 'drop', dropped.id, '--yes')).toMatch(new RegExp(`^${dropped.id} is dropping${running}`));
      expect(await admin('org', 'drop', stranger.id, '--yes')).toMatch(new RegExp(`^${stranger.id} is dropp`));

      goOn([...halted]);
      await eventually(
        'the drops are completed',
        async () => (await statusOf(dropped)) === 'dropped' && (await statusOf(stranger)) === 'dropped',
        LONG_MS,
      );
      await eventually('nothing is stuck', async () => (await stuckNow()).length === 0);
      // The session that terminated them ends too.
      for (const organization of [suspended, dropped])
        await eventually('none of its processes is left', async () => (await processesOf(organization)).length === 0);
      const { rows } = await superuser.query('SELECT rolname FROM pg_roles WHERE rolname = ANY ($1)', [[dropped.id, stranger.id]]);
      expect(rows).toEqual([]);
      expect(await isServed(kept)).toBe(true);
    },
    2 * LONG_MS,
  );
});

it(
  'an XPath expression, where it is allowed, takes a session of its own organization until it has ended',
  async () => {
    const cluster = await startPostgres18();
    const service = await startTestService({
      DATABASE_URL: serverUrl(cluster),
      POSTERN_ALLOW_XPATH: 'on',
      POSTERN_BACKENDS_PER_TENANT: '1',
      POSTERN_QUEUE_TIMEOUT_MS: '3000',
    });
    const [hostile, other] = [await service.signUp(), await service.signUp()];
    // Some seconds more than it is waited for.
    const sql = "SELECT xpath('count(//a[count(//a[count(//a)>0])>0])', ('<r>' || repeat('<a/>', 1200) || '</r>')::xml)";
    const call = { key: hostile.apiKey, body: { sql, timeoutMs: 200 } };
    expect((await service.call('POST', '/api/query', call)).status).toBe(504);
    expect((await service.query(hostile, 'SELECT 1')).body).toMatchObject({ code: 'pool_timeout' });
    expect((await service.query(other, 'SELECT 1')).status).toBe(200);
    await eventually('it has ended', async () => (await service.query(hostile, 'SELECT 1')).status === 200, 3 * LONG_MS);
    await service.close();
    await cluster.stop();
  },
  4 * LONG_MS,
);
