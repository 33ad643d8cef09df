import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import type { TestOrganization } from '../support/doors.ts';
import { eventually } from '../support/eventually.ts';
import { LANDMARK, landmark, landmarkPassed } from '../support/landmark.ts';
import { makePostgresProxy, type PostgresProxy } from '../support/postgres-proxy.ts';
import { type Installation, makeInstallation, type PosternProcess } from '../support/process.ts';
import { testVariables } from '../support/service.ts';

let installation: Installation;
let proxy: PostgresProxy;
let variables: Record<string, string>;
let next: PosternProcess;
beforeAll(async () => {
  installation = await makeInstallation();
  proxy = await makePostgresProxy(inject('clusterUrl'));
  variables = testVariables();
  next = await installation.start(variables);
});
afterAll(async () => {
  await installation.remove();
  await proxy.close();
});

const send = (postern: PosternProcess, organization: TestOrganization, path: string, body: object) =>
  postern.call('POST', path, { key: organization.apiKey, body, headers: { 'idempotency-key': 'once' } });
const rows = async (organization: TestOrganization) => (await next.query(organization, 'SELECT body FROM notes')).body.rows;

const INSERT = "INSERT INTO notes VALUES ('here')";

describe('kill -9 between the commit and the reply', () => {
  it.each([
    ['/api/query', { sql: `${INSERT} RETURNING body` }, 200, { rowCount: 1, rows: [{ body: 'here' }] }],
    ['/api/transaction', { statements: [{ sql: INSERT }] }, 200, { status: 'committed', results: [{ rowCount: 1 }] }],
    ['/api/migrations', { name: 'one', sql: INSERT }, 201, { alreadyApplied: false, migration: { name: 'one', status: 'applied' } }],
  ])('of %s: the retry gets the reply, and the row is there once', async (path, body, status, expected) => {
    const killed = await installation.start({ ...variables, DATABASE_URL: proxy.url });
    const organization = await killed.signUp();
    await killed.query(organization, 'CREATE TABLE notes (body text)');
    // Makes the tables of Postern's own, so that the next COMMIT is the one of the request.
    await killed.call('POST', '/api/query', {
      key: organization.apiKey,
      body: { sql: 'SELECT 1' },
      headers: { 'idempotency-key': 'before' },
    });
    const committed = proxy.holdBackCommit(organization.id);
    const unanswered = send(killed, organization, path, body).catch((error: Error) => error.message);
    await committed;
    await killed.end('SIGKILL');
    expect(await unanswered).toBe('fetch failed');

    expect(await rows(organization)).toEqual([{ body: 'here' }]);
    const retry = await send(next, organization, path, body);
    expect([retry.status, retry.headers.get('idempotency-replayed')]).toEqual([status, 'true']);
    expect(retry.body).toMatchObject(expected);
    expect(await rows(organization)).toEqual([{ body: 'here' }]);
  });
});

describe('kill -9 before the commit', () => {
  it('leaves nothing, and the retry does it', async () => {
    const killed = await installation.start(variables);
    const organization = await killed.signUp();
    await killed.query(organization, 'CREATE TABLE notes (body text)');
    // The last statement waits until the process has been killed.
    const statements = [{ sql: INSERT }, { sql: LANDMARK }, { sql: landmark(1) }];
    const [watcher, holder] = [await next.connect(organization), await next.connect(organization)];
    await holder.query(`BEGIN; ${landmark(1)}`);
    const unanswered = send(killed, organization, '/api/transaction', { statements }).catch((error: Error) => error.message);
    await landmarkPassed(watcher);
    await killed.end('SIGKILL');
    expect(await unanswered).toBe('fetch failed');
    await holder.query('COMMIT');
    // As long as Postgres has not noticed, the request counts as running.
    await eventually('the retry is let in', async () => {
      const { status, body } = await send(next, organization, '/api/transaction', { statements });
      if (status === 409) expect(body).toMatchObject({ code: 'idempotency_in_progress', retryable: true });
      return status === 200;
    });
    await Promise.all([watcher.end(), holder.end()]);
    expect(await rows(organization)).toEqual([{ body: 'here' }]);
  });
});

it('two processes carry a request out once', async () => {
  const other = await installation.start(variables);
  const organization = await other.signUp();
  await other.query(organization, 'CREATE TABLE notes (body text)');
  const replies = await Promise.all(
    [other, next, other, next].map((postern) => send(postern, organization, '/api/query', { sql: INSERT })),
  );
  const done = replies.filter(({ status, headers }) => status === 200 && headers.get('idempotency-replayed') === null);
  expect(done).toHaveLength(1);
  for (const { status, body } of replies)
    expect(status === 200 ? body : body.code).toEqual(status === 200 ? done[0]?.body : 'idempotency_in_progress');
  expect(await rows(organization)).toEqual([{ body: 'here' }]);
});
