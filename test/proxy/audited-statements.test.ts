import { afterAll, beforeAll, expect, it } from 'vitest';
import { encodeFrontend } from '../conversations/frontend-message.ts';
import { readReplies } from '../conversations/replies.ts';
import type { WireClient } from '../conversations/wire-client.ts';
import { eventually } from '../support/eventually.ts';
import { openSession } from '../support/raw-session.ts';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';

let service: TestService;
let organization: TestOrganization;
let client: WireClient;
beforeAll(async () => {
  service = await startTestService();
  organization = await service.signUp();
  client = await openSession(service, organization);
});
afterAll(() => service.close());

/** Asks and waits for the end of each request in turn. */
async function ask(...lines: readonly string[]): Promise<void> {
  await client.write(Buffer.concat(lines.map(encodeFrontend)));
  const ends = lines.filter((line) => line === 'Sync' || line.startsWith('Query'));
  await readReplies(client, 'ReadyForQuery', ends.length);
}

const run = (name: string) => [`Bind "" ${name} []`, 'Execute ""', 'Sync'];
const comment = (bytes: number) => `/*${'x'.repeat(bytes)}*/`;

let asked = 0;

/** Entries about statements since the last one asked for, as `command outcome: text`, oldest first. */
async function entries(): Promise<string[]> {
  asked += 1;
  const end = `create table end_${asked}()`;
  await ask(`Query ${end}`);
  let found: string[] = [];
  await eventually('the last entry', async () => {
    const { body } = await service.call('GET', '/api/audit?action=statement&limit=50', { key: organization.apiKey });
    found = body.data.map(({ statement, outcome }: Entry) => `${statement.command ?? outcome.sqlstate}: ${statement.sql.slice(0, 60)}`);
    return found[0]?.endsWith(end) === true;
  });
  const before = found.findIndex((entry, at) => at > 0 && entry.includes('create table end_'));
  return found.slice(1, before < 0 ? found.length : before).reverse();
}
interface Entry {
  readonly statement: { readonly sql: string; readonly command?: string };
  readonly outcome: { readonly sqlstate?: string };
}

it('what is prepared first and run later is recorded when it runs, each time', async () => {
  await ask('Parse n create table if not exists a1()', 'Sync');
  await ask(...run('n'));
  await ask(...run('n'));
  await ask('Parse "" create table a2()', 'Sync');
  await ask(...run('""'));
  await ask('Parse "" create table a3()', 'Bind "" "" []', 'Execute ""', 'Sync');
  expect(await entries()).toEqual([
    'CREATE TABLE: create table if not exists a1()',
    'CREATE TABLE: create table if not exists a1()',
    'CREATE TABLE: create table a2()',
    'CREATE TABLE: create table a3()',
  ]);
});

it('in a name that another client has prepared, too', async () => {
  const other = await service.connect(organization);
  for (let round = 0; round < 2; round += 1) {
    const { rows } = await other.query({ name: 'shared', text: 'drop table if exists never_there' });
    expect(rows).toEqual([]);
  }
  await other.end();
  await ask('Parse shared drop table if exists never_there', 'Sync');
  await ask(...run('shared'));
  expect(await entries()).toEqual(Array(3).fill('DROP TABLE: drop table if exists never_there'));
});

it('what fails is recorded with its error, whether it is prepared or run', async () => {
  await ask('Parse "" create tible a1()', 'Sync');
  await ask('Parse twice create table a2()', 'Sync');
  await ask(...run('twice'));
  expect(await entries()).toEqual(['42601: create tible a1()', '42P07: create table a2()']);
});

it('a table made from a query, and a block that speaks of tables, are', async () => {
  await ask('Query create table b1 as select 1 as a');
  await ask('Query select 1; create table b2()');
  await ask('Query do $$ begin create table b3(); end $$');
  expect(await entries()).toEqual([
    'SELECT: create table b1 as select 1 as a',
    'CREATE TABLE: select 1; create table b2()',
    'DO: do $$ begin create table b3(); end $$',
  ]);
});

it('what stands behind a long comment is', async () => {
  await ask(`Query ${comment(100_000)} create table c1()`);
  await ask(`Parse "" ${comment(1_100_000)} create table c2()`, ...run('""'));
  expect(await entries()).toEqual(Array(2).fill(`CREATE TABLE: ${comment(100).slice(0, 60)}`));
});

it('what only mentions such words, or is long, is not', async () => {
  await ask("Query select 'create a table' as a");
  await ask(`Query select '${'x'.repeat(100_000)}' as a`);
  await ask(`Query select 1/0 ${comment(100_000)} as a`);
  expect(await entries()).toEqual([]);
});
