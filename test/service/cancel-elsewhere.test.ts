import type pg from 'pg';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { requestCancel } from '../support/cancel-request.ts';
import { eventually } from '../support/eventually.ts';
import { untilServerRuns } from '../support/running.ts';
import { type JsonReply, startTestService, type TestOrganization, type TestService, testVariables } from '../support/service.ts';

/** Three processes of one Postern. */
let processes: [TestService, TestService, TestService];
let organization: TestOrganization;
beforeAll(async () => {
  const variables = testVariables();
  processes = [await startTestService(variables), await startTestService(variables), await startTestService(variables)];
  organization = await processes[0].signUp();
});
afterAll(() => Promise.all(processes.map((one) => one.close())));

/** A client with the key in its BackendKeyData. */
async function connect(service: TestService): Promise<{ client: pg.Client; processId: number; secret: Buffer }> {
  const client = await service.connect(organization);
  const { processID, secretKey } = client as pg.Client & { readonly processID: number; readonly secretKey: number };
  const secret = Buffer.alloc(4);
  secret.writeInt32BE(secretKey);
  return { client, processId: processID, secret };
}

/** How many statements of the organization run, in all processes. */
async function running(): Promise<number> {
  let body: JsonReply['body'];
  await eventually('all processes have answered', async () => {
    ({ body } = await processes[0].call('GET', '/api/sessions', { key: organization.apiKey }));
    return body.isComplete;
  });
  return body.sessions.filter(({ statement }: { statement: { sql: string } | null }) => statement?.sql.includes('pg_sleep')).length;
}

it('a cancel request is honored by whichever process receives it, 20 of 20', async () => {
  const [own, second, third] = processes;
  for (let n = 0; n < 20; n += 1) {
    const { client, processId, secret } = await connect(own);
    const text = `SELECT pg_sleep(60) AS elsewhere_${n}`;
    const sleeping = client.query(text).catch((error: unknown) => error);
    await untilServerRuns(text);
    expect(await requestCancel(n % 2 === 0 ? second : third, processId, secret)).toHaveLength(0);
    expect(await sleeping).toMatchObject({ code: '57014', message: 'canceling statement due to user request' });
    expect((await client.query('SELECT 1 AS one')).rows).toEqual([{ one: 1 }]);
    await client.end();
  }
});

it('one with another secret does nothing, nor does one for a session that has ended', async () => {
  const [own, second] = processes;
  const { client, processId, secret } = await connect(own);
  const ended = await connect(own);
  await ended.client.end();
  const sleeping = client.query('SELECT pg_sleep(60) AS kept').catch((error: unknown) => error);
  await untilServerRuns('SELECT pg_sleep(60) AS kept');
  await requestCancel(second, processId, Buffer.from(secret.map((byte) => byte ^ 1)));
  await requestCancel(second, processId, Buffer.concat([secret, secret]));
  await requestCancel(second, ended.processId, ended.secret);
  // It would have arrived after the others.
  const marker = await connect(own);
  const marked = marker.client.query('SELECT pg_sleep(60) AS marked').catch((error: unknown) => error);
  await untilServerRuns('SELECT pg_sleep(60) AS marked');
  await requestCancel(second, marker.processId, marker.secret);
  expect(await marked).toMatchObject({ code: '57014' });
  // The error comes before the end of the statement.
  await marker.client.query('SELECT 1');
  expect(await running()).toBe(1);
  await requestCancel(second, processId, secret);
  expect(await sleeping).toMatchObject({ code: '57014' });
  await Promise.all([client.end(), marker.client.end()]);
});

it('of many at once each is honored, and a flood of forged ones keeps nobody from it', async () => {
  const [own, second] = processes;
  const clients = await Promise.all(Array.from({ length: 12 }, () => connect(own)));
  const sleeping = clients.map(({ client }) => client.query('SELECT pg_sleep(60) AS many').catch((error: unknown) => error));
  await untilServerRuns('SELECT pg_sleep(60) AS many', clients.length);
  const forged = Array.from({ length: 300 }, (_, n) => requestCancel(second, 2 ** 25 + n, Buffer.alloc(4)));
  const real = clients.map(({ processId, secret }) => requestCancel(second, processId, secret));
  for (const ended of await Promise.all(sleeping)) expect(ended).toMatchObject({ code: '57014' });
  await Promise.all([...forged, ...real]);
  await Promise.all(clients.map(({ client }) => client.end()));
});
