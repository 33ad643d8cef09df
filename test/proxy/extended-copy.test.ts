import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest';
import { describeBackend } from '../conversations/backend-message.ts';
import { encodeFrontend } from '../conversations/frontend-message.ts';
import { logIn } from '../conversations/login.ts';
import { WireClient } from '../conversations/wire-client.ts';
import { openSession } from '../support/raw-session.ts';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';

/**
 * COPY by the extended protocol as libpq does it: the Sync goes out with the Execute and is ignored, and another one is due
 * when the data has been sent. Until then the backend can be nobody else's.
 */
let service: TestService;
let organization: TestOrganization;
beforeAll(async () => {
  service = await startTestService({ POSTERN_BACKENDS_PER_TENANT: '2' });
});
afterAll(() => service.close());
beforeEach(async () => {
  organization = await service.signUp();
  await service.query(organization, 'CREATE TABLE people (id int)');
});

const COPY = ['Parse "" COPY people FROM STDIN', 'Bind "" "" []', 'Execute "" 0', 'Sync'];

async function say(client: WireClient, lines: readonly string[], last: string): Promise<string[]> {
  await client.write(Buffer.concat(lines.map(encodeFrontend)));
  const heard: string[] = [];
  while (!heard.at(-1)?.startsWith(last)) {
    const message = await client.read();
    if (typeof message !== 'object') throw new Error(`after ${heard.join(', ')}: ${message ?? 'silence'}`);
    heard.push(describeBackend(message));
  }
  return heard;
}

/** Others at work on every backend there is to be had. */
async function othersCount(): Promise<number[]> {
  const clients = await Promise.all([1, 2, 3].map(() => service.connect(organization)));
  const results = await Promise.all(clients.map((client) => client.query('SELECT count(*)::int AS n FROM people')));
  await Promise.all(clients.map((client) => client.end()));
  return results.map(({ rows }) => rows[0].n);
}

it('whose data is wrong keeps its backend up to the next Sync', async () => {
  const client = await openSession(service, organization);
  await say(client, COPY, 'CopyInResponse');
  const { body } = await service.call('GET', '/api/sessions', { key: organization.apiKey });
  const { statement } = body.sessions.find(({ door, state }: { door: string; state: string }) => door === 'wire' && state === 'active');
  expect(statement).toMatchObject({ sql: 'COPY people FROM STDIN' });
  const refused = await say(client, ['CopyData "no number\\n"'], 'ErrorResponse');
  expect(refused.at(-1)).toContain('22P02');
  expect(await othersCount()).toEqual([0, 0, 0]);
  expect(await say(client, ['CopyDone', 'Sync'], 'ReadyForQuery')).toEqual(['ReadyForQuery I']);
  expect(await say(client, ['Query SELECT 1'], 'ReadyForQuery')).toContain('DataRow 1');
  client.disconnect();
});

it('that is done commits with its Sync and not before, whatever others do meanwhile', async () => {
  const client = await openSession(service, organization);
  await say(client, COPY, 'CopyInResponse');
  expect(await say(client, ['CopyData "1\\n2\\n"', 'CopyDone', 'Flush'], 'CommandComplete')).toEqual(['CommandComplete COPY 2']);
  expect(await othersCount()).toEqual([0, 0, 0]);
  const clumsy = await service.connect(organization);
  await expect(clumsy.query('SELECT 1 / 0')).rejects.toMatchObject({ code: '22012' });
  await clumsy.end();
  expect(await say(client, ['Sync'], 'ReadyForQuery')).toEqual(['ReadyForQuery I']);
  expect(await othersCount()).toEqual([2, 2, 2]);
  client.disconnect();
});

it('whose client vanishes leaves no broken backend to the next one', async () => {
  for (let round = 0; round < 4; round += 1) {
    const client = await openSession(service, organization);
    await say(client, COPY, 'CopyInResponse');
    client.disconnect();
    expect(await othersCount()).toEqual([0, 0, 0]);
  }
});

it('that the client breaks off by nonsense ends the session, as Postgres ends it', async () => {
  const client = await openSession(service, organization);
  await say(client, COPY, 'CopyInResponse');
  const heard = await say(client, ['Execute "" 0'], 'ErrorResponse FATAL');
  expect(heard.map((message) => message.slice(0, 27))).toEqual(['ErrorResponse ERROR 08P01 "', 'ErrorResponse FATAL 08P01 "']);
  await client.write(encodeFrontend('Sync'));
  expect(await client.read()).toBe('EOF');
  expect(await othersCount()).toEqual([0, 0, 0]);
});

it('that fails with a Sync and a request amid its data ends the session, as nobody knows what is answered', async () => {
  const only = await startTestService({ POSTERN_BACKENDS_PER_TENANT: '1' });
  const lonely = await only.signUp();
  await only.query(lonely, 'CREATE TABLE people (id int)');
  const [client, next] = [await openSession(only, lonely), await openSession(only, lonely)];
  await say(client, ['Parse "" COPY people FROM STDIN', 'Bind "" "" []', 'Execute "" 0', 'Flush'], 'CopyInResponse');
  const lines = ['CopyData "no number\\n"', 'Sync', 'Query SELECT pg_sleep(0.3)'];
  const heard = await say(client, lines, 'ErrorResponse FATAL');
  expect(heard.map((message) => message.slice(0, 25))).toEqual(['ErrorResponse ERROR 22P02', 'ErrorResponse FATAL 08P01']);
  expect(await say(next, ["Query SELECT 'mine' AS whose"], 'ReadyForQuery')).toContain('DataRow mine');
  next.disconnect();
  await only.close();
});

it('whose data goes on, cut anywhere, when it has failed behind a RESET, does not keep the session from its start', async () => {
  const client = await WireClient.open('127.0.0.1', service.wirePort);
  const { id, apiKey } = organization;
  await logIn(client, { user: id, database: id, password: apiKey }, '3.0', new Map([['TimeZone', 'Asia/Tokyo']]));
  await say(client, ['Query RESET ALL; COPY people FROM STDIN'], 'CopyInResponse');
  const late = encodeFrontend('CopyData "1\\n2\\n3\\n"');
  await client.write(Buffer.concat([encodeFrontend('CopyData "no number\\n"'), late.subarray(0, 7)]));
  expect((await say(client, [], 'ErrorResponse')).at(-1)).toContain('22P02');
  await client.write(late.subarray(7));
  expect(await say(client, ['CopyDone'], 'ReadyForQuery')).toEqual(['ReadyForQuery I']);
  expect(await say(client, ['Query SHOW TimeZone'], 'ReadyForQuery')).toContain('DataRow Asia/Tokyo');
  client.disconnect();
});
