import pg from 'pg';
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import { restrictedRole } from '../../src/placement/restricted-roles.ts';
import { codeOf } from '../../src/protocol/backend.ts';
import { A_TRIGGER, AFTERWARDS, ALLOWED, ATTEMPTS, BEFORE, LARGE_OBJECT, READERS_ATTEMPTS } from '../support/disk-quota.ts';
import type { TestOrganization } from '../support/doors.ts';
import { eventually } from '../support/eventually.ts';
import { hasPostgres15, startPostgres15 } from '../support/postgres15.ts';
import { startPostgres18 } from '../support/postgres18.ts';
import { serverUrl } from '../support/server-url.ts';
import { PLACEMENTS, startTestService, type TestService, testVariables } from '../support/service.ts';

const MEBIBYTE = 1_024 ** 2;
const ORIGIN = { surface: 'admin', sourceIp: '127.0.0.1' } as const;

const limit = ({ service }: TestService, { id }: TestOrganization, diskBytes: number | null) =>
  service.operator.setLimits(id, { diskBytes }, ORIGIN);
const stateOf = async ({ service }: TestService, { id }: TestOrganization) => (await service.operator.organization(id)).diskState;

/** Until its tables are protected, too. */
async function untilRefused(service: TestService, organization: TestOrganization): Promise<void> {
  const refused = async () =>
    (await service.query(organization, "INSERT INTO notes VALUES (-1, '')")).body.code === 'disk_quota_exceeded' &&
    !(await isPaused(service, organization));
  await eventually('writing is refused', refused);
}

const isPaused = async ({ service }: TestService, { id }: TestOrganization) =>
  (await service.router.catalog.organizations.paused()).has(id);

async function readKeyOf(service: TestService, { apiKey: key, ...rest }: TestOrganization): Promise<TestOrganization> {
  const { body } = await service.call('POST', '/api/keys', { key, body: { name: 'reader', scope: 'read' } });
  return { ...rest, apiKey: body.apiKey };
}

/** @returns the SQLSTATE; an empty text if there is no error */
async function codeByWire(client: pg.Client, sql: string): Promise<string> {
  return client.query(sql).then(
    () => '',
    (error: unknown) => codeOf(error) || String(error),
  );
}

/** @returns as {@link codeByWire} */
function codeOfCopy(client: pg.Client, sql: string, rows: string): Promise<string> {
  return new Promise((resolve) => {
    client.query({
      submit: (connection: pg.Connection) => connection.query(sql),
      handleCopyInResponse(connection: { sendCopyFromChunk(chunk: Buffer): void; endCopyFrom(): void }) {
        connection.sendCopyFromChunk(Buffer.from(rows));
        connection.endCopyFrom();
      },
      handleCommandComplete: () => resolve(''),
      handleError: (error: unknown) => resolve(codeOf(error)),
      handleReadyForQuery() {},
    });
  });
}

/** An organization over its quota that has some of everything, and a reader of it. */
async function furnish(
  service: TestService,
): Promise<{ owner: TestOrganization; reader: TestOrganization; fill: (sql: string) => string }> {
  const owner = await service.signUp();
  const reader = await readKeyOf(service, owner);
  const client = await service.connect(owner);
  const values: Record<string, string> = { READER: restrictedRole(owner.id, 'read'), SCHEMA: 'public' };
  const fill = (sql: string) => Object.entries(values).reduce((text, [name, value]) => text.replaceAll(`%${name}%`, value), sql);
  await client.query(fill(BEFORE));
  values.LO = String((await client.query(LARGE_OBJECT)).rows[0]?.id);
  await client.end();
  await limit(service, owner, 1);
  await untilRefused(service, owner);
  values.TRIGGER = (await service.query(owner, A_TRIGGER)).body.rows[0].name;
  return { owner, reader, fill };
}

/** That no attempt to write succeeds at either door, by the owner or a reader, and what makes room does. */
async function attack(service: TestService): Promise<void> {
  const { owner, reader, fill } = await furnish(service);
  const answers: Record<string, string> = {};
  const expected: Record<string, string> = {};
  for (const [who, attempts] of [
    [owner, ATTEMPTS],
    [reader, READERS_ATTEMPTS],
  ] as const) {
    const client = await service.connect(who);
    for (const { sql, code = '53100', isForSessions = false } of attempts) {
      expected[`wire ${sql}`] = code;
      answers[`wire ${sql}`] = await codeByWire(client, fill(sql));
      if (isForSessions) continue;
      expected[`http ${sql}`] = code;
      answers[`http ${sql}`] = (await service.query(who, fill(sql))).body.sqlstate;
    }
    await client.end();
  }
  expect(answers).toEqual(expected);
  const copying = await service.connect(owner);
  expect(await codeOfCopy(copying, 'COPY notes FROM STDIN', '1000\tnew\n')).toBe('53100');
  await copying.end();
  for (const sql of ALLOWED) expect(await service.query(owner, fill(sql))).toMatchObject({ status: 200 });
  await limit(service, owner, null);
  await eventually('writing is possible', async () => (await stateOf(service, owner)) === 'within');
  for (const sql of AFTERWARDS) expect(await service.query(owner, fill(sql))).toMatchObject({ status: 200 });
}

describe.each(PLACEMENTS)('in the %s placement', (placement) => {
  let service: TestService;
  const settings = { ...testVariables(), POSTERN_PLACEMENT: placement };
  beforeAll(async () => {
    service = await startTestService(settings);
  });
  afterAll(() => service.close());

  test('no attempt to write succeeds at either door, by the owner or a reader, and what makes room does', () => attack(service));

  test('the next process completes what one has left undone', async () => {
    const { owner, fill } = await furnish(service);
    const other = await startTestService(settings);
    await service.close();
    service = other;
    const superuser = new pg.Client({ ...inject('cluster'), database: placement === 'database' ? owner.id : 'postern_shared' });
    await superuser.connect();
    const [trigger] = (
      await superuser.query(`SELECT format('%I ON %s', tgname, tgrelid::regclass) AS name FROM pg_trigger
      WHERE tgname ~ '^postern_quota_.*_insert$' AND tgrelid::regclass::text ~ 'spare' LIMIT 1`)
    ).rows;
    await superuser.query(`DROP TRIGGER ${trigger.name}`);
    await superuser.end();
    await eventually('the table is protected again', async () => {
      const { body } = await service.query(owner, 'INSERT INTO spare VALUES (1)');
      return body.code === 'disk_quota_exceeded';
    });
    expect((await service.query(owner, fill('SELECT adds()'))).body.code).toBe('disk_quota_exceeded');
    await limit(service, owner, null);
    await eventually('writing is possible', async () => (await stateOf(service, owner)) === 'within');
  });

  test('the process that protects it looks again when the data grows all the same', async () => {
    const { owner } = await furnish(service);
    const superuser = new pg.Client({ ...inject('cluster'), database: placement === 'database' ? owner.id : 'postern_shared' });
    await superuser.connect();
    const schema = placement === 'database' ? 'public' : owner.id;
    const { rows } = await superuser.query(
      `SELECT tgname AS name FROM pg_trigger WHERE tgname ~ '^postern_quota_.*_insert$' AND tgrelid = $1::regclass`,
      [`${schema}.spare`],
    );
    await superuser.query(`DROP TRIGGER ${rows[0]?.name} ON ${schema}.spare`);
    await superuser.end();
    await eventually('the table is protected again', async () => {
      const { body } = await service.query(owner, 'INSERT INTO spare SELECT generate_series(1, 10000)');
      return body.code === 'disk_quota_exceeded';
    });
    await limit(service, owner, null);
    await eventually('writing is possible', async () => (await stateOf(service, owner)) === 'within');
  });

  test('a writer at full speed is stopped before it has written a gigabyte more', async () => {
    const owner = await service.signUp();
    const quota = 64 * MEBIBYTE;
    await limit(service, owner, quota);
    const client = await service.connect(owner);
    await client.query('CREATE TABLE filling (body text)');
    const write = `INSERT INTO filling SELECT repeat('x', 1000) FROM generate_series(1, 20000)`;
    // Before that, its limit may not have been read yet.
    await client.query(`INSERT INTO filling SELECT repeat('x', 1000) FROM generate_series(1, 47000)`);
    await eventually('it is measured', async () => (await stateOf(service, owner)) === 'near');
    let last = '';
    while (last === '') last = await codeByWire(client, write);
    expect(['53100', '57P01', 'Error: Connection terminated unexpectedly']).toContain(last);
    await eventually('it is over', async () => (await stateOf(service, owner)) === 'over');
    const { body } = await service.call('GET', '/api/auth/me', { key: owner.apiKey });
    expect(body.disk.isOverQuota).toBe(true);
    expect(body.disk.usedBytes).toBeGreaterThan(quota);
    expect(body.disk.usedBytes).toBeLessThan(quota + 1_000_000_000);
    await client.end();
    await service.service.operator.drop(owner.id, ORIGIN);
  });
});

describe.runIf(hasPostgres15)('on PostgreSQL 15', () => {
  let server: Awaited<ReturnType<typeof startPostgres15>>;
  beforeAll(async () => {
    server = await startPostgres15();
  });
  afterAll(() => server.stop());

  test.each(PLACEMENTS)('in the %s placement, no attempt to write succeeds, and what makes room does', async (placement) => {
    const service = await startTestService({ ...testVariables(), POSTERN_PLACEMENT: placement, DATABASE_URL: serverUrl(server) });
    await attack(service);
    await service.close();
  });
});

describe('where no superuser is known', () => {
  let server: Awaited<ReturnType<typeof startPostgres18>>;
  let service: TestService;
  beforeAll(async () => {
    server = await startPostgres18();
    const admin = new pg.Client(server);
    await admin.connect();
    await admin.query("CREATE ROLE manager LOGIN CREATEDB CREATEROLE PASSWORD 'manager'");
    await admin.end();
    service = await startTestService({ DATABASE_URL: serverUrl({ ...server, user: 'manager', password: 'manager' }) });
  });
  afterAll(async () => {
    await service.close();
    await server.stop();
  });

  test('an organization over its quota reads as its readers do, and writing over HTTP is 507', async () => {
    const owner = await service.signUp();
    const client = await service.connect(owner);
    const ended = new Promise<void>((resolve) => client.on('end', () => resolve()));
    await client.query("CREATE TABLE notes (id int, body text); INSERT INTO notes VALUES (1, 'kept')");
    await limit(service, owner, 1);
    await ended;
    await untilRefused(service, owner);
    const { status, body } = await service.query(owner, 'DELETE FROM notes');
    expect([status, body.code, body.sqlstate, body.retryable]).toEqual([507, 'disk_quota_exceeded', '42501', false]);
    expect((await service.query(owner, 'SELECT body FROM notes')).body.rows).toEqual([{ body: 'kept' }]);
    const again = await service.connect(owner);
    expect(await codeByWire(again, "INSERT INTO notes VALUES (2, '')")).toBe('42501');
    expect((await again.query('SELECT session_user')).rows).toEqual([{ session_user: restrictedRole(owner.id, 'read') }]);
    expect((await service.call('POST', '/api/keys', { key: owner.apiKey, body: { name: 'reader', scope: 'read' } })).status).toBe(201);
    const over = new Promise<void>((resolve) => again.on('end', () => resolve()));
    await limit(service, owner, null);
    await over;
    await eventually('writing is possible', async () => (await service.query(owner, "INSERT INTO notes VALUES (3, '')")).status === 200);
    expect(await stateOf(service, owner)).toBe('within');
  });

  test('an organization is measured also where the counters of its tables are closed', async () => {
    const closing = new pg.Client({ ...server, database: 'postern_shared' });
    await closing.connect();
    const closed = 'pg_stat_get_tuples_inserted(oid)';
    await closing.query(`REVOKE EXECUTE ON FUNCTION ${closed} FROM PUBLIC`);
    const other = await startTestService({
      DATABASE_URL: serverUrl({ ...server, user: 'manager', password: 'manager' }),
      POSTERN_PLACEMENT: 'schema',
    });
    const owner = await other.signUp();
    await limit(other, owner, 1);
    expect((await other.query(owner, 'CREATE TABLE notes AS SELECT 1 AS id')).status).toBe(200);
    await eventually('it is over', async () => (await stateOf(other, owner)) === 'read_only');
    await other.close();
    await closing.query(`GRANT EXECUTE ON FUNCTION ${closed} TO PUBLIC`);
    await closing.end();
  });
});
