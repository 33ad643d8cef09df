import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { TestOrganization } from '../support/doors.ts';
import { eventually } from '../support/eventually.ts';
import { LANDMARK, landmarkPassed } from '../support/landmark.ts';
import { makeOwnCluster, type OwnCluster } from '../support/own-cluster.ts';
import {
  type Installation,
  makeInstallation,
  type PosternProcess,
  type PostgresProcess,
  type StartingProcess,
} from '../support/process.ts';
import { testVariables } from '../support/service.ts';

const SLEEP = 'SELECT pg_sleep(60)';
const insert = (body: string) => `INSERT INTO notes VALUES ('${body}')`;

/** What was under way when the process died, in every way there is. */
async function leaveTransactionsOpen(postern: PosternProcess, organization: TestOrganization): Promise<void> {
  await postern.query(organization, 'CREATE TABLE notes (body text)');
  await postern.query(organization, insert('committed'));
  const idle = await postern.connect(organization);
  await idle.query(`BEGIN; ${insert('idle in transaction')}; UPDATE notes SET body = 'changed' WHERE body = 'committed'`);
  const busy = await postern.connect(organization);
  await busy.query(`BEGIN; ${insert('busy in transaction')}`);
  busy.query(SLEEP).catch(() => {});
  const statements = [insert('over HTTP'), LANDMARK, SLEEP].map((sql) => ({ sql }));
  postern.call('POST', '/api/transaction', { key: organization.apiKey, body: { statements } }).catch(() => {});
  await landmarkPassed(await postern.connect(organization));
}

describe('kill -9 of a Postern with its own PostgreSQL', () => {
  let installation: Installation;
  beforeAll(async () => {
    installation = await makeInstallation();
  });
  afterAll(() => installation.remove());

  it('leaves nothing half done, and the next start serves with the same key', async () => {
    const killed = await installation.start();
    const organization = await killed.signUp();
    await leaveTransactionsOpen(killed, organization);
    const orphan = await installation.postgres();
    expect((await killed.end('SIGKILL')).signal).toBe('SIGKILL');

    const next = await installation.start();
    expect(await orphan.isRunning()).toBe(false);
    expect((await next.query(organization, 'SELECT body FROM notes')).body.rows).toEqual([{ body: 'committed' }]);
    const client = await next.connect(organization);
    await client.query(insert('after'));
    expect((await client.query('SELECT body FROM notes')).rows).toEqual([{ body: 'committed' }, { body: 'after' }]);
    await client.end();
    expect(await next.end('SIGTERM')).toMatchObject({ code: 0, stderr: '' });
  });

  it('takes a living server over when it is left idle', async () => {
    const killed = await installation.start();
    const organization = await killed.signUp();
    const orphan = await installation.postgres();
    await killed.end('SIGKILL');
    expect(await orphan.isRunning()).toBe(true);

    const next = await installation.start();
    expect((await next.query(organization, 'SELECT 1 AS one')).status).toBe(200);
    await next.end('SIGTERM');
    expect(await orphan.isRunning()).toBe(false);
  });
});

describe('a signal while a Postern with its own PostgreSQL starts', () => {
  let installation: Installation;
  let server: PostgresProcess;
  beforeAll(async () => {
    installation = await makeInstallation();
    await (await installation.start()).end('SIGTERM');
  });
  afterAll(() => installation.remove());

  /** Its PostgreSQL serves, and the doors are not open yet. */
  async function launchHalfWay(): Promise<StartingProcess> {
    const starting = installation.launch();
    await eventually('its PostgreSQL serves', async () => {
      const found = await installation.postgres().catch(() => undefined);
      if (found === undefined) return false;
      server = found;
      return server.isRunning();
    });
    return starting;
  }

  it.each(['SIGTERM', 'SIGINT'] as const)('that tells it to stop (%s) leaves no PostgreSQL behind', async (signal) => {
    const starting = await launchHalfWay();
    starting.signal(signal);
    expect(await starting.ended).toEqual({ code: 0, signal: null, stdout: '', stderr: '' });
    await eventually('its PostgreSQL has gone, too', async () => !(await server.isRunning()));
  });

  it('that tells it to read its certificate again does not end it', async () => {
    const starting = await launchHalfWay();
    starting.signal('SIGHUP');
    expect(await (await starting.started()).end('SIGTERM')).toMatchObject({ code: 0, stderr: '' });
  });
});

describe('kill -9 of a Postern on a PostgreSQL that lives on', () => {
  let cluster: OwnCluster;
  let installation: Installation;
  let variables: Record<string, string>;
  beforeAll(async () => {
    cluster = await makeOwnCluster();
    installation = await makeInstallation();
    variables = { ...testVariables(), DATABASE_URL: cluster.url };
  });
  afterAll(async () => {
    await installation.remove();
    await cluster.remove();
  });

  it('leaves nothing half done, and the next start serves with the same key', async () => {
    const killed = await installation.start(variables);
    const organization = await killed.signUp();
    await leaveTransactionsOpen(killed, organization);
    await killed.end('SIGKILL');

    const next = await installation.start(variables);
    const client = await next.connect(organization);
    expect((await client.query('SELECT body FROM notes')).rows).toEqual([{ body: 'committed' }]);
    // The row was locked by the idle transaction.
    await client.query("UPDATE notes SET body = 'changed' WHERE body = 'committed'");
    await client.end();
    await next.end('SIGTERM');
  });

  it('in the middle of a sign-up leaves nothing of it: the next start makes room for another', async () => {
    const killed = await installation.start(variables);
    const operator = new pg.Client({ connectionString: cluster.url });
    operator.on('error', () => {});
    await operator.connect();
    // No role can be made as long as this transaction lasts.
    await operator.query('BEGIN; LOCK TABLE pg_authid IN SHARE MODE');
    const names = 'SELECT rolname FROM pg_roles UNION ALL SELECT datname FROM pg_database ORDER BY 1';
    const before = await operator.query(names);
    const signUp = (postern: PosternProcess) =>
      postern.call('POST', '/api/auth/signup', { body: { orgName: 'Acme', email: 'in-the-middle@acme.test' } });
    const interrupted = signUp(killed).catch(() => undefined);
    await eventually('the sign-up waits for its role', async () => {
      const { rows } = await operator.query("SELECT FROM pg_locks WHERE relation = 'pg_authid'::regclass AND NOT granted");
      return rows.length === 1;
    });
    await killed.end('SIGKILL');
    expect(await interrupted).toBe(undefined);
    await operator.query('ROLLBACK');

    const next = await installation.start(variables);
    expect((await operator.query(names)).rows).toEqual(before.rows);
    expect((await signUp(next)).status).toBe(201);
    await operator.end();
  });
});
