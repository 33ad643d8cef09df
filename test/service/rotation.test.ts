import { once } from 'node:events';
import type pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Doors, TestOrganization } from '../support/doors.ts';
import { eventually } from '../support/eventually.ts';
import { LANDMARK, landmarkPassed } from '../support/landmark.ts';
import { type Installation, makeInstallation, type PosternProcess } from '../support/process.ts';
import { startTestService, type TestService, testVariables } from '../support/service.ts';

/** One Postern of two processes: this one, and a child. */
let here: TestService;
let installation: Installation;
let there: PosternProcess;
beforeAll(async () => {
  const variables = testVariables();
  here = await startTestService(variables);
  installation = await makeInstallation();
  there = await installation.start(variables);
});
afterAll(async () => {
  await here.close();
  await installation.remove();
});

async function rotate(doors: Doors, { apiKey, ...organization }: TestOrganization): Promise<TestOrganization> {
  const { status, body } = await doors.call('POST', '/api/auth/rotate-key', { key: apiKey });
  expect(status).toBe(200);
  return { ...organization, apiKey: body.apiKey };
}

async function isServed(doors: Doors, organization: TestOrganization): Promise<void> {
  expect((await doors.query(organization, 'SELECT 1 AS one')).body.rows).toEqual([{ one: 1 }]);
  const client = await doors.connect(organization);
  expect((await client.query('SELECT 1 AS one')).rows).toEqual([{ one: 1 }]);
  await client.end();
}

async function isRefused(doors: Doors, organization: TestOrganization): Promise<void> {
  expect(await doors.query(organization, 'SELECT 1')).toMatchObject({ status: 401, body: { code: 'unauthorized' } });
  await expect(doors.connect(organization)).rejects.toMatchObject({ severity: 'FATAL', code: '28P01' });
}

const lastWordsOf = async (client: pg.Client) => (await once(client, 'error'))[0];
const REVOKED = { severity: 'FATAL', code: '57P01', message: 'terminating connection due to API key rotation' };

describe('rotating the key', () => {
  it('kills the old one and its sessions at once, and the new one works at both doors', async () => {
    const old = await here.signUp();
    await here.query(old, 'CREATE TABLE notes (body text)');
    const idle = await here.connect(old);
    const inTransaction = await here.connect(old);
    await inTransaction.query("BEGIN; INSERT INTO notes VALUES ('never committed')");
    // PostgreSQL sends 8 kB of the row, and the rest when there is more.
    const stalls = "COPY (SELECT repeat('x', 9000), pg_sleep(0) UNION ALL SELECT '', pg_sleep(60)) TO STDOUT";
    const copying = (await here.connect(old)).query(stalls);
    copying.catch(() => {});
    const busy = await here.connect(old);
    const running = busy.query(`SELECT FROM (${LANDMARK}) AS passed, pg_sleep(60)`);
    const [, ...ends] = [running.catch(() => {}), ...[idle, inTransaction].map(lastWordsOf)];
    await landmarkPassed(idle);

    const renewed = await rotate(here, old);
    for (const end of ends) expect(await end).toMatchObject(REVOKED);
    for (const interrupted of [running, copying]) await expect(interrupted).rejects.toMatchObject(REVOKED);
    await isRefused(here, old);
    await isServed(here, renewed);
    expect((await here.query(renewed, 'SELECT * FROM notes')).body.rows).toEqual([]);
    // What ran has been stopped, and its locks with it.
    await eventually('the statement is gone', async () => {
      const { body } = await here.query(renewed, 'SELECT pg_try_advisory_xact_lock(4711) AS free');
      return body.rows[0].free;
    });
  });

  it('tells those who go on with the old one at every door, and they do not lock the new one out', async () => {
    const old = await here.signUp();
    const renewed = await rotate(here, old);
    const { body: me } = await here.call('GET', '/api/auth/me', { key: renewed.apiKey });
    const message = `this API key was rotated at ${me.apiKey.createdAt}`;
    for (let tries = 0; tries < 12; tries += 1) {
      await expect(here.connect(old)).rejects.toMatchObject({ severity: 'FATAL', code: '28P01', message });
      await expect(there.connect(old)).rejects.toMatchObject({ code: '28P01', message });
      expect(await here.query(old, 'SELECT 1')).toMatchObject({ status: 401, body: { code: 'unauthorized', detail: message } });
      const connectionString = `postgres://${old.id}:${old.apiKey}@localhost/${old.id}`;
      const headers = { 'neon-connection-string': connectionString };
      const { status, body } = await here.call('POST', '/sql', { headers, body: { query: 'SELECT 1', params: [] } });
      expect([status, body.code, body.message]).toEqual([400, '28P01', message]);
    }
    await isServed(here, renewed);
    await isServed(there, renewed);

    // Wrong keys count as before; and of the old one's failures no more stand in the audit log than of those.
    const failures = () => here.call('GET', '/api/audit?action=login.failed&limit=100', { key: renewed.apiKey });
    await eventually('the failures in both processes are in the audit log', async () => (await failures()).body.data.length === 20);
    const recorded = { actor: { keyPrefix: old.apiKey.slice(0, 10) }, outcome: { sqlstate: '28P01' } };
    expect((await failures()).body.data[0]).toMatchObject(recorded);
    const wrong = { ...old, apiKey: `${old.apiKey}x` };
    for (let tries = 0; tries < 10; tries += 1) await expect(here.connect(wrong)).rejects.toMatchObject({ code: '28P01' });
    await expect(here.connect(wrong)).rejects.toMatchObject({ code: '28000' });
    await isServed(here, renewed);
  });

  it('counts in every process of the service', async () => {
    const old = await here.signUp();
    await isServed(there, old);
    const session = await there.connect(old);
    const end = lastWordsOf(session);

    const renewed = await rotate(here, old);
    expect(await end).toMatchObject(REVOKED);
    await isRefused(there, old);
    await isServed(there, renewed);

    const again = await rotate(there, renewed);
    await eventually('this process has heard of it', async () => (await here.query(renewed, 'SELECT 1')).status === 401);
    await isRefused(here, renewed);
    await isServed(here, again);
  });

  it('is one of the ends of a key that count everywhere: expiry by the clock, other networks, revocation', async () => {
    const organization = await here.signUp();
    const ask = (method: string, path: string, body?: object) =>
      here.call(method, `/api/keys${path}`, { key: organization.apiKey, ...(body === undefined ? {} : { body }) });
    const make = async (details: object) => {
      const { status, body } = await ask('POST', '', { name: 'one', scope: 'write', ...details });
      expect(status).toBe(201);
      return { keyId: body.keyId as string, holder: { ...organization, apiKey: body.apiKey as string } };
    };
    const kept = await make({ expiresAt: '2100-01-01T00:00:00Z' });
    const [shortened, moved, revoked] = [await make({}), await make({}), await make({})];
    for (const { holder } of [kept, shortened, moved, revoked]) await isServed(there, holder);
    const staying = await there.connect(kept.holder);
    // Its session has begun before it expires.
    const expiring = await make({ expiresAt: new Date(Date.now() + 10_000).toISOString() });
    const sessions = await Promise.all([expiring, shortened, moved, revoked].map(({ holder }) => there.connect(holder)));
    const ends = sessions.map(lastWordsOf);

    await ask('PATCH', `/${shortened.keyId}`, { expiresAt: new Date(Date.now() + 5_000).toISOString() });
    await ask('PATCH', `/${moved.keyId}`, { networks: ['203.0.113.0/24'] });
    await ask('DELETE', `/${revoked.keyId}`);
    const why = (await Promise.all(ends)).map(({ code, message }) => `${code} ${message.replace(/^.*due to API key /, '')}`);
    expect(why).toEqual(['57P01 expiry', '57P01 expiry', '57P01 networks that have changed', '57P01 revocation']);
    for (const { holder } of [expiring, shortened, revoked]) await isRefused(there, holder);
    await expect(there.connect(moved.holder)).rejects.toMatchObject({ severity: 'FATAL', code: '28000' });
    expect((await staying.query('SELECT 1 AS one')).rows).toEqual([{ one: 1 }]);
    await staying.end();
  });

  it('twice at once has one winner', async () => {
    const old = await here.signUp();
    const replies = await Promise.all(
      [here, there, here, there].map((doors) => doors.call('POST', '/api/auth/rotate-key', { key: old.apiKey })),
    );
    expect(replies.map(({ status }) => status).sort()).toEqual([200, 401, 401, 401]);
    const winner = replies.find(({ status }) => status === 200);
    await isServed(here, { ...old, apiKey: winner?.body.apiKey });
    await eventually('this process has heard of it', async () => (await here.query(old, 'SELECT 1')).status === 401);
    await isRefused(here, old);
  });

  it('does not touch the sessions of others', async () => {
    const [rotating, other] = [await here.signUp(), await here.signUp()];
    const session = await here.connect(other);
    const witness = await here.connect(rotating);
    const end = lastWordsOf(witness);
    await rotate(here, rotating);
    await end;
    expect((await session.query('SELECT 1 AS one')).rows).toEqual([{ one: 1 }]);
    await session.end();
  });
});

describe('a suspended organization', () => {
  it('is told so at both doors, and its sessions end', async () => {
    const organization = await here.signUp();
    const session = await here.connect(organization);
    const end = lastWordsOf(session);
    await here.service.router.catalog.organizations.setStatus(organization.id, 'suspended', { surface: 'admin', sourceIp: '127.0.0.1' });
    expect(await end).toMatchObject({ severity: 'FATAL', code: '28000' });
    expect(await here.query(organization, 'SELECT 1')).toMatchObject({ status: 403, body: { code: 'organization_suspended' } });
    await expect(here.connect(organization)).rejects.toMatchObject({ severity: 'FATAL', code: '28000' });
    await expect(here.connect({ ...organization, apiKey: `${organization.apiKey}x` })).rejects.toMatchObject({ code: '28P01' });

    await here.service.router.catalog.organizations.setStatus(organization.id, 'active', { surface: 'admin', sourceIp: '127.0.0.1' });
    await isServed(here, organization);
  });
});
