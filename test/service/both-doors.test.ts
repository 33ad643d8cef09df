import { once } from 'node:events';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { PLACEMENT, startTestService, type TestOrganization, type TestService } from '../support/service.ts';

let service: TestService;
let organization: TestOrganization;
beforeAll(async () => {
  service = await startTestService();
  organization = await service.signUp();
  await service.query(organization, 'CREATE TABLE orders (id bigint PRIMARY KEY, total numeric, placed timestamptz, lines jsonb)');
});
afterAll(() => service.close());

const INSERT = 'INSERT INTO orders VALUES ($1, $2, $3, $4)';

describe('one database behind two doors', () => {
  it('what pg writes, HTTP and postgres read', async () => {
    const client = await service.connect(organization);
    const { rowCount } = await client.query(INSERT, ['9007199254740993', '12.50', '2025-01-31T09:30:00.123456Z', { sku: 'a' }]);
    await client.end();
    expect(rowCount).toBe(1);

    const over = await service.query(organization, 'SELECT * FROM orders WHERE id = $1', ['9007199254740993']);
    expect(over.body.rows).toEqual([
      { id: '9007199254740993', total: '12.50', placed: '2025-01-31T09:30:00.123456Z', lines: { sku: 'a' } },
    ]);
    const sql = service.sql(organization);
    expect(await sql`SELECT id, total, lines FROM orders WHERE id = ${'9007199254740993'}`).toEqual([
      { id: '9007199254740993', total: '12.50', lines: { sku: 'a' } },
    ]);
    await sql.end();
  });

  it('what HTTP writes, pg and postgres read', async () => {
    const written = await service.query(organization, INSERT, [2, '0.10', '2025-02-01T00:00:00Z', [1, { deep: [true, null] }]]);
    expect(written).toMatchObject({ status: 200, body: { command: 'INSERT', rowCount: 1, rows: [] } });

    const client = await service.connect(organization);
    const { rows } = await client.query('SELECT total, placed, lines FROM orders WHERE id = 2');
    await client.end();
    const expected = { total: '0.10', placed: new Date('2025-02-01T00:00:00Z'), lines: [1, { deep: [true, null] }] };
    expect(rows).toEqual([expected]);
    const sql = service.sql(organization);
    expect(await sql`SELECT total, placed, lines FROM orders WHERE id = 2`).toEqual([expected]);
    await sql.end();
  });

  it('what postgres writes in a transaction is seen after its COMMIT and not before', async () => {
    const sql = service.sql(organization);
    const count = async () => (await service.query(organization, 'SELECT count(*)::int AS n FROM orders WHERE id = 3')).body.rows[0].n;
    await sql.begin(async (transaction) => {
      await transaction`INSERT INTO orders (id) VALUES (3)`;
      expect(await count()).toBe(0);
    });
    expect(await count()).toBe(1);
    await sql.end();
  });

  it('a table made at one door can be used at the other at once', async () => {
    const client = await service.connect(organization);
    for (const name of ['first', 'second', 'third']) {
      await service.query(organization, `CREATE TABLE ${name} (n int)`);
      await client.query(`INSERT INTO ${name} VALUES (1)`);
      await client.query(`ALTER TABLE ${name} ADD COLUMN more text DEFAULT 'x'`);
      expect((await service.query(organization, `SELECT * FROM ${name}`)).body.rows).toEqual([{ n: 1, more: 'x' }]);
    }
    await client.end();
  });

  it('a session that listens hears what HTTP notifies', async () => {
    const client = await service.connect(organization);
    await client.query('LISTEN orders_placed');
    const heard = once(client, 'notification');
    await service.query(organization, "SELECT pg_notify('orders_placed', $1)", ['42']);
    expect((await heard)[0]).toMatchObject({ channel: 'orders_placed', payload: '42' });
    await client.end();
  });

  it('names are the same everywhere', async () => {
    const sql = 'SELECT current_user AS role, session_user AS login, current_database() AS database, current_schema() AS schema';
    const { id } = organization;
    const place = { database: { database: id, schema: 'public' }, schema: { database: 'postern_shared', schema: id } }[PLACEMENT];
    const expected = [{ role: id, login: id, ...place }];
    expect((await service.query(organization, sql)).body.rows).toEqual(expected);
    const client = await service.connect(organization);
    expect((await client.query(sql)).rows).toEqual(expected);
    await client.end();
  });

  it('the connection that sign-up gives out is one that works', async () => {
    const { body } = await service.call('GET', '/api/auth/me', { key: organization.apiKey });
    const { host, port, user, database, sslmode } = body.connection;
    expect(sslmode).toBe('disable');
    const client = await service.connect(organization, { host, port, user, database });
    expect((await client.query('SELECT 1 AS one')).rows).toEqual([{ one: 1 }]);
    await client.end();
  });

  it('what a wire session has set does not reach the next to use its backend', async () => {
    const alone = await startTestService({ POSTERN_BACKENDS_PER_TENANT: '1' });
    const lodger = await alone.signUp();
    const client = await alone.connect(lodger);
    await client.query('CREATE TEMPORARY TABLE orders (secret text); PREPARE leftover AS SELECT 1; SELECT pg_advisory_lock(1)');
    await client.query("SET TimeZone = 'Asia/Tokyo'; SET search_path = pg_catalog; SET statement_timeout = '1ms'");
    await client.end();
    const { body } = await alone.query(
      lodger,
      `SELECT current_setting('TimeZone') AS zone, current_setting('search_path') AS path, to_regclass('pg_temp.orders') AS temporary,
         (SELECT count(*)::int FROM pg_prepared_statements WHERE name = 'leftover') AS prepared`,
    );
    expect(body).toMatchObject({
      rows: [{ zone: 'UTC', path: '"$user", public', temporary: null, prepared: 0 }],
    });
    await alone.close();
  });
});
