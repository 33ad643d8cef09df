import { afterAll, beforeAll, expect, it } from 'vitest';
import { describeBackend } from '../conversations/backend-message.ts';
import { encodeFrontend } from '../conversations/frontend-message.ts';
import { makeOwnCluster, type OwnCluster } from '../support/own-cluster.ts';
import { openSession } from '../support/raw-session.ts';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';

/**
 * What crashes PostgreSQL when it is sent there: a Query that fails inside a transaction leaves an unnamed portal without
 * its plan, which Execute then runs. On a cluster of its own, so that no other test goes down with it.
 */
let cluster: OwnCluster;
let service: TestService;
let organization: TestOrganization;
beforeAll(async () => {
  cluster = await makeOwnCluster();
  service = await startTestService({ DATABASE_URL: cluster.url });
  organization = await service.signUp();
});
afterAll(async () => {
  await service.close();
  await cluster.remove();
});

const PARSE = `Parse s2 SELECT ${"'x', ".repeat(500)} $1::text AS a`;
const PORTAL_GONE = 'ErrorResponse ERROR 34000 "portal \\"\\" does not exist"';

const WAYS: readonly (readonly [how: string, turns: readonly (readonly string[])[]])[] = [
  ['step by step', [['Query BEGIN'], ['Query ROLLBACK TO s'], [PARSE, 'Sync'], ['Execute "" 1', 'Sync']]],
  ['behind a Bind that fails', [['Query BEGIN'], ['Query ROLLBACK TO s'], [PARSE, 'Bind "" s2 []', 'Sync'], ['Execute "" 1', 'Sync']]],
  ['in one piece', [['Query BEGIN', 'Query ROLLBACK TO s', PARSE, 'Sync', 'Execute "" 1', 'Sync']]],
  [
    'in one piece, with a Bind that fails',
    [['Query BEGIN', 'Query ROLLBACK TO s', PARSE, 'Bind "" s2 []', 'Sync', 'Execute "" 1', 'Sync']],
  ],
  ['after a savepoint', [['Query BEGIN; SAVEPOINT a'], ['Query ROLLBACK TO s'], [PARSE, 'Sync'], ['Execute "" 1', 'Sync']]],
];

it.each(WAYS)('a portal that a failed Query has left cannot be executed, %s', async (_how, turns) => {
  const witness = await service.connect(await service.signUp());
  await witness.query('BEGIN');
  const client = await openSession(service, organization);
  const heard: string[] = [];
  for (const turn of turns as string[][]) {
    await client.write(Buffer.concat(turn.map(encodeFrontend)));
    for (let ends = turn.filter((line) => line === 'Sync' || line.startsWith('Query')).length; ends > 0; ) {
      const message = await client.read();
      if (typeof message !== 'object') throw new Error(`after ${heard.join(', ')}: ${message ?? 'silence'}`);
      if (message.type !== 'S') heard.push(describeBackend(message));
      if (message.type === 'Z') ends -= 1;
    }
  }
  expect(heard.slice(-2)).toEqual([PORTAL_GONE, 'ReadyForQuery E']);
  client.disconnect();
  // Nobody else was in the server that went down.
  expect((await witness.query('SELECT 1 AS one')).rows).toEqual([{ one: 1 }]);
  await witness.end();
});

it('a portal that Postgres has kept over a Sync is executed further', async () => {
  const client = await openSession(service, organization);
  const turns = [
    ['Query BEGIN'],
    ['Parse "" SELECT generate_series(1, 3) AS n', 'Bind "" "" []', 'Execute "" 2', 'Sync'],
    ['Execute "" 2', 'Sync'],
  ];
  const rows: string[] = [];
  for (const turn of turns as string[][]) {
    await client.write(Buffer.concat(turn.map(encodeFrontend)));
    for (let message = await client.read(); typeof message === 'object' && message.type !== 'Z'; message = await client.read())
      if ('DsC'.includes(message.type)) rows.push(describeBackend(message));
  }
  expect(rows).toEqual(['CommandComplete BEGIN', 'DataRow 1', 'DataRow 2', 'PortalSuspended', 'DataRow 3', 'CommandComplete SELECT 1']);
  client.disconnect();
});
