import pg from 'pg';
import { afterAll, beforeAll, expect, inject, it } from 'vitest';
import { parseCommand } from '../../src/admin/admin.ts';
import { openOperator } from '../../src/admin/operations.ts';
import { readConfig } from '../../src/config.ts';
import { eventually } from '../support/eventually.ts';
import { makeOwnCluster } from '../support/own-cluster.ts';
import { startTestService, testVariables } from '../support/service.ts';

const CAP = 2;

let superuser: pg.Client;
beforeAll(async () => {
  superuser = new pg.Client({ ...inject('cluster') });
  await superuser.connect();
});
afterAll(() => superuser.end());

async function limitOf(role: string): Promise<number> {
  const { rows } = await superuser.query('SELECT rolconnlimit FROM pg_roles WHERE rolname = $1', [role]);
  return rows[0].rolconnlimit;
}

it('a role may have two sessions more than the cap, also one that was made with another', async () => {
  const variables = { ...testVariables(), POSTERN_BACKENDS_PER_TENANT: String(CAP) };
  const first = await startTestService(variables);
  const organizations = [await first.signUp(), await first.signUp(), await first.signUp()];
  for (const { id } of organizations) expect(await limitOf(id)).toBe(CAP + 2);
  await first.close();

  const [former, fewer] = organizations;
  await superuser.query(`ALTER ROLE ${former?.id} CONNECTION LIMIT 32; ALTER ROLE ${fewer?.id} CONNECTION LIMIT 1`);
  const second = await startTestService(variables);
  for (const { id } of organizations) await eventually('it has its limit', async () => (await limitOf(id)) === CAP + 2);
  await second.close();
});

it('each process of the service gets its sessions', async () => {
  const variables = { ...testVariables(), POSTERN_BACKENDS_PER_TENANT: String(CAP) };
  const services = [await startTestService(variables), await startTestService(variables), await startTestService(variables)];
  const organization = await services[0]?.signUp();
  if (organization === undefined) throw new Error('no service');
  const clients: pg.Client[] = [];
  for (const service of services) {
    for (let n = 0; n < CAP; n += 1) {
      const client = await service.connect(organization);
      await client.query('BEGIN; SELECT 1');
      clients.push(client);
    }
  }
  expect(clients).toHaveLength(CAP * services.length);
  for (const client of clients) await client.end();
  for (const service of services) await service.close();
});

it('operators are obeyed where all sessions are taken that others may have', async () => {
  const cluster = await makeOwnCluster();
  const variables = { ...testVariables(), DATABASE_URL: cluster.url };
  const service = await startTestService(variables);
  const [organization, dropped] = [await service.signUp(), await service.signUp()];
  const owner = new pg.Client(cluster.superuser);
  await owner.connect();
  await owner.query("CREATE ROLE crowd LOGIN PASSWORD 'crowd'; GRANT CONNECT ON DATABASE postgres TO crowd");
  const crowd: pg.Client[] = [];
  const enter = async () => {
    const client = new pg.Client({ ...cluster.superuser, user: 'crowd', password: 'crowd' });
    client.on('error', () => {});
    await client.connect();
    crowd.push(client);
  };
  let refusal: unknown;
  while (refusal === undefined) await enter().catch((error: unknown) => (refusal = error));
  expect(refusal).toMatchObject({ code: '53300' });

  const operating = await openOperator(readConfig(variables));
  const admin = (...words: string[]) => parseCommand(words)(operating, async () => undefined);
  expect(await admin('org', 'suspend', organization.id)).toBe(`${organization.id} is suspended`);
  expect(await admin('org', 'drop', dropped.id, '--yes')).toBe(`${dropped.id} is dropped`);

  await operating.close();
  for (const client of [...crowd, owner]) await client.end();
  await service.close();
  await cluster.remove();
});
