import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { rolePassword } from '../../src/auth/derived-secrets.ts';
import type { Placement } from '../../src/catalog/organization.ts';
import { eventually } from '../support/eventually.ts';
import { makePostgresProxy, type PostgresProxy } from '../support/postgres-proxy.ts';
import { startPostgres15 } from '../support/postgres15.ts';
import { type Installation, makeInstallation } from '../support/process.ts';
import { makeScratch, type Scratch } from '../support/scratch.ts';
import { serverUrl } from '../support/server-url.ts';
import { startTestService, TEST_SECRET, type TestOrganization, type TestService, testVariables } from '../support/service.ts';
import { closeAfterClients } from './address.ts';
import { needDebian } from './debian.ts';

/** pg_dump refuses a server that is newer than itself, so here the server is as old as Debian's. */
const BINARIES = '/usr/lib/postgresql/15/bin';
const PREPARING = { max_prepared_transactions: '2' };
const NOBODY = 'org_000000000000';

let server: Awaited<ReturnType<typeof startPostgres15>>;
let other: Awaited<ReturnType<typeof startPostgres15>>;
let scratch: Scratch;
let proxy: PostgresProxy;
let installation: Installation;
let variables: Record<string, string>;
let notified: TestService;
/** A process between which and the server the proxy stands. */
let unnotified: TestService;
beforeAll(async () => {
  needDebian('postgresql-15', 'postgresql-client-15');
  [server, other, installation] = await Promise.all([startPostgres15(PREPARING), startPostgres15(), makeInstallation()]);
  const url = serverUrl(server);
  variables = { ...testVariables(), POSTERN_PLACEMENT: 'database', DATABASE_URL: url, PATH: `${BINARIES}:${process.env.PATH}` };
  proxy = await makePostgresProxy(url);
  notified = await startTestService(variables);
  unnotified = await startTestService({ ...variables, DATABASE_URL: proxy.url });
  scratch = await makeScratch();
  await writeFile(join(scratch.path, 'other'), serverUrl(other), { mode: 0o600 });
  await installation.admin(['cluster', 'add', 'other', `file:${join(scratch.path, 'other')}`], variables);
  await installation.admin(['cluster', 'drain', 'other'], variables);
});
afterAll(async () => {
  for (const service of [unnotified, notified]) await closeAfterClients(service);
  await proxy.close();
  await installation.remove();
  for (const one of [server, other]) await one.stop();
  await scratch.remove();
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

describe.each(['database', 'schema'] as const)('a move of a %s to another server', (kind) => {
  async function makeOrganization(): Promise<TestOrganization> {
    const acme = await notified.signUp();
    for (const sql of ['CREATE TABLE written (n int)', 'CREATE SEQUENCE numbers']) await notified.query(acme, sql);
    if (kind === 'schema') for (const words of [['--placement', kind], ['--finish']]) await move(acme, ...words);
    return acme;
  }

  it('acknowledges nothing at the former copy after the switch, to a process that has not been notified either', async () => {
    const acme = await makeOrganization();
    const [client, held] = [await unnotified.connect(acme), new pg.Client({ ...server, database: variables.POSTERN_CONTROL_DATABASE })];
    await Promise.all([client.query(INSERT), held.connect()]);
    keepFromNotifications(acme);
    // Roles of the organization cannot be closed until that ends.
    await held.query(`BEGIN; ALTER ROLE ${acme.id} CONNECTION LIMIT 100`);
    const moved = installation.admin(['org', 'move', acme.id, '--to', 'other', '--force'], variables);
    const switched = 'SELECT FROM postern.moves WHERE organization_id = $1 AND has_switched';
    await eventually('the switch', async () => (await held.query(switched, [acme.id])).rows.length > 0);
    const writes = [client.query(INSERT), client.query("SELECT nextval('numbers')"), unnotified.query(acme, INSERT)] as const;
    const outcomes = await Promise.allSettled(writes);
    await held.query('ROLLBACK');
    expect(await moved).toMatchObject({ code: 0, stderr: '' });
    expect(outcomes).toMatchObject([{ status: 'rejected' }, { status: 'rejected' }, { status: 'fulfilled', value: { status: 503 } }]);
    expect((await notified.query(acme, 'SELECT n FROM written')).body.rows).toEqual([{ n: 1 }]);
    for (const session of [client, held]) await session.end();
    await move(acme, '--finish');
  });
});

describe('a move', () => {
  it('is refused while a transaction is prepared', async () => {
    const acme = await notified.signUp();
    const client = await notified.connect(acme);
    for (const sql of ['BEGIN', 'CREATE TABLE later ()', "PREPARE TRANSACTION 'my own'"]) await client.query(sql);
    expect(await installation.admin(['org', 'move', acme.id, '--to', 'other', '--force'], variables)).toMatchObject({
      code: 1,
      stderr: 'postern: 1 of its transactions are prepared, the first one as "my own"\n',
    });
    await client.query("COMMIT PREPARED 'my own'");
    await client.end();
    await move(acme, '--to', 'other', '--force');
    expect((await notified.query(acme, 'SELECT FROM later')).status).toBe(200);
    await move(acme, '--finish');
  });
});
