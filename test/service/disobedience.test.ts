import type { Socket } from 'node:net';
import pg from 'pg';
import { afterAll, beforeAll, expect, inject, it } from 'vitest';
import { eventually } from '../support/eventually.ts';
import { startTestService, type TestService } from '../support/service.ts';

/** A statement that swallows every cancel request. */
const STUBBORN = `DO $$ BEGIN LOOP
  BEGIN PERFORM pg_sleep(60); EXCEPTION WHEN query_canceled THEN NULL; END;
END LOOP; END $$`;

let service: TestService;
let hasty: TestService;
let admin: pg.Client;
beforeAll(async () => {
  service = await startTestService();
  hasty = await startTestService({ POSTERN_WIRE_STATEMENT_TIMEOUT_MS: '300' });
  admin = new pg.Client({ ...inject('cluster') });
  await admin.connect();
});
afterAll(async () => {
  await admin.end();
  await hasty.close();
  await service.close();
});

/** The processes of the server that run the organization's {@link STUBBORN} statement. */
async function processesOf(id: string): Promise<number[]> {
  const text = "SELECT pid FROM pg_stat_activity WHERE usename = $1 AND state = 'active' AND query = $2";
  const { rows } = await admin.query(text, [id, STUBBORN]);
  return rows.map(({ pid }) => pid);
}

const atRest = async (id: string): Promise<boolean> => (await processesOf(id)).length === 0;

it('ends a statement on the wire that obeys no cancel request', async () => {
  const organization = await hasty.signUp();
  const client = await hasty.connect(organization);
  await expect(client.query(STUBBORN)).rejects.toMatchObject({ code: '57014' });
  await eventually('the process is gone', () => atRest(organization.id));
});

it('ends one whose client has vanished', async () => {
  const organization = await service.signUp();
  const client = await service.connect(organization);
  client.query(STUBBORN).catch(() => {});
  await eventually('it runs', async () => !(await atRest(organization.id)));
  (client as pg.Client & { readonly connection: { readonly stream: Socket } }).connection.stream.destroy();
  await eventually('the process is gone', () => atRest(organization.id));
});

it('does not keep its client waiting that is sent away', async () => {
  const organization = await service.signUp();
  const client = await service.connect(organization);
  const refused = expect(client.query(STUBBORN)).rejects.toMatchObject({ code: '57P01' });
  await eventually('it runs', async () => !(await atRest(organization.id)));
  const [pid] = await processesOf(organization.id);
  if (pid === undefined) throw new Error('it does not run');
  // It ends for nobody until it goes on.
  process.kill(pid, 'SIGSTOP');
  try {
    await service.call('POST', '/api/auth/rotate-key', { key: organization.apiKey });
    await refused;
  } finally {
    process.kill(pid, 'SIGCONT');
  }
  await eventually('the process is gone', () => atRest(organization.id));
});

it('ends one over HTTP', async () => {
  const organization = await service.signUp();
  const { status } = await service.call('POST', '/api/query', { key: organization.apiKey, body: { sql: STUBBORN, timeoutMs: 300 } });
  expect(status).toBe(504);
  await eventually('the process is gone', () => atRest(organization.id));
});
