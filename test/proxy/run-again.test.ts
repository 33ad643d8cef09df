import { afterEach, beforeEach, expect, it } from 'vitest';
import { encodeFrontend } from '../conversations/frontend-message.ts';
import { readReplies } from '../conversations/replies.ts';
import type { WireClient } from '../conversations/wire-client.ts';
import { openSession } from '../support/raw-session.ts';
import { startTestService, type TestService } from '../support/service.ts';

let service: TestService;
let client: WireClient;
beforeEach(async () => {
  service = await startTestService({ POSTERN_BACKENDS_PER_TENANT: '1' });
  client = await openSession(service, await service.signUp());
});
afterEach(async () => {
  client.disconnect();
  await service.close();
});

async function ask(...lines: string[]): Promise<string[]> {
  await client.write(Buffer.concat(lines.map(encodeFrontend)));
  return readReplies(client, 'ReadyForQuery', 1);
}

const run = (sql: string) => [`Parse "" ${sql}`, 'Bind "" "" []', 'Execute ""'];

it('what a request has committed before it fails is not done twice, whatever could otherwise be run again', async () => {
  // What would be sent at once, before the error.
  await ask('Query SET client_min_messages = error');
  await ask('Query CREATE TABLE t (a int); CREATE TABLE u (b int)');
  await ask("Query CREATE FUNCTION alter_unseen() RETURNS void LANGUAGE plpgsql AS 'BEGIN ALTER TABLE u ADD c int; END'");
  for (let i = 0; i < 6; i += 1) await ask(...run('INSERT INTO t VALUES (1)'), 'Sync');
  await ask('Parse s SELECT * FROM u', 'Bind "" s []', 'Execute ""', 'Sync');
  await ask('Query SELECT alter_unseen()');
  const heard = await ask(...run('INSERT INTO t VALUES (1)'), ...run('COMMIT'), 'Bind "" s []', 'Execute ""', 'Sync');
  expect(heard).toEqual([
    'ParseComplete',
    'BindComplete',
    'CommandComplete INSERT 0 1',
    'ParseComplete',
    'BindComplete',
    'CommandComplete COMMIT',
    'ErrorResponse ERROR 0A000 "cached plan must not change result type"',
    'ReadyForQuery I',
  ]);
  expect(await ask('Query SELECT count(*)::int FROM t')).toContain('DataRow 7');
});

it.each([
  ['26000', 'a statement that is gone'],
  ['0A000', 'a plan that is stale'],
])('an error %s that only says that it is about %s is told', async (sqlstate) => {
  await ask('Parse s SELECT 1', 'Sync');
  await ask(`Query CREATE FUNCTION lie() RETURNS int LANGUAGE plpgsql AS $f$
    DECLARE name text;
    BEGIN
      SELECT p.name INTO name FROM pg_prepared_statements p WHERE p.name LIKE 'postern%' LIMIT 1;
      RAISE EXCEPTION USING errcode = '${sqlstate}', message = 'cached plan ' || coalesce(name, 'none');
    END $f$`);
  const told = expect.stringMatching(`^ErrorResponse ERROR ${sqlstate} "cached plan `);
  for (let i = 0; i < 6; i += 1) expect(await ask(...run('SELECT lie()'), 'Sync')).toContainEqual(told);
  expect(await ask('Query SELECT lie()')).toContainEqual(told);
  expect(await ask("Query DO 'BEGIN PERFORM lie(); END'")).toContainEqual(told);
});
