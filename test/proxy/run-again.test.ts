import { expect, it } from 'vitest';
import { encodeFrontend } from '../conversations/frontend-message.ts';
import { readReplies } from '../conversations/replies.ts';
import { openSession } from '../support/raw-session.ts';
import { startTestService } from '../support/service.ts';

it('what a request has committed before it fails is not done twice, whatever could otherwise be run again', async () => {
  const service = await startTestService({ POSTERN_BACKENDS_PER_TENANT: '1' });
  const client = await openSession(service, await service.signUp());
  const ask = async (...lines: string[]) => {
    await client.write(Buffer.concat(lines.map(encodeFrontend)));
    return readReplies(client, 'ReadyForQuery', 1);
  };
  const run = (sql: string) => [`Parse "" ${sql}`, 'Bind "" "" []', 'Execute ""'];
  try {
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
  } finally {
    client.disconnect();
    await service.close();
  }
});
