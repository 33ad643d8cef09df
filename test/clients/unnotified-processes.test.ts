import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { rolePassword } from '../../src/auth/role-password.ts';
import type { Placement } from '../../src/catalog/organizations/organization.ts';
import { makePostgresProxy, type PostgresProxy } from '../support/postgres-proxy.ts';
import { startPostgres15 } from '../support/postgres15.ts';
import { type Installation, makeInstallation } from '../support/process.ts';
import { serverUrl } from '../support/server-url.ts';
import { startTestService, TEST_SECRET, type TestOrganization, type TestService, testVariables } from '../support/service.ts';
import { closeAfterClients } from './address.ts';
import { needDebian } from './debian.ts';

/** pg_dump refuses a server that is newer than itself, so here the server is as old as Debian's. */
const BINARIES = '/usr/lib/postgresql/15/bin';
const NOBODY = 'org_000000000000';

let server: Awaited<ReturnType<typeof startPostgres15>>;
let proxy: PostgresProxy;
let installation: Installation;
let variables: Record<string, string>;
let notified: TestService;
/** A process between which and the server the proxy stands. */
let unnotified: TestService;
beforeAll(async () => {
  needDebian('postgresql-15', 'postgresql-client-15');
  [server, installation] = await Promise.all([startPostgres15(), makeInstallation()]);
  const url = serverUrl(server);
  variables = { ...testVariables(), POSTERN_PLACEMENT: 'database', DATABASE_URL: url, PATH: `${BINARIES}:${process.env.PATH}` };
  proxy = await makePostgresProxy(url);
  notified = await startTestService(variables);
  unnotified = await startTestService({ ...variables, DATABASE_URL: proxy.url });
});
afterAll(async () => {
  for (const service of [unnotified, notified]) await closeAfterClients(service);
  await proxy.close();
  await installation.remove();
  await server.stop();
});

async function move({ id }: TestOrganization, ...words: string[]): Promise<void> {
  expect(await installation.admin(['org', 'move', id, ...words], variables)).toMatchObject({ code: 0, stderr: '' });
}

/** From now on the process is told of changes of somebody else instead. */
function keepFromNotifications({ id }: TestOrganization): void {
  proxy.alterAnswers('postern_platform', (bytes) =>
    Buffer.from(bytes.toString('latin1').replaceAll(`"organizationId":"${id}"`, `"organizationId":"${NOBODY}"`), 'latin1'),
  );
}

async function inPlacement<Row extends pg.QueryResultRow>({ database }: Placement, text: string, login: object = {}): Promise<Row[]> {
  const session = new pg.Client({ ...server, database, ...login });
  await session.connect();
  try {
    return (await session.query<Row>(text)).rows;
  } finally {
    await session.end();
  }
}

const INSERT = 'INSERT INTO written VALUES (1)';

describe.each(['database', 'schema'] as const)('a process that has not been notified of a move away from a %s', (kind) => {
  it('cannot write to the former copy, nor read it, nor can the organization open it', async () => {
    const acme = await notified.signUp();
    await notified.query(acme, 'CREATE TABLE written (n int)');
    const { body } = await notified.call('POST', '/api/keys', { key: acme.apiKey, body: { name: 'reader', scope: 'read' } });
    const reader = { ...acme, apiKey: body.apiKey };
    if (kind === 'schema') for (const words of [['--placement', kind], ['--finish']]) await move(acme, ...words);
    const { placement } = await notified.service.operator.organization(acme.id);
    const client = await unnotified.connect(acme);
    await client.query(INSERT);
    expect((await unnotified.query(reader, 'SELECT n FROM written')).body.rows).toEqual([{ n: 1 }]);

    keepFromNotifications(acme);
    await move(acme, '--placement', kind === 'schema' ? 'database' : 'schema', '--force');
    await expect(client.query(INSERT)).rejects.toMatchObject({ code: '57P03' });
    for (const who of [acme, reader]) {
      expect(await unnotified.query(who, 'SELECT n FROM written')).toMatchObject({
        status: 503,
        body: { code: 'not_ready', retryable: true },
      });
    }
    expect((await unnotified.query(acme, INSERT)).status).toBe(503);
    expect((await notified.query(acme, INSERT)).status).toBe(200);
    expect((await notified.query(reader, 'SELECT n FROM written')).body.rows).toEqual([{ n: 1 }, { n: 1 }]);
    await client.end();

    const login = { user: acme.id, password: rolePassword(TEST_SECRET, acme.id) };
    if (kind === 'database') {
      await expect(inPlacement(placement, 'SELECT 1', login)).rejects.toMatchObject({ code: '55000' });
      expect((await notified.query(acme, `ALTER DATABASE "${acme.id}" ALLOW_CONNECTIONS true`)).body).toMatchObject({ sqlstate: '42501' });
    } else {
      for (const statement of [`GRANT ALL ON SCHEMA ${acme.id} TO CURRENT_USER`, `COMMENT ON SCHEMA ${acme.id} IS NULL`]) {
        await inPlacement(placement, statement, login).catch(() => {});
      }
      await expect(inPlacement(placement, `INSERT INTO ${acme.id}.written VALUES (2)`, login)).rejects.toMatchObject({ code: '42501' });
      expect(await inPlacement(placement, `SELECT n FROM ${acme.id}.written`)).toEqual([{ n: 1 }]);
      expect((await unnotified.query(acme, INSERT)).status).toBe(503);
    }
    await move(acme, '--finish');
    await move(acme, '--placement', kind);
    expect((await notified.query(acme, 'SELECT n FROM written')).body.rows).toEqual([{ n: 1 }, { n: 1 }]);
  });
});
