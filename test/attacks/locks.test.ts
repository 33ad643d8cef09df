import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { eventually } from '../support/eventually.ts';
import { makeOwnCluster, type OwnCluster } from '../support/own-cluster.ts';
import { PLACEMENTS, startTestService, type TestOrganization, type TestService } from '../support/service.ts';

/** More than the server has room for; what was got before that is held on to. */
const TAKE_ALL = 'SELECT count(pg_advisory_lock(n)) FROM generate_series(1, 100000) AS n';
const TAKE_ALL_AND_SLEEP = `DO $$ BEGIN PERFORM pg_advisory_lock(n) FROM generate_series(1, 100000) AS n;
  EXCEPTION WHEN out_of_memory THEN PERFORM pg_sleep(60); END $$`;
const TAKE_ALL_AND_OBEY_NOBODY = `DO $$ BEGIN PERFORM pg_advisory_lock(n) FROM generate_series(1, 100000) AS n;
  EXCEPTION WHEN out_of_memory THEN
    LOOP BEGIN PERFORM pg_sleep(60); EXCEPTION WHEN query_canceled THEN NULL; END; END LOOP; END $$`;
/** Strong locks on so many tables that nobody's locks on tables are kept with the process alone any more (1,024 partitions). */
const LOCK_TABLES = `DO $$ BEGIN FOR n IN 1..5000 LOOP EXECUTE format('CREATE TABLE t%s ()', n); END LOOP; END $$`;
const TAKE_THE_REST = `DO $$ BEGIN PERFORM pg_advisory_lock(n) FROM generate_series(1, 100000) AS n;
  EXCEPTION WHEN out_of_memory THEN NULL; END $$`;

describe.each(PLACEMENTS)('who takes all locks that the server has, with a %s for each organization,', (kind) => {
  let cluster: OwnCluster;
  let service: TestService;
  /** Who is in already, and sees all. */
  let operator: pg.Client;
  let greedy: TestOrganization;
  beforeAll(async () => {
    cluster = await makeOwnCluster();
    operator = new pg.Client(cluster.superuser);
    await operator.connect();
    service = await startTestService({ DATABASE_URL: cluster.url, POSTERN_PLACEMENT: kind });
    greedy = await service.signUp('Greedy');
  });
  afterAll(async () => {
    await service.close();
    await operator.end();
    await cluster.remove();
  });

  const warnings = () =>
    service.observations.filter((seen) => seen.name === 'service.warning' && seen.message.includes('were ended')).length;

  async function isAsleep(): Promise<boolean> {
    // The view of that name would need a lock.
    const { rows } = await operator.query("SELECT FROM pg_stat_get_activity(NULL) WHERE wait_event = 'PgSleep'");
    return rows.length > 0;
  }

  /** @returns how the session fares */
  async function takeAll(sql: string): Promise<{ ended: boolean }> {
    const session = { ended: false };
    const client = await service.connect(greedy);
    client.on('end', () => {
      session.ended = true;
    });
    const failed = client.query(sql).catch(() => {});
    if (sql === TAKE_ALL) await failed;
    else await eventually('it has them, and is busy', isAsleep);
    return session;
  }

  it.each([
    ['after its statement has failed', TAKE_ALL],
    ['while it is busy', TAKE_ALL_AND_SLEEP],
    ['while it is busy and obeys no cancel request', TAKE_ALL_AND_OBEY_NOBODY],
  ])('loses them when another wants a session, %s', async (_when, sql) => {
    const other = await service.signUp();
    // The process of the case before may outlive its session.
    await eventually('nobody has them', async () => !(await isAsleep()));
    const before = warnings();
    const session = await takeAll(sql);
    const late = await service.query(other, 'CREATE TABLE notes (body text)');
    expect(late).toMatchObject({ status: 200, body: { command: 'CREATE TABLE' } });
    await eventually('its session has ended', () => session.ended);
    expect(warnings()).toBe(before + 1);
    expect((await service.query(greedy, 'SELECT 1 AS one')).body.rows).toEqual([{ one: 1 }]);
  });

  it('loses them when another wants a session, though its client has vanished and it obeys no cancel request', async () => {
    const other = await service.signUp();
    const client = await service.connect(greedy);
    client.on('error', () => {});
    client.query(TAKE_ALL_AND_OBEY_NOBODY).catch(() => {});
    await eventually('it has them, and is busy', isAsleep);
    Reflect.get(client, 'connection').stream.destroy();
    expect(await service.query(other, 'CREATE TABLE later (body text)')).toMatchObject({ status: 200 });
    await eventually('its process has ended', async () => !(await isAsleep()));
  });

  it('loses them as often as it takes them, at once after it has lost them too', async () => {
    for (let round = 0; round < 3; round += 1) {
      await takeAll(TAKE_ALL_AND_OBEY_NOBODY);
      await service.signUp();
    }
  });

  it('loses them when who is in already cannot write', async () => {
    const other = await service.signUp();
    const client = await service.connect(other);
    await client.query('CREATE TABLE notes (body text)');
    await takeAll(TAKE_ALL);
    await eventually('a row can be written', () =>
      client.query("INSERT INTO notes VALUES ('late')").then(
        () => true,
        () => false,
      ),
    );
    await client.end();
  });

  it('loses them, though they are such that everybody else needs room where none was needed before', async () => {
    const other = await service.signUp();
    const client = await service.connect(greedy);
    client.on('error', () => {});
    await client.query('BEGIN');
    await client.query(LOCK_TABLES);
    await client.query(TAKE_THE_REST);
    expect(await service.query(other, 'SELECT 1 AS one')).toMatchObject({ status: 200 });
    await eventually('its session has ended', async () => (await client.query('SELECT 1').catch(() => 'ended')) === 'ended');
  });

  it('keeps nobody from signing up', async () => {
    await takeAll(TAKE_ALL);
    const newcomer = await service.signUp();
    expect((await service.query(newcomer, 'SELECT 1 AS one')).body.rows).toEqual([{ one: 1 }]);
  });

  it('is not looked for among the organizations when it is none of them: the service says that there is no room', async () => {
    const other = await service.signUp();
    await expect(operator.query(TAKE_ALL)).rejects.toMatchObject({ code: '53200' });
    const body = { orgName: 'Acme', email: 'no-room@acme.test' };
    const refusals = [
      await service.call('POST', '/api/auth/signup', { body }),
      await service.call('POST', '/api/auth/rotate-key', { key: other.apiKey }),
      await service.query(other, 'SELECT 1'),
    ];
    await operator.query('SELECT pg_advisory_unlock_all()');
    expect(refusals.map(({ status, body: { code, retryable } }) => ({ status, code, retryable }))).toEqual(
      refusals.map(() => ({ status: 503, code: 'not_ready', retryable: true })),
    );
    expect((await service.query(other, 'SELECT 1 AS one')).body.rows).toEqual([{ one: 1 }]);
    expect((await service.call('POST', '/api/auth/signup', { body })).status).toBe(201);
  });

  it('keeps nobody from changing a key', async () => {
    const other = await service.signUp();
    await takeAll(TAKE_ALL);
    expect((await service.call('POST', '/api/auth/rotate-key', { key: other.apiKey })).status).toBe(200);
  });
});
