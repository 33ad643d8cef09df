import { createHash } from 'node:crypto';
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
  readonly statement: { readonly sql: string; readonly sqlHash: string; readonly command?: string };
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

it('a table made from a query is, by whatever words', async () => {
  await ask('Query create table b1 as select 1 as a');
  await ask('Query create/**/temp/**/table b2 as select 1 as a');
  await ask('Query CREATE MATERIALIZED/* */VIEW b3 AS SELECT 1 AS a');
  await ask('Query select 1 as a into b4');
  await ask('Query (select 1 as insert into b5)');
  await ask('Query with one as (select 1 as a) select * into b6 from one');
  await ask('Query explain analyze create table b7 as select 1 as a');
  await ask('Query explain (costs off, analyze) select 1 as a into b8');
  await ask('Query set standard_conforming_strings = off');
  await ask(`Query select 'a\\''; create table b9 as select 1 --'`, 'Query reset standard_conforming_strings');
  await ask('Parse "" select 1 as a into temp b10', ...run('""'));
  expect(await entries()).toEqual([
    'SELECT: create table b1 as select 1 as a',
    'SELECT: create/**/temp/**/table b2 as select 1 as a',
    'SELECT: CREATE MATERIALIZED/* */VIEW b3 AS SELECT 1 AS a',
    'SELECT: select 1 as a into b4',
    'SELECT: (select 1 as insert into b5)',
    'SELECT: with one as (select 1 as a) select * into b6 from one',
    'EXPLAIN: explain analyze create table b7 as select 1 as a',
    'EXPLAIN: explain (costs off, analyze) select 1 as a into b8',
    `SELECT: select 'a\\''; create table b9 as select 1 --'`,
    'SELECT: select 1 as a into temp b10',
  ]);
});

it('every block is, whatever it runs', async () => {
  await ask('Query do $$ begin create table c1(); end $$');
  await ask(`Query do $$ begin execute 'cre' || 'ate table c2()'; end $$`);
  await ask(`Parse d do language plpgsql $$ begin end $$`, 'Sync');
  await ask(...run('d'));
  await ask(`Query /* */ do/**/ 'begin raise ''no''; end'`);
  expect(await entries()).toEqual([
    'DO: do $$ begin create table c1(); end $$',
    `DO: do $$ begin execute 'cre' || 'ate table c2()'; end $$`,
    'DO: do language plpgsql $$ begin end $$',
    `P0001: do/**/ 'begin raise ''no''; end'`,
  ]);
});

it('comments are, with comments in them', async () => {
  await ask('Query create table d1()', 'Query COMMENT/**/ON TABLE d1 IS null');
  await ask('Query comment -- on\n on table d1 is null');
  expect(await entries()).toEqual([
    'CREATE TABLE: create table d1()',
    'COMMENT: COMMENT/**/ON TABLE d1 IS null',
    'COMMENT: comment -- on\n on table d1 is null',
  ]);
});

it('of several commands at once each is told', async () => {
  await ask('Query select 1; create table e1(); insert into e1 default values; grant select on e1 to current_user; select 2');
  await ask('Parse "" create table e2()', 'Bind "" "" []', 'Execute ""', 'Parse "" drop table e2', 'Bind "" "" []', 'Execute ""', 'Sync');
  await ask('Query create table e3(); select 1/0');
  expect(await entries()).toEqual([
    'SELECT, CREATE TABLE, INSERT, GRANT: select 1; create table e1(); insert into e1 default values; ',
    'CREATE TABLE, DROP TABLE: create table e2();\ndrop table e2',
    'CREATE TABLE: create table e3(); select 1/0',
  ]);
});

it('what stands behind a long comment is', async () => {
  await ask(`Query ${comment(5_000)} create table f0(); ${comment(5_000)} grant select on f0 to current_user`);
  await ask(`Query ${comment(100_000)} create table f1()`);
  await ask(`Parse "" ${comment(1_100_000)} create table f2()`, ...run('""'));
  await ask(`Query ${comment(1_100_000)}${'-- x\n'.repeat(10)}select 1 as a into f3`);
  expect(await entries()).toEqual([
    `CREATE TABLE, GRANT: create table f0(); /*${'x'.repeat(39)}`,
    'CREATE TABLE: create table f1()',
    'CREATE TABLE: create table f2()',
    'SELECT: select 1 as a into f3',
  ]);
});

it('what is too long to be kept is recorded when it is run later, each time', async () => {
  await ask(`Parse i1 ${comment(1_100_000)} create table if not exists i1()`, 'Sync');
  await ask(`Parse i2 ${comment(1_100_000)} select 1`, 'Sync');
  await ask(`Parse ${'i'.repeat(70)} do $$ ${comment(1_100_000)} begin end $$`, 'Sync');
  await ask(...run('i1'));
  await ask(...run('i2'));
  await ask(...run('i1'));
  await ask(...run('i'.repeat(63)));
  expect(await entries()).toEqual([
    'CREATE TABLE: create table if not exists i1()',
    'CREATE TABLE: create table if not exists i1()',
    `DO: do $$ /*${'x'.repeat(52)}`,
  ]);
});

it('a name that is longer than a text which is looked at is refused', async () => {
  const other = await openSession(service, organization);
  await other.write(Buffer.concat([`Parse ${'i'.repeat(1_100_000)} create table j()`, 'Sync'].map(encodeFrontend)));
  const [error] = await readReplies(other, 'ErrorResponse', 1);
  expect(error).toContain('54000');
  other.disconnect();
});

it('all of a text is hashed, however long, as over HTTP', async () => {
  const hashes = async () => {
    const { body } = await service.call('GET', '/api/audit?limit=50', { key: organization.apiKey });
    return body.data.flatMap(({ statement }: Entry) => (statement?.sql.startsWith('create or replace view') ? [statement.sqlHash] : []));
  };
  const texts = [1_000, 5_000, 100_000, 1_100_000, 3_000_000].flatMap((length) =>
    ['one', 'two'].map((end) => `create or replace view long as select 1 as a /*${'é'.repeat(length / 2)}*/, '${end}'::text as b`),
  );
  for (const text of texts) await ask(`Query ${text}`);
  const expected = texts.map((text) => createHash('sha256').update(text).digest('hex'));
  await eventually('all are there', async () => (await hashes()).length >= texts.length);
  expect((await hashes()).reverse()).toEqual(expected);
  await entries();
  for (const text of texts.slice(0, 6)) await service.query(organization, text);
  await eventually('those over HTTP, too', async () => (await hashes()).length >= texts.length + 6);
  expect((await hashes()).slice(0, 6).reverse()).toEqual(expected.slice(0, 6));
});

it('of a transaction over HTTP each command is told as well', async () => {
  const statements = ['create table h1()', 'insert into h1 default values', 'insert into h1 default values'].map((sql) => ({ sql }));
  const recorded = async () => {
    const { body } = await service.call('GET', '/api/audit?action=transaction', { key: organization.apiKey });
    return body.data.map(({ statement }: Entry) => statement.command);
  };
  await service.call('POST', '/api/transaction', { key: organization.apiKey, body: { statements } });
  await eventually('it is recorded', async () => (await recorded()).length === 1);
  expect(await recorded()).toEqual(['CREATE TABLE, INSERT']);
  const once = { key: organization.apiKey, body: { statements: [{ sql: 'create table h2()' }] }, headers: { 'idempotency-key': 'h2' } };
  for (let sent = 0; sent < 2; sent += 1) expect((await service.call('POST', '/api/transaction', once)).status).toBe(200);
  await eventually('both are recorded', async () => (await recorded()).length === 3);
  expect(await recorded()).toEqual([null, 'CREATE TABLE', 'CREATE TABLE, INSERT']);
});

it('what only mentions such words, or is long, is not', async () => {
  await ask("Query select 'create a table' as a");
  await ask(`Query select '${'x'.repeat(100_000)}' as a`);
  await ask(`Query select 1/0 ${comment(100_000)} as a`);
  await ask('Query create table g1 (comment text, security text, import int)');
  await ask(`Query insert into g1 (comment) select 'into' on conflict/**/do nothing`);
  await ask('Query with a as (insert into g1 (comment) values (1) returning 1 as b) select comment, security, import from g1, a');
  await ask('Query with a as (select 1) insert into g1 (import) select * from a');
  await ask('Query explain create table g2 as select 1 as a');
  expect(await entries()).toEqual(['CREATE TABLE: create table g1 (comment text, security text, import int)']);
});
