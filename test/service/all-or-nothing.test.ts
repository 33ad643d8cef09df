import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';

let service: TestService;
let organization: TestOrganization;
beforeAll(async () => {
  service = await startTestService();
});
afterAll(() => service.close());
beforeEach(async () => {
  organization = await service.signUp();
});

const migrate = (body: object) => service.call('POST', '/api/migrations', { key: organization.apiKey, body });
const transact = (...statements: readonly string[]) =>
  service.call('POST', '/api/transaction', { key: organization.apiKey, body: { statements: statements.map((sql) => ({ sql })) } });

/** What a client of the wire door finds. */
async function rows(sql: string): Promise<unknown[]> {
  const client = await service.connect(organization);
  const result = await client.query({ text: sql, rowMode: 'array' });
  await client.end();
  return result.rows.flat();
}

const TABLES =
  "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r' AND relname !~ '^postern_' ORDER BY 1";

describe('a transaction over HTTP', () => {
  it('of three statements whose second fails leaves nothing, and says which one it was', async () => {
    await service.query(organization, 'CREATE TABLE accounts (id int PRIMARY KEY, balance int CHECK (balance >= 0))');
    await service.query(organization, 'INSERT INTO accounts VALUES (1, 10), (2, 0)');
    const { status, body } = await transact(
      'UPDATE accounts SET balance = balance + 20 WHERE id = 2',
      'UPDATE accounts SET balance = balance - 20 WHERE id = 1',
      'CREATE TABLE receipts ()',
    );
    expect(status).toBe(400);
    expect(body).toMatchObject({
      code: 'sql_error',
      sqlstate: '23514',
      statementIndex: 1,
      transactionStatus: 'rolled_back',
      postgres: { table: 'accounts', constraint: 'accounts_balance_check' },
    });
    expect(await rows('SELECT balance FROM accounts ORDER BY id')).toEqual([10, 0]);
    expect(await rows(TABLES)).toEqual(['accounts']);
  });

  it('that succeeds is there for the next at the other door', async () => {
    const { body } = await transact(
      'CREATE TABLE notes (body text)',
      "INSERT INTO notes VALUES ('a'), ('b')",
      'SELECT count(*) FROM notes',
    );
    expect(body).toMatchObject({ status: 'committed', results: [{}, { rowCount: 2 }, { rows: [{ count: '2' }] }] });
    expect(await rows('SELECT body FROM notes ORDER BY 1')).toEqual(['a', 'b']);
  });

  it('cannot be committed by halves from within', async () => {
    await transact('CREATE TABLE notes (body text)', "CREATE PROCEDURE commit_now() LANGUAGE plpgsql AS 'BEGIN COMMIT; END'");
    for (const end of ['COMMIT', 'ROLLBACK', 'CALL commit_now()', 'COMMIT AND CHAIN', '/* sly */ END', "PREPARE TRANSACTION 'x'"]) {
      const { status, body } = await transact("INSERT INTO notes VALUES ('half')", end, 'SELECT 1/0');
      expect([end, status, body.statementIndex]).toEqual([end, 400, 1]);
    }
    expect(await rows('SELECT body FROM notes')).toEqual([]);
  });
});

describe('a transaction over the wire', () => {
  it('whose client goes away is undone, and its locks are free', async () => {
    await service.query(organization, 'CREATE TABLE notes (body text)');
    const client = await service.connect(organization);
    await client.query("BEGIN; LOCK TABLE notes; INSERT INTO notes VALUES ('half')");
    const ended = client.end();
    expect((await service.query(organization, 'SELECT body FROM notes')).body.rows).toEqual([]);
    await ended;
  });
});

describe('a migration', () => {
  const sql = 'CREATE TABLE orders (id bigint PRIMARY KEY);\nCREATE INDEX ON orders (id);';

  it('whose second statement fails leaves nothing', async () => {
    const { status, body } = await migrate({ name: 'one', sql: 'CREATE TABLE half ();\nCREATE TABLE other (x nosuchtype);' });
    expect([status, body.statementIndex, body.sqlstate, body.postgres.line, body.postgres.column]).toEqual([400, 1, '42704', 2, 23]);
    expect(await rows(TABLES)).toEqual([]);
    expect((await service.call('GET', '/api/migrations', { key: organization.apiKey })).body.migrations).toEqual([]);
    expect((await migrate({ name: 'one', sql })).status).toBe(201);
  });

  it('twice is applied once, and with other SQL refused', async () => {
    expect(await migrate({ name: 'orders', sql })).toMatchObject({ status: 201, body: { alreadyApplied: false } });
    expect(await migrate({ name: 'orders', sql })).toMatchObject({ status: 200, body: { alreadyApplied: true } });
    expect(await migrate({ name: 'orders', sql: `${sql} SELECT 1` })).toMatchObject({
      status: 409,
      body: { code: 'migration_checksum_mismatch' },
    });
    expect(await rows(TABLES)).toEqual(['orders']);
  });

  it('that many send at once is applied by one of them', async () => {
    const replies = await Promise.all(Array.from({ length: 6 }, () => migrate({ name: 'orders', sql })));
    expect(replies.map(({ status }) => status).sort()).toEqual([200, 200, 200, 200, 200, 201]);
    expect(await rows(TABLES)).toEqual(['orders']);
  });
});
