import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { makeUrlFiles, runAdmin, type UrlFiles } from '../support/clusters.ts';
import { newControlDatabase } from '../support/control-databases.ts';
import type { TestOrganization } from '../support/doors.ts';
import { eventually } from '../support/eventually.ts';
import { type ServerProcess, startServerProcess } from '../support/server-process.ts';
import { startTestService, type TestService } from '../support/service.ts';

const NAMES = ['b', 'c'] as const;

/** What those are told whose server dies. */
const ENDS = /^(not_ready|database_unavailable|backend_lost|57P01|57P02|57P03|08006)$/;

describe('of three clusters', () => {
  const settings = { POSTERN_CONTROL_DATABASE: newControlDatabase(), POSTERN_QUEUE_TIMEOUT_MS: '60000' };
  let files: UrlFiles;
  let service: TestService;
  /** One organization on each cluster. */
  let on: Readonly<Record<'default' | (typeof NAMES)[number], TestOrganization>>;
  const servers = new Map<string, ServerProcess>();
  const server = (name: string) => servers.get(name) as ServerProcess;

  beforeAll(async () => {
    files = await makeUrlFiles();
    await (await startTestService(settings)).close();
    for (const name of NAMES) {
      servers.set(name, await startServerProcess());
      await runAdmin(settings, ['cluster', 'add', name, await files.keep(name, server(name).url)]);
    }
    service = await startTestService(settings);
    const organizations = [await service.signUp(), await service.signUp(), await service.signUp()];
    const places = await Promise.all(organizations.map(clusterOf));
    const at = (name: string) => organizations[places.indexOf(name)] as TestOrganization;
    on = { default: at('default'), b: at('b'), c: at('c') };
  });
  afterAll(async () => {
    for (const one of servers.values()) await one.remove();
    await service.close();
    await files.remove();
  });

  const clusterOf = async ({ id }: TestOrganization) => (await service.service.operator.organization(id)).placement.cluster;
  const isUp = async (name: string, value: 0 | 1) =>
    (await (await fetch(`${service.opsUrl}/metrics`)).text()).includes(`postern_cluster_up{cluster="${name}"} ${value}\n`);
  const select = (organization: TestOrganization) => service.query(organization, 'SELECT 1 AS one');

  /** Has organizations send statements one after another, over HTTP and the wire. @returns what ends that, with their failures */
  async function load(organizations: readonly TestOrganization[]): Promise<() => Promise<readonly unknown[]>> {
    let isOver = false;
    const failures: unknown[] = [];
    const sessions = await Promise.all(organizations.map(async (one) => ({ organization: one, client: await service.connect(one) })));
    const ask = async ({ organization, client }: (typeof sessions)[number]) => {
      while (!isOver) {
        const reply = await select(organization);
        if (reply.status !== 200) failures.push(reply.body);
        await client.query('SELECT 1').catch((error: unknown) => failures.push(error));
      }
      await client.end();
    };
    const asking = sessions.map(ask);
    return async () => {
      isOver = true;
      await Promise.all(asking);
      return failures;
    };
  }

  async function expectRefusals(organization: TestOrganization): Promise<void> {
    const refused = await select(organization);
    expect(refused).toMatchObject({ status: 503, body: { code: 'not_ready', sqlstate: '57P03', retryable: true } });
    // A login may need no backend, if what it is told is known from earlier sessions.
    const asked = service.connect(organization).then((client) => client.query('SELECT 1'));
    await expect(asked).rejects.toMatchObject({ code: '57P03' });
    // Its keys are in the control database.
    expect((await service.call('GET', '/api/auth/me', { key: organization.apiKey })).status).toBe(200);
  }

  it('one is killed: its organizations are told so, and others notice nothing', async () => {
    const endLoad = await load([on.default, on.c]);
    const endHit = await load([on.b]);
    await server('b').kill();
    await eventually('it is seen to be down', () => isUp('b', 0));
    await expectRefusals(on.b);
    // The driver has its own words for what follows on a session that has ended.
    const told = (await endHit()).filter((failure) => !(failure instanceof Error) || 'code' in failure);
    for (const failure of told) expect(failure).toMatchObject({ code: expect.stringMatching(ENDS) });
    const places = [];
    for (let n = 0; n < 4; n += 1) places.push(await clusterOf(await service.signUp()));
    expect(new Set(places)).toEqual(new Set(['default', 'c']));
    expect(await endLoad()).toEqual([]);
    expect((await fetch(`${service.opsUrl}/readyz`)).status).toBe(200);
    expect(await runAdmin(settings, ['cluster', 'list'])).toMatch(/^b +down /m);
  });

  it('one is down when the service starts, which uses it when it is back', async () => {
    await service.close();
    service = await startTestService(settings);
    await expectRefusals(on.b);
    expect((await select(on.c)).status).toBe(200);
    await server('b').start();
    await eventually('it is used', async () => (await select(on.b)).status === 200);
    const places = [];
    for (let n = 0; n < 3; n += 1) places.push(await clusterOf(await service.signUp()));
    expect(places).toContain('b');
  });

  it('one hangs: a sign-up there is finished elsewhere, and undone there when it goes on', async () => {
    await service.service.operator.drop(on.c.id, { surface: 'admin', sourceIp: '127.0.0.1' });
    on = { ...on, c: await untilOn('c') };
    const endLoad = await load([on.default, on.b]);
    // No role can be made there, and it has the fewest organizations.
    const holder = new pg.Client({ connectionString: server('c').url });
    holder.on('error', () => {});
    await holder.connect();
    await holder.query('BEGIN; LOCK TABLE pg_authid IN SHARE MODE');
    const made = [service.signUp(), service.signUp(), service.signUp()];
    const waiting = "SELECT FROM pg_locks WHERE relation = 'pg_authid'::regclass AND NOT granted";
    await eventually('a sign-up waits there', async () => ((await holder.query(waiting)).rowCount ?? 0) > 0);
    await server('c').signal('SIGSTOP');
    const places = await Promise.all(made.map(async (one) => clusterOf(await one)));
    expect(places).not.toContain('c');
    expect((await unfinished()).map(({ placement }) => placement.cluster)).toContain('c');
    await eventually('it is seen to be down', () => isUp('c', 0));
    await expectRefusals(on.c);
    expect(await endLoad()).toEqual([]);
    await server('c').signal('SIGCONT');
    await holder.end();
    await eventually('it is used again', async () => (await select(on.c)).status === 200);
    await eventually('nothing is left of the sign-ups there', async () => (await unfinished()).length === 0);
  });

  const unfinished = async () => (await service.service.operator.organizations()).filter(({ status }) => status === 'provisioning');

  /** Signs up until an organization is on this cluster. */
  async function untilOn(name: string): Promise<TestOrganization> {
    for (;;) {
      const organization = await service.signUp();
      if ((await clusterOf(organization)) === name) return organization;
    }
  }
});
