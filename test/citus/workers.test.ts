import { describe, expect, test } from 'vitest';
import type { Address } from '../../src/placement/citus.ts';
import type { TestOrganization } from '../support/doors.ts';
import { eventually } from '../support/eventually.ts';
import { doors, operator, relay, rows, useCitus, workerOf, workers } from './installation.ts';
import { asSuperuser } from './nodes.ts';

useCitus();

/** Two organizations, of which one has its table on the worker behind the relay. */
async function onBothWorkers() {
  const organizations = await Promise.all([doors.signUp(), doors.signUp()]);
  for (const organization of organizations) await rows(organization, 'CREATE TABLE t (id int)');
  const ports = await Promise.all(organizations.map((one) => workerOf(one, 't')));
  const there = organizations[ports.indexOf(relay.port)] as TestOrganization;
  return { there, other: organizations.find((one) => one !== there) as TestOrganization };
}

test('a worker that is down is felt by its organizations alone, until it is back', async () => {
  const { there, other } = await onBothWorkers();
  const counted = "SELECT count(*)::int FROM pg_roles WHERE rolname ~ '^org_'";
  const before = await asSuperuser(counted);

  await relay.close();
  expect(await rows(other, 'SELECT FROM t')).toEqual([]);
  await rows(other, 'INSERT INTO t VALUES (1)');
  // The first statement may still find a session of before, and learns that it is lost.
  await eventually('the worker cannot be reached', async () => (await doors.query(there, 'SELECT FROM t')).body.sqlstate === '57P03');
  const { status, body } = await doors.query(there, 'SELECT FROM t');
  expect({ status, ...body }).toMatchObject({ status: 503, retryable: true, sqlstate: '57P03' });
  expect(JSON.stringify(body)).not.toContain(String(relay.port));
  const signUp = await doors.call('POST', '/api/auth/signup', { body: { orgName: 'Late', email: 'late@acme.test' } });
  expect(signUp).toMatchObject({ status: 503, body: { retryable: true } });
  expect(await asSuperuser(counted)).toEqual(before);

  await relay.open();
  await eventually('the worker is back', async () => (await doors.query(there, 'SELECT FROM t')).status === 200);
  // The sessions that sign organizations up find out one by one that theirs to the worker are gone.
  await eventually('organizations are signed up again', async () => {
    const { status, body: refusal } = await doors.call('POST', '/api/auth/signup', { body: { orgName: 'Late', email: 'late@acme.test' } });
    if (status !== 201) expect({ status, ...refusal }).toMatchObject({ status: 503, retryable: true });
    return status === 201;
  });
});

test('a worker that is disabled while it is down is missed by its organizations alone, and brought up to date', async () => {
  const { there, other } = await onBothWorkers();
  await rows(there, 'INSERT INTO t VALUES (1)');
  await rows(other, "CREATE TYPE mood AS ENUM ('fine')");
  const gone = await doors.signUp();
  const session = await doors.connect(there);

  await relay.close();
  await expect(operator.citus.disable({ host: 'nowhere', port: 1 })).rejects.toThrow('the coordinator has no worker nowhere:1');
  expect(await operator.citus.disable(relay)).toBeGreaterThanOrEqual(1);
  const refusal = { status: 503, body: { code: 'not_ready', retryable: true, sqlstate: '57P03' } };
  await eventually('its organizations are refused', async () => (await doors.query(there, 'SELECT 1')).body.code === 'not_ready');
  expect(await doors.query(there, 'ALTER TABLE t ADD x int')).toMatchObject(refusal);
  await expect(session.query('SELECT 1')).rejects.toMatchObject({ code: '57P03' });
  await session.end();

  // A session of before may still have a connection to the worker, which it gives up with the first statement.
  await eventually('types are made', async () => (await doors.query(other, 'CREATE TYPE place AS (x int)')).status === 200);
  await rows(other, 'CREATE TABLE places (place place)');
  await rows(other, "ALTER TYPE mood ADD VALUE 'well'");
  await rows(other, 'ALTER TABLE t ADD mood mood');
  await rows(other, 'CREATE FUNCTION one() RETURNS int LANGUAGE sql AS $$ SELECT 1 $$');
  const late = await doors.signUp();
  await rows(late, 'CREATE TABLE t (id int)');
  await operator.operator.drop(gone.id, operator.origin);
  await expect(operator.operator.drop(there.id, operator.origin)).rejects.toMatchObject({ kind: 'not_ready' });

  await relay.open();
  expect((await operator.citus.setUp(workers)).split('\n')).toHaveLength(3);
  const known = `SELECT rolname FROM pg_roles WHERE rolname IN ('${gone.id}', '${late.id}') UNION ALL
    SELECT nspname FROM pg_namespace WHERE nspname IN ('${gone.id}', '${late.id}')`;
  expect(await asSuperuser(known, { node: relay })).toEqual([{ rolname: late.id }, { rolname: late.id }]);
  await rows(other, "INSERT INTO t VALUES (2, 'well')");
  await rows(late, 'CREATE TYPE mood AS ENUM ()');
  await eventually('the drop is completed', async () => {
    await operator.operator.drop(there.id, operator.origin);
    return (await asSuperuser(`SELECT FROM pg_roles WHERE rolname = '${there.id}'`, { node: relay })).length === 0;
  });
  // The next organization has its tables there.
  const both = await onBothWorkers();
  expect(await rows(both.there, 'SELECT FROM t')).toEqual([]);
});

describe('a move to another worker', () => {
  // It is part of the rows that are copied, and tells who copies them.
  const CHECKED = `CREATE FUNCTION mine() RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN
    IF (SELECT rolsuper OR rolcreaterole FROM pg_catalog.pg_roles WHERE rolname = current_user) THEN RAISE 'a role with rights'; END IF;
    RETURN true; END $$`;

  test.each([
    ['with a key, while clients go on writing', 'id int PRIMARY KEY', 'its clients went on writing'],
    ['without a key, while clients wait', 'id int', 'its clients waited with their writes'],
  ])('of tables %s, has every acknowledged row', async (_, column, said) => {
    const organization = await doors.signUp();
    const client = await doors.connect(organization);
    await client.query(CHECKED);
    await client.query(`CREATE TABLE t (${column}, by text CHECK (mine()), twice int GENERATED ALWAYS AS (2) STORED)`);
    await client.query("INSERT INTO t SELECT n, 'first' FROM generate_series(1, 5000) AS n");
    const [from, to] = (await workerOf(organization, 't')) === relay.port ? [relay, workers[0]] : [workers[0], relay];
    const done = new AbortController();
    const writes = { wire: 0, http: 0 };
    const overWire = async () => {
      for (; !done.signal.aborted; writes.wire++) await client.query("INSERT INTO t VALUES ($1, 'wire')", [100_000 + writes.wire]);
    };
    const overHttp = async () => {
      for (; !done.signal.aborted; writes.http++) await rows(organization, "INSERT INTO t VALUES ($1, 'http')", [200_000 + writes.http]);
    };
    const writers = Promise.all([overWire(), overHttp()]);
    await eventually('both write', async () => writes.wire > 0 && writes.http > 0);
    expect(await operator.citus.move(await operator.operator.organization(organization.id), to as Address, operator.origin)).toContain(
      said,
    );
    const before = { ...writes };
    await eventually('both write on', async () => writes.wire > before.wire && writes.http > before.http);
    done.abort();
    await writers;
    expect(await workerOf(organization, 't')).toBe(to?.port);
    expect(await rows(organization, 'SELECT by, count(*)::int, count(DISTINCT id)::int AS ids FROM t GROUP BY by ORDER BY by')).toEqual([
      { by: 'first', count: 5_000, ids: 5_000 },
      { by: 'http', count: writes.http, ids: writes.http },
      { by: 'wire', count: writes.wire, ids: writes.wire },
    ]);
    await client.end();
    const left = `SELECT FROM pg_dist_authinfo WHERE rolename = '${organization.id}'
      UNION ALL SELECT FROM pg_class WHERE relname ~ '^t_[0-9]+$' AND relnamespace = '${organization.id}'::regnamespace
      UNION ALL SELECT FROM pg_proc WHERE proacl::text ~ '${organization.id}'`;
    expect(await asSuperuser(left, { node: from as Address })).toEqual([]);
  });

  test('is refused to where it is already, to no worker, and without tables', async () => {
    const organization = await doors.signUp();
    const move = async (to: Address) => operator.citus.move(await operator.operator.organization(organization.id), to, operator.origin);
    await expect(move(relay)).rejects.toThrow('no tables');
    await rows(organization, 'CREATE TABLE t (id int)');
    const there = workers.find(({ port }) => port !== relay.port) as Address;
    const at = (await workerOf(organization, 't')) === relay.port ? relay : there;
    await expect(move(at)).rejects.toThrow('there already');
    await expect(move({ host: 'nowhere', port: 1 })).rejects.toThrow('no such worker');
  });
});
