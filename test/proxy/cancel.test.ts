import { randomBytes } from 'node:crypto';
import type pg from 'pg';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { requestCancel } from '../support/cancel-request.ts';
import { LANDMARK, landmarkPassed } from '../support/landmark.ts';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';

let service: TestService;
let organization: TestOrganization;
beforeAll(async () => {
  service = await startTestService();
  organization = await service.signUp();
});
afterAll(() => service.close());

const CANCELED = { severity: 'ERROR', code: '57014', message: 'canceling statement due to user request' };
const SLEEP = `SELECT FROM (${LANDMARK}) AS passed, pg_sleep(60)`;

/** What the driver has kept of BackendKeyData. */
function keyOf(client: pg.Client): { readonly processID: number; readonly secretKey: number } {
  return client as pg.Client & { readonly processID: number; readonly secretKey: number };
}

const sendCancel = (processId: number, secret: Buffer) => requestCancel(service, processId, secret);

it('the key of a session cancels what it runs, and the session goes on', async () => {
  const [client, watcher] = [await service.connect(organization), await service.connect(organization)];
  const running = client.query(SLEEP);
  const refused = expect(running).rejects.toMatchObject(CANCELED);
  await landmarkPassed(watcher);
  const secret = Buffer.alloc(4);
  secret.writeInt32BE(keyOf(client).secretKey);
  expect(await sendCancel(keyOf(client).processID, secret)).toHaveLength(0);
  await refused;
  expect((await client.query('SELECT 1 AS one')).rows).toEqual([{ one: 1 }]);
  await Promise.all([client.end(), watcher.end()]);
});

it('any other key does nothing, and is not told so', async () => {
  const [client, watcher] = [await service.connect(organization), await service.connect(organization)];
  await watcher.query('SELECT pg_advisory_lock(4712)');
  const running = client.query(`SELECT 'unharmed' AS state FROM (${LANDMARK}) AS passed, pg_advisory_xact_lock(4712)`);
  await landmarkPassed(watcher);
  const { processID } = keyOf(client);
  const guesses = Array.from({ length: 50 }, () => sendCancel(processID, randomBytes(4)));
  const otherLengths = [4, 8, 32, 256].map((bytes) => sendCancel(processID, Buffer.alloc(bytes)));
  for (const reply of await Promise.all([...guesses, ...otherLengths, sendCancel(1, randomBytes(4))])) expect(reply).toHaveLength(0);
  await watcher.query('SELECT pg_advisory_unlock(4712)');
  expect((await running).rows).toEqual([{ state: 'unharmed' }]);
  await Promise.all([client.end(), watcher.end()]);
});

it('an idle session is not harmed: its next statement runs', async () => {
  const client = await service.connect(organization);
  await client.query('SELECT 1');
  const secret = Buffer.alloc(4);
  secret.writeInt32BE(keyOf(client).secretKey);
  for (let round = 0; round < 20; round += 1) {
    await sendCancel(keyOf(client).processID, secret);
    expect((await client.query('SELECT 1 AS one')).rows).toEqual([{ one: 1 }]);
  }
  await client.end();
});

it('the driver cancels one of many that it has in flight', async () => {
  const sql = service.sql(organization, { max: 2 });
  const watcher = await service.connect(organization);
  const slow = sql.unsafe(SLEEP);
  const refused = expect(slow).rejects.toMatchObject({ code: '57014' });
  await landmarkPassed(watcher);
  const others = Promise.all(Array.from({ length: 20 }, (_, n) => watcher.query('SELECT $1::int AS n', [n])));
  slow.cancel();
  await refused;
  expect((await others).map(({ rows }) => rows[0].n)).toEqual(Array.from({ length: 20 }, (_, n) => n));
  await Promise.all([sql.end(), watcher.end()]);
});

it('a client that vanishes takes its statement with it', async () => {
  const [client, watcher] = [await service.connect(organization), await service.connect(organization)];
  await watcher.query('CREATE TABLE notes (body text)');
  await client.query("BEGIN; INSERT INTO notes VALUES ('half')");
  client.query(SLEEP).catch(() => {});
  await landmarkPassed(watcher);
  const { stream } = (client as pg.Client & { readonly connection: { readonly stream: { destroy(): void } } }).connection;
  stream.destroy();
  // Waits for the table lock of whoever is still at work there.
  await watcher.query("SET lock_timeout = '30s'; LOCK TABLE notes");
  expect((await watcher.query('SELECT * FROM notes')).rows).toEqual([]);
  await watcher.end();
});
