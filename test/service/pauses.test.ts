import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import type { Pause } from '../../src/catalog/pauses.ts';
import { requestCancel } from '../support/cancel-request.ts';
import type { TestOrganization } from '../support/doors.ts';
import { eventually } from '../support/eventually.ts';
import { startTestService, type TestService, testVariables } from '../support/service.ts';

/** One Postern of two processes, and a session of the server's superuser. */
let [one, other]: TestService[] = [];
let server: pg.Client;
beforeAll(async () => {
  const variables = testVariables();
  [one, other] = [await startTestService(variables), await startTestService(variables)];
  server = new pg.Client(inject('cluster'));
  await server.connect();
});
afterAll(async () => {
  await server.end();
  await one?.close();
  await other?.close();
});

function services(): readonly [TestService, TestService] {
  if (one === undefined || other === undefined) throw new Error('there are no services');
  return [one, other];
}

const pauseOf = ({ id }: TestOrganization): Pause => ({ organizationId: id, token: randomBytes(6).toString('hex') });
const pauses = () => services()[0].service.router.catalog.pauses;
const LONG_MS = 60_000;

async function sessionsOf({ id }: TestOrganization): Promise<number> {
  const { rows } = await server.query<{ count: number }>('SELECT count(*)::int FROM pg_stat_activity WHERE usename IN ($1, $2)', [
    id,
    `${id}_read`,
  ]);
  return rows[0]?.count ?? -1;
}

/** Resolves when the process has so many requests for a backend under way that have not been answered. */
const pending = async (promises: readonly Promise<unknown>[]) => {
  const none = Symbol('pending');
  return (await Promise.all(promises.map((promise) => Promise.race([promise, Promise.resolve(none)])))).every((result) => result === none);
};

describe('while an organization is paused', () => {
  it('clients of every process wait at both doors, and go on when the pause ends', async () => {
    const [here, there] = services();
    const organization = await here.signUp();
    await here.query(organization, 'CREATE TABLE notes (body text)');
    const clients = [await here.connect(organization), await there.connect(organization)];
    // Each process has an idle backend. When both are gone, both processes know of the pause.
    for (const client of clients) await client.query({ name: 'kept', text: 'SELECT 1 AS one' });
    const pause = pauseOf(organization);
    await pauses().begin(pause, LONG_MS);
    await eventually('no backend is left', async () => (await sessionsOf(organization)) === 0);

    const waiting = [
      ...clients.map((client) => client.query({ name: 'kept', text: 'SELECT 1 AS one' })),
      ...[here, there].map((service) =>
        service.query(organization, "INSERT INTO notes VALUES ('late') RETURNING 1 AS one").then(({ body }) => body),
      ),
      here.connect(organization).then(async (client) => {
        const result = await client.query('SELECT 1 AS one');
        await client.end();
        return result;
      }),
    ];
    // Another organization is not affected, and what it is told is told later than all of the above has arrived.
    const neighbor = await here.signUp();
    for (const service of [here, there]) expect((await service.query(neighbor, 'SELECT 1 AS one')).body.rows).toEqual([{ one: 1 }]);
    expect(await pending(waiting)).toBe(true);
    expect(await sessionsOf(organization)).toBe(0);

    await pauses().end(pause);
    for (const result of await Promise.all(waiting)) expect(result.rows).toEqual([{ one: 1 }]);
    expect((await here.query(organization, 'SELECT count(*)::int FROM notes')).body.rows).toEqual([{ count: 2 }]);
    await Promise.all(clients.map((client) => client.end()));
  });

  it('a transaction that has begun goes on to its end, and its session waits afterwards', async () => {
    const [here, there] = services();
    const organization = await here.signUp();
    await here.query(organization, 'CREATE TABLE notes (body text)');
    const [client, neighbor] = [await there.connect(organization), await there.connect(organization)];
    await client.query('BEGIN');
    // Each process has an idle backend too. When both are gone, both processes know of the pause.
    await neighbor.query('SELECT 1');
    expect(await sessionsOf(organization)).toBe(3);
    const pause = pauseOf(organization);
    await pauses().begin(pause, LONG_MS);
    await eventually("the transaction's backend alone is left", async () => (await sessionsOf(organization)) === 1);
    await client.query("INSERT INTO notes VALUES ('in time')");
    expect(await sessionsOf(organization)).toBe(1);
    await client.query('COMMIT');
    await eventually('no backend is left', async () => (await sessionsOf(organization)) === 0);
    const next = client.query('SELECT body FROM notes');
    await pauses().end(pause);
    expect((await next).rows).toEqual([{ body: 'in time' }]);
    await Promise.all([client.end(), neighbor.end()]);
  });

  it('a client that gives up waiting is told so, and one that leaves is not waited for', async () => {
    const [here] = services();
    const organization = await here.signUp();
    const [canceling, leaving] = [await here.connect(organization), await here.connect(organization)];
    const pause = pauseOf(organization);
    await pauses().begin(pause, LONG_MS);
    const canceled = expect(canceling.query('SELECT 1')).rejects.toMatchObject({ code: '57014' });
    const left = leaving.query('SELECT 1');
    left.catch(() => {});
    const aborting = new AbortController();
    const request = fetch(`${here.httpUrl}/api/query`, {
      method: 'POST',
      headers: { authorization: `Bearer ${organization.apiKey}`, 'content-type': 'application/json' },
      body: '{"sql":"SELECT 1"}',
      signal: aborting.signal,
    });
    const { processID, secretKey } = canceling as pg.Client & { readonly processID: number; readonly secretKey: number };
    const secret = Buffer.alloc(4);
    secret.writeInt32BE(secretKey);
    await requestCancel(here, processID, secret);
    await canceled;
    const aborted = expect(request).rejects.toMatchObject({ name: 'AbortError' });
    aborting.abort();
    await aborted;
    await leaving.end();
    await pauses().end(pause);
    expect((await canceling.query('SELECT 1 AS one')).rows).toEqual([{ one: 1 }]);
    await canceling.end();
  });

  it('a key that is revoked meanwhile opens nothing afterwards', async () => {
    const [here, there] = services();
    const organization = await here.signUp();
    const client = await there.connect(organization);
    const pause = pauseOf(organization);
    await pauses().begin(pause, LONG_MS);
    await eventually('no backend is left', async () => (await sessionsOf(organization)) === 0);
    const refused = there.query(organization, 'SELECT 1');
    const lastWords = once(client, 'error');
    const { body } = await here.call('POST', '/api/auth/rotate-key', { key: organization.apiKey });
    expect((await lastWords)[0]).toMatchObject({ code: '57P01' });
    await pauses().end(pause);
    expect((await refused).status).not.toBe(200);
    expect((await there.query({ ...organization, apiKey: body.apiKey }, 'SELECT 1 AS one')).body.rows).toEqual([{ one: 1 }]);
  });
});

describe('a pause', () => {
  it('ends by itself in every process', async () => {
    const [here, there] = services();
    const organization = await here.signUp();
    await pauses().begin(pauseOf(organization), 300);
    for (const service of [here, there]) expect((await service.query(organization, 'SELECT 1 AS one')).body.rows).toEqual([{ one: 1 }]);
  });

  it('is known to a process that looks the organization up for the first time', async () => {
    const [here, there] = services();
    const organization = await here.signUp();
    const pause = pauseOf(organization);
    await pauses().begin(pause, LONG_MS);
    const waiting = there.query(organization, 'SELECT 1 AS one');
    const neighbor = await here.signUp();
    await there.query(neighbor, 'SELECT 1');
    expect(await pending([waiting])).toBe(true);
    await pauses().end(pause);
    expect((await waiting).body.rows).toEqual([{ one: 1 }]);
  });

  it('is refused while there is another, and only its owner ends it', async () => {
    const [here] = services();
    const organization = await here.signUp();
    const [first, second] = [pauseOf(organization), pauseOf(organization)];
    await pauses().begin(first, LONG_MS);
    await expect(pauses().begin(second, LONG_MS)).rejects.toMatchObject({ kind: 'organization_busy' });
    await pauses().end(second);
    const waiting = here.query(organization, 'SELECT 1 AS one');
    await here.query(await here.signUp(), 'SELECT 1');
    expect(await pending([waiting])).toBe(true);
    await pauses().end(first);
    expect((await waiting).status).toBe(200);
  });
});
