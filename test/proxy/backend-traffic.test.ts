import pg from 'pg';
import { afterAll, beforeAll, beforeEach, describe, expect, inject, it } from 'vitest';
import { encodeBackendMessage } from '../../src/protocol/backend.ts';
import { describeBackend } from '../conversations/backend-message.ts';
import { encodeFrontend } from '../conversations/frontend-message.ts';
import type { WireClient } from '../conversations/wire-client.ts';
import { eventually } from '../support/eventually.ts';
import { makePostgresProxy, type PostgresProxy } from '../support/postgres-proxy.ts';
import { openSession } from '../support/raw-session.ts';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';

/** What is said to the server, which clients do not see but in the time it takes. */
let proxy: PostgresProxy;
let service: TestService;
let organization: TestOrganization;
beforeAll(async () => {
  proxy = await makePostgresProxy(inject('clusterUrl'));
  service = await startTestService({ DATABASE_URL: proxy.url, POSTERN_BACKENDS_PER_TENANT: '2' });
});
// Another one each time: something may still be said in the sessions of clients that have gone.
beforeEach(async () => {
  organization = await service.signUp();
});
afterAll(async () => {
  await service.close();
  await proxy.close();
});

const SYNC = 'S\0\0\0\x04';
const QUERY = /Q\0\0/;
const SEVEN = [1, 2, 3, 4, 5, 6, 7];

async function say(client: WireClient, ...lines: readonly string[]): Promise<void> {
  await client.write(Buffer.concat(lines.map(encodeFrontend)));
}

async function hear(client: WireClient, count: number): Promise<string[]> {
  const heard: string[] = [];
  while (heard.length < count) {
    const message = await client.read();
    heard.push(typeof message === 'object' ? describeBackend(message) : String(message));
  }
  return heard;
}

async function query(client: WireClient, sql: string): Promise<void> {
  await say(client, `Query ${sql}`);
  while (!(await hear(client, 1))[0]?.startsWith('ReadyForQuery'));
}

describe('seven requests sent at once', () => {
  it.each([
    ['that prepare what they run', (n: number) => [`Parse "" SELECT ${n}`, 'Bind "" "" []', 'Execute', 'Sync']],
    ['as simple queries', (n: number) => [`Query SELECT ${n}`]],
  ])('%s are all with the server before it has answered any (P8)', async (_which, request) => {
    const client = await openSession(service, organization);
    await query(client, 'SELECT 0');
    proxy.takeSaid(organization.id);
    const letThrough = proxy.holdAnswers(organization.id);
    await say(client, ...SEVEN.flatMap(request));
    let said = '';
    await eventually('all has been said', () => {
      said += proxy.takeSaid(organization.id);
      return said.split(SYNC).length > 7 || said.split('Q\0\0').length > 7;
    });
    letThrough();
    const rows: string[] = [];
    while (rows.length < 7) rows.push(...(await hear(client, 1)).filter((heard) => heard.startsWith('DataRow')));
    expect(rows).toEqual(SEVEN.map((n) => `DataRow ${n}`));
    client.disconnect();
  });
});

it('a statement that a backend does not have yet is described there, once, before it runs (P8)', async () => {
  const [client, other] = [await openSession(service, organization), await openSession(service, organization)];
  await say(client, 'Parse s SELECT 7', 'Sync');
  await hear(client, 2);
  // The backend that has it is taken; the client gets to know another.
  await query(other, 'BEGIN');
  await query(client, 'SELECT 0');
  proxy.takeSaid(organization.id);
  for (const _ of SEVEN) {
    await say(client, 'Bind "" s []', 'Execute', 'Sync');
    expect(await hear(client, 4)).toContain('DataRow 7');
  }
  const [asked = '', run = '', ...more] = proxy.takeSaid(organization.id).split('H\0\0\0\x04');
  // The Bind that follows takes the place of an unnamed portal: Postern closes one before it prepares the statement.
  expect(asked).toMatch(/^C.{4}P\0P.{4}postern_\w+\0SELECT 7\0.*D.{4}Spostern_\w+\0$/s);
  expect(run.split('SELECT 7')).toHaveLength(1);
  expect(run.split(SYNC)).toHaveLength(8);
  expect(more).toEqual([]);
  client.disconnect();
  other.disconnect();
});

describe('settings', () => {
  it('are sent once, however they are spelt, and to no backend that has them (L13)', async () => {
    const client = await openSession(service, organization);
    for (const setting of ["datestyle = 'iso'", "TimeZone = 'utc'", "client_encoding = 'utf-8'", "work_mem = '8192kB'"])
      await query(client, `SET ${setting}`);
    await query(client, 'SELECT 1');
    proxy.takeSaid(organization.id);
    for (const n of SEVEN) await query(client, `SELECT ${n}`);
    expect(proxy.takeSaid(organization.id)).toBe(SEVEN.map((n) => `Q\0\0\0\x0dSELECT ${n}\0`).join(''));
    client.disconnect();
  });
});

describe('a backend that ends while it is given the settings of a client', () => {
  it('says why itself', async () => {
    const own = await service.signUp();
    const [client, other, third] = [await openSession(service, own), await openSession(service, own), await openSession(service, own)];
    await query(client, "SET work_mem = '5MB'");
    // Both backends are others' for a while.
    for (const one of [other, third]) await query(one, 'BEGIN');
    await query(third, 'COMMIT');
    proxy.takeSaid(own.id);
    let isTold = false;
    proxy.alterAnswers(own.id, () => {
      if (isTold) return Buffer.alloc(0);
      isTold = true;
      return encodeBackendMessage({ name: 'ErrorResponse', fields: { severity: 'FATAL', code: '57P01', message: 'going down' } });
    });
    await say(client, 'Query SELECT 1');
    await eventually('the backend has answered', () => isTold);
    const operator = new pg.Client({ connectionString: inject('clusterUrl') });
    await operator.connect();
    await operator.query('SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1', [own.id]);
    await operator.end();
    expect((await hear(client, 1))[0]).toContain('57P01');
    expect(proxy.takeSaid(own.id)).toContain("'work_mem', '5120'");
    for (const one of [client, other, third]) one.disconnect();
  });
});

describe('what the gateway itself wants to know of a session', () => {
  const SUSPECT = 'Parse "" DO $$BEGIN EXECUTE \'SELECT 1\'; END$$';

  it('is not asked in the middle of a pipeline, whose transaction it would commit (P11)', async () => {
    const client = await openSession(service, organization);
    await query(client, 'CREATE TABLE IF NOT EXISTS whole (i int)');
    proxy.takeSaid(organization.id);
    await say(client, 'Parse "" INSERT INTO whole VALUES (1)', 'Bind "" "" []', 'Execute', SUSPECT, 'Bind "" "" []', 'Execute', 'Flush');
    expect((await hear(client, 6)).at(-1)).toBe('CommandComplete DO');
    await say(client, 'Parse "" SELECT 1 / 0', 'Bind "" "" []', 'Execute', 'Flush');
    await eventually('there is an error', async () => (await hear(client, 1))[0]?.includes('22012') === true);
    expect(proxy.takeSaid(organization.id)).not.toMatch(QUERY);
    await say(client, 'Sync');
    await hear(client, 1);
    await say(client, 'Query SELECT count(*) FROM whole');
    expect((await hear(client, 4))[1]).toBe('DataRow 0');
    client.disconnect();
  });

  it('is not asked between a Sync and what is behind it already, but when all is answered (P11)', async () => {
    const client = await openSession(service, organization);
    await query(client, 'SELECT 1');
    proxy.takeSaid(organization.id);
    const request = ['Bind "" "" []', 'Execute'];
    await say(client, SUSPECT, ...request, 'Sync', 'Parse "" SELECT 2', ...request, 'Flush');
    expect((await hear(client, 8)).slice(3)).toEqual([
      'ReadyForQuery I',
      'ParseComplete',
      'BindComplete',
      'DataRow 2',
      'CommandComplete SELECT 1',
    ]);
    expect(proxy.takeSaid(organization.id)).not.toMatch(QUERY);
    await say(client, 'Sync');
    expect(await hear(client, 1)).toEqual(['ReadyForQuery I']);
    await eventually('it has been asked', () => QUERY.test(proxy.takeSaid(organization.id)));
    client.disconnect();
  });
});

describe('an error of the server', () => {
  /** Has the server say something else wherever it says an error. */
  function spoilErrors(said: string | undefined): void {
    proxy.alterAnswers(organization.id, (bytes) => {
      const error = bytes.indexOf('SERROR\0') - 5;
      if (error < 0 || said === undefined) return bytes;
      // The server may send the ReadyForQuery with it, or later.
      const end = error + 1 + bytes.readInt32BE(error + 1);
      return Buffer.concat([bytes.subarray(0, error), Buffer.from(said, 'latin1'), bytes.subarray(end)]);
    });
  }

  it.each([
    ['without any field', 'E\0\0\0\x05\0'],
    ['without SQLSTATE', 'E\0\0\0\x10SERROR\0Mno\0\0'],
    ['without a message', 'E\0\0\0\x13SERROR\0C22012\0\0'],
    ['with fields that nobody knows', 'E\0\0\0\x23SERROR\0C22012\0Mno\0Zwhy\0\x01\0\xffodd\0\0'],
  ])('%s is passed on as it is, and harms nobody (R5)', async (_what, said) => {
    const client = await openSession(service, organization);
    await query(client, 'SELECT 1');
    spoilErrors(said);
    await say(client, 'Query SELECT 1 / 0');
    expect(await client.read()).toEqual({ type: 'E', body: Buffer.from(said.slice(5), 'latin1') });
    expect(await hear(client, 1)).toEqual(['ReadyForQuery I']);
    await say(client, 'Parse "" SELECT 1 / 0', 'Bind "" "" []', 'Sync');
    expect((await client.read()) as object).toMatchObject({ type: '1' });
    expect(await client.read()).toEqual({ type: 'E', body: Buffer.from(said.slice(5), 'latin1') });
    expect(await hear(client, 1)).toEqual(['ReadyForQuery I']);
    expect((await service.query(organization, 'SELECT 1 / 0')).status).toBeGreaterThanOrEqual(400);
    spoilErrors(undefined);
    expect((await service.query(organization, 'SELECT 1 AS one')).body.rows).toEqual([{ one: 1 }]);
    await say(client, 'Query SELECT 2');
    expect((await hear(client, 4))[1]).toBe('DataRow 2');
    client.disconnect();
  });

  it('that is none ends the session that has met it, and no other (R5)', async () => {
    const [client, other] = [await openSession(service, organization), await openSession(service, organization)];
    await query(other, 'BEGIN');
    spoilErrors('E\0\0\0\x0cSERROR\0C');
    await say(client, 'Query SELECT 1 / 0');
    expect(await hear(client, 2)).toEqual([expect.stringMatching('ErrorResponse FATAL 08006'), 'EOF']);
    spoilErrors(undefined);
    await say(other, 'Query SELECT 2');
    expect((await hear(other, 4))[1]).toBe('DataRow 2');
    client.disconnect();
    other.disconnect();
  });
});
