import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { TestOrganization } from '../support/doors.ts';
import { LANDMARK, landmarkPassed } from '../support/landmark.ts';
import { type Installation, makeInstallation, type PosternProcess } from '../support/process.ts';
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

describe('kill -9 of a Postern on a PostgreSQL that lives on', () => {
  let installation: Installation;
  beforeAll(async () => {
    installation = await makeInstallation();
  });
  afterAll(() => installation.remove());

  it('leaves nothing half done, and the next start serves with the same key', async () => {
    const variables = testVariables();
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
  });
});
