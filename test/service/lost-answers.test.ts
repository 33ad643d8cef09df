import { randomBytes } from 'node:crypto';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { newControlDatabase } from '../support/control-databases.ts';
import { eventually } from '../support/eventually.ts';
import { makeOwnCluster, type OwnCluster } from '../support/own-cluster.ts';
import { makePostgresProxy, type PostgresProxy } from '../support/postgres-proxy.ts';
import { type JsonReply, startTestService, type TestService } from '../support/service.ts';

const newEmail = () => `${randomBytes(6).toString('hex')}@acme.test`;

async function connect(url: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url });
  client.on('error', () => {});
  await client.connect();
  return client;
}

function signUp(service: TestService, email: string): Promise<JsonReply> {
  return service.call('POST', '/api/auth/signup', { body: { orgName: 'Acme', email } });
}

describe('a sign-up whose PostgreSQL goes away in the middle of it', () => {
  let cluster: OwnCluster;
  let service: TestService;
  beforeAll(async () => {
    cluster = await makeOwnCluster();
    service = await startTestService({ DATABASE_URL: cluster.url });
  });
  afterAll(async () => {
    await service.close();
    await cluster.remove();
  });

  /** A sign-up that cannot go on: no roles can be made. @returns its reply to come, and the process that serves it */
  async function hangingSignUp(email: string, operator: pg.Client): Promise<{ reply: Promise<JsonReply>; processId: number }> {
    await operator.query('BEGIN; LOCK TABLE pg_catalog.pg_authid IN SHARE MODE');
    const reply = signUp(service, email);
    const waiting = "SELECT pid FROM pg_catalog.pg_locks WHERE relation = 'pg_authid'::regclass AND NOT granted";
    let processId = 0;
    await eventually('the sign-up waits', async () => {
      processId = (await operator.query(waiting)).rows[0]?.pid ?? 0;
      return processId !== 0;
    });
    return { reply, processId };
  }

  /** Until then it might be taken for one that is gone. */
  async function serviceIsListening(): Promise<void> {
    await eventually('the process is known to be there', async () => {
      const operator = await connect(cluster.url).catch(() => undefined);
      const held = await operator?.query("SELECT FROM pg_catalog.pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock'");
      await operator?.end();
      return held?.rowCount === 1;
    });
  }

  it('is undone by the same process once it is back, and its e-mail address is free again', async () => {
    const email = newEmail();
    const { reply } = await hangingSignUp(email, await connect(cluster.url));
    await cluster.stop();
    expect(await reply).toMatchObject({ status: 503 });

    await cluster.start();
    await serviceIsListening();
    await service.service.signUps.undoInterrupted();
    expect(await signUp(service, email)).toMatchObject({ status: 201 });
  });

  it('fails alone where PostgreSQL goes without a word: the process goes on', async () => {
    const email = newEmail();
    const { reply, processId } = await hangingSignUp(email, await connect(cluster.url));
    process.kill(processId, 'SIGKILL');
    expect(await reply).toMatchObject({ status: 503 });

    await serviceIsListening();
    await service.service.signUps.undoInterrupted();
    expect(await signUp(service, email)).toMatchObject({ status: 201 });
  });
});

describe('where the answer to a COMMIT is lost', () => {
  const controlDatabase = newControlDatabase();
  let proxy: PostgresProxy;
  let service: TestService;
  let operator: pg.Client;
  beforeAll(async () => {
    proxy = await makePostgresProxy(inject('clusterUrl'));
    service = await startTestService({ DATABASE_URL: proxy.url, POSTERN_CONTROL_DATABASE: controlDatabase });
    operator = await connect(inject('clusterUrl'));
  });
  afterAll(async () => {
    await operator.end();
    await service.close();
    await proxy.close();
  });

  /** Of the platform's sessions, with no audit entries left to write. Resolves when the transaction is committed and the session over. */
  async function loseCommit(number: number): Promise<void> {
    await new Promise<void>((resolve) => {
      let commits = 0;
      proxy.alterAnswers('postern_platform', (bytes) => {
        if (!bytes.includes('COMMIT\0')) return bytes;
        commits += 1;
        if (commits !== number) return bytes;
        resolve();
        return Buffer.alloc(0);
      });
    });
    const { rowCount } = await operator.query(
      "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1 AND usename = 'postern_platform' AND query = 'commit'",
      [controlDatabase],
    );
    expect(rowCount).toBeGreaterThan(0);
  }

  it.each([1, 2])('a sign-up is undone, be it COMMIT number %i: nobody was told its key', async (number) => {
    const email = newEmail();
    await service.service.router.catalog.audit.flush();
    const lost = loseCommit(number);
    const interrupted = signUp(service, email);
    await lost;
    expect(await interrupted).toMatchObject({ status: 503, body: { retryable: true } });
    await service.service.signUps.undoInterrupted();
    expect(await signUp(service, email)).toMatchObject({ status: 201 });
  });

  it('a rotation tells the new key all the same: nobody else knows it', async () => {
    const organization = await service.signUp();
    await service.service.router.catalog.audit.flush();
    const lost = loseCommit(1);
    const rotated = service.call('POST', '/api/auth/rotate-key', { key: organization.apiKey });
    await lost;
    expect(await rotated).toMatchObject({ status: 200 });
    const { apiKey } = (await rotated).body;
    expect((await service.query({ ...organization, apiKey }, 'SELECT 1')).status).toBe(200);
    expect((await service.query(organization, 'SELECT 1')).status).toBe(401);
  });
});
