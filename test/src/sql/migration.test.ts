import { createHash } from 'node:crypto';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { listMigrations } from '../../../src/sql/migration-history.ts';
import { applyMigration, type MigrationReply, type MigrationRequest } from '../../../src/sql/migrations.ts';
import { createTestDatabase, type TestDatabase } from '../../support/leases.ts';

let database: TestDatabase;

beforeAll(async () => {
  database = await createTestDatabase();
});

afterAll(() => database.close());

beforeEach(async () => {
  await database.asOwner(`ROLLBACK; DROP SCHEMA IF EXISTS postern CASCADE; DROP SCHEMA public CASCADE; CREATE SCHEMA public`);
});

async function apply(sql: string, request: Partial<MigrationRequest> = {}): Promise<MigrationReply> {
  return applyMigration(await database.lease(), { name: '001-first', sql, timeoutMs: 60_000, ...request });
}

async function list() {
  return listMigrations(await database.lease(), { timeoutMs: 60_000 });
}

async function exists(relation: string): Promise<boolean> {
  const { rows } = await database.admin.query('SELECT to_regclass($1) IS NOT NULL AS is', [relation]);
  return rows[0].is;
}

async function expectNoTrace(): Promise<void> {
  expect(await exists('public.a')).toBe(false);
  expect(await exists('postern.migrations')).toBe(false);
  expect(await list()).toEqual([]);
  expect(database.pool.snapshot()).toMatchObject({ leased: 0 });
}

const TWO = 'CREATE TABLE a (id int);\n-- and\nCREATE TABLE b (id int);';

describe('a migration', () => {
  test('runs whole and is recorded', async () => {
    const { migration, alreadyApplied, warnings } = await apply(TWO);
    expect(migration).toEqual({
      name: '001-first',
      status: 'applied',
      appliedAt: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/),
      checksum: `sha256:${createHash('sha256').update(TWO).digest('hex')}`,
      durationMs: expect.any(Number),
      statementCount: 2,
      statementsApplied: 2,
      isReversible: false,
      rolledBackAt: null,
    });
    expect({ alreadyApplied, warnings }).toEqual({ alreadyApplied: false, warnings: [] });
    expect(await list()).toEqual([migration]);
    expect(await exists('public.b')).toBe(true);
  });

  test('keeps its ledger in a table of the organization, beside its data', async () => {
    await apply(TWO, { rollbackSql: 'DROP TABLE a, b' });
    const { rows } = await database.admin.query('SELECT tableowner FROM pg_tables WHERE schemaname = $1 AND tablename = $2', [
      'postern',
      'migrations',
    ]);
    expect(rows).toEqual([{ tableowner: database.name }]);
    expect((await database.admin.query('SELECT name, sql, rollback_sql FROM postern.migrations')).rows).toEqual([
      { name: '001-first', sql: TWO, rollback_sql: 'DROP TABLE a, b' },
    ]);
  });

  test('runs once', async () => {
    const first = await apply(TWO);
    expect(await apply(TWO)).toEqual({ migration: first.migration, alreadyApplied: true, warnings: [] });
  });

  test('cannot be changed afterwards', async () => {
    await apply(TWO);
    await expect(apply(`${TWO} `)).rejects.toMatchObject({ kind: 'migration_checksum_mismatch' });
  });

  test('is listed in the order applied', async () => {
    for (const name of ['b', 'a', 'c']) await apply('SELECT 1', { name });
    expect((await list()).map(({ name }) => name)).toEqual(['b', 'a', 'c']);
  });

  test('may contain whatever psql would take as statements', async () => {
    await apply(`
      CREATE TABLE a (id int, note text DEFAULT 'x;y');
      CREATE FUNCTION plain() RETURNS int LANGUAGE plpgsql AS $body$ BEGIN INSERT INTO a VALUES (1); RETURN 1; END $body$;
      CREATE FUNCTION atomic() RETURNS bigint BEGIN ATOMIC SELECT plain(); SELECT CASE WHEN count(*) > 0 THEN count(*) ELSE 0 END FROM a; END;
      SELECT plain(); /* ; */ SAVEPOINT s; INSERT INTO a VALUES (2); ROLLBACK TO s;
      CREATE RULE r AS ON DELETE TO a DO ALSO (INSERT INTO a VALUES (3); INSERT INTO a VALUES (4))`);
    expect((await database.admin.query('SELECT id, note FROM public.a')).rows).toEqual([{ id: 1, note: 'x;y' }]);
  });

  test('has its notices in the warnings, with the statement', async () => {
    const { warnings } = await apply('CREATE TABLE IF NOT EXISTS a (); CREATE TABLE IF NOT EXISTS a ()');
    expect(warnings).toEqual([expect.objectContaining({ severity: 'NOTICE', code: '42P07', statementIndex: 1 })]);
  });

  test('is applied whatever the organization has set for itself', async () => {
    await database.admin.query(
      `ALTER ROLE ${database.name} SET default_transaction_read_only = on; ALTER ROLE ${database.name} SET default_transaction_isolation = 'serializable'; ALTER ROLE ${database.name} SET search_path = ''`,
    );
    database.pool.closeIdle(database.name);
    await apply('SET search_path = pg_temp; CREATE TABLE public.a (id int); RESET search_path');
    await database.admin.query(`ALTER ROLE ${database.name} RESET ALL`);
    database.pool.closeIdle(database.name);
    expect(await list()).toHaveLength(1);
  });
});

describe('a failure changes nothing and reports its position', () => {
  test.each<[string, string, object]>([
    [
      'with a position',
      'CREATE TABLE a (id int);\n\n  SELECT id,\n    nope FROM a;',
      { place: { phase: 'statement', statementIndex: 1, line: 4, column: 5 }, error: { fields: { code: '42703' } } },
    ],
    [
      'without one',
      'CREATE TABLE a (id int); /* x */\n INSERT INTO a SELECT 1 / 0',
      { place: { phase: 'statement', statementIndex: 1, line: 2, column: 2 }, error: { fields: { code: '22012' } } },
    ],
    [
      'a syntax error',
      'CREATE TABLE a (id int);\nCREATE TABEL b',
      { place: { statementIndex: 1, line: 2, column: 8 }, error: { fields: { code: '42601' } } },
    ],
    [
      'after a character of two units',
      "CREATE TABLE a (id int); SELECT '😀' nope nope",
      { place: { statementIndex: 1, line: 1, column: 42 } },
    ],
    [
      'at commit',
      'CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (a int REFERENCES a DEFERRABLE INITIALLY DEFERRED); INSERT INTO b VALUES (1)',
      { place: { phase: 'commit' }, error: { fields: { code: '23503' } } },
    ],
    [
      'what cannot run in a transaction',
      'CREATE TABLE a (id int); CREATE INDEX CONCURRENTLY ON a (id)',
      { place: { statementIndex: 1 }, error: { fields: { code: '25001', hint: expect.stringContaining('"transaction": false') } } },
    ],
  ])('%s', async (_name, sql, failure) => {
    await expect(apply(sql)).rejects.toMatchObject(failure);
    await expectNoTrace();
  });

  test.each(['COMMIT', 'BEGIN', 'ROLLBACK', 'COPY a FROM STDIN'])(
    'a statement that does not belong there, before anything runs: %s',
    async (statement) => {
      await expect(apply(`CREATE TABLE a (id int);\n ${statement};\n CREATE TABLE b ()`)).rejects.toMatchObject({
        place: { phase: 'statement', statementIndex: 1, line: 2, column: 2 },
        error: { kind: 'unsupported_statement' },
      });
      await expectNoTrace();
    },
  );

  test.each(['', '-- nothing', ';'])('no statement at all: %j', async (sql) => {
    await expect(apply(sql)).rejects.toMatchObject({ kind: 'invalid_request' });
    await expectNoTrace();
  });

  test('a lock that others hold for longer than four seconds', async () => {
    await database.asOwner('CREATE TABLE held (id int)');
    await database.asOwner('BEGIN; LOCK TABLE held');
    const startedAt = performance.now();
    await expect(apply('CREATE TABLE a (id int); ALTER TABLE held ADD x int')).rejects.toMatchObject({
      place: { statementIndex: 1 },
      error: { fields: { code: '55P03' } },
    });
    expect(performance.now() - startedAt).toBeGreaterThan(3_900);
    await database.asOwner('ROLLBACK');
    await expectNoTrace();
  });
});

describe('a ledger that keeps no entry', () => {
  const swallow = 'CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$';
  const refusal = { kind: 'unsupported_statement', message: 'postern.migrations has not kept the entry of this migration' };

  test.each([true, false])('fails the migration, of which nothing remains (transaction: %o)', async (transaction) => {
    await apply('SELECT 1', { name: '000-before' });
    await database.asOwner(`${swallow}; CREATE TRIGGER t BEFORE INSERT ON postern.migrations FOR EACH ROW EXECUTE FUNCTION nothing()`);
    await expect(apply(TWO, { transaction })).rejects.toMatchObject(refusal);
    expect(await exists('public.a')).toBe(false);
    expect(await list()).toMatchObject([{ name: '000-before' }]);
  });

  test('because a statement of the migration takes it out fails there', async () => {
    await expect(apply('CREATE TABLE a (id int); DELETE FROM postern.migrations; SELECT 1', { transaction: false })).rejects.toMatchObject({
      error: refusal,
      place: { statementIndex: 1, statementsApplied: 2 },
    });
  });

  test("is reported in Postgres' own terms, whatever the search path", async () => {
    const sql = `CREATE FUNCTION public.to_char(timestamp, text) RETURNS text LANGUAGE sql AS $$ SELECT 'x' $$; SET search_path = public, pg_catalog`;
    expect((await apply(sql)).migration.appliedAt).toMatch(/^\d{4}-/);
  });
});

describe('a dry run', () => {
  test('runs everything and leaves nothing', async () => {
    expect(await apply(TWO, { dryRun: true })).toMatchObject({
      migration: { status: 'dry_run', statementCount: 2 },
      alreadyApplied: false,
    });
    await expectNoTrace();
  });

  test('finds what only the commit would', async () => {
    const sql =
      'CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (a int REFERENCES a DEFERRABLE INITIALLY DEFERRED); INSERT INTO b VALUES (1)';
    await expect(apply(sql, { dryRun: true })).rejects.toMatchObject({ place: { phase: 'commit' }, error: { fields: { code: '23503' } } });
    await expectNoTrace();
  });

  test('proves that what is to undo it does', async () => {
    expect(await apply(TWO, { dryRun: true, rollbackSql: 'DROP TABLE b; DROP TABLE a' })).toMatchObject({
      migration: { status: 'dry_run' },
    });
    await expect(apply(TWO, { dryRun: true, rollbackSql: 'DROP TABLE a;\nDROP TABLE c' })).rejects.toMatchObject({
      place: { phase: 'rollback', statementIndex: 1, line: 2, column: 1 },
      error: { fields: { code: '42P01' } },
    });
    await expect(apply(TWO, { dryRun: true, rollbackSql: 'DROP TABLE a' })).rejects.toMatchObject({
      place: { phase: 'repeat', statementIndex: 1, line: 3, column: 1 },
      error: { fields: { code: '42P07' } },
    });
    await expectNoTrace();
  });

  test('of an applied migration says so', async () => {
    await apply(TWO);
    expect(await apply(TWO, { dryRun: true })).toMatchObject({ alreadyApplied: true });
    await expect(apply('SELECT 1', { dryRun: true })).rejects.toMatchObject({ kind: 'migration_checksum_mismatch' });
  });

  test('needs a transaction', async () => {
    await expect(apply(TWO, { dryRun: true, transaction: false })).rejects.toMatchObject({ kind: 'invalid_request' });
  });
});

describe('without a transaction', () => {
  const SQL =
    'CREATE TABLE IF NOT EXISTS a (id int);\nCREATE INDEX CONCURRENTLY i ON a (id);\nCREATE UNIQUE INDEX CONCURRENTLY u ON a (id)';

  test('what cannot run in one can', async () => {
    expect(await apply(SQL, { transaction: false })).toMatchObject({
      migration: { status: 'applied', statementCount: 3, statementsApplied: 3 },
    });
    expect(await exists('public.u')).toBe(true);
    expect(await list()).toMatchObject([{ status: 'applied', statementsApplied: 3 }]);
    expect(await apply(SQL, { transaction: false })).toMatchObject({ alreadyApplied: true });
  });

  test('a failure says how far it got, and it may be tried again', async () => {
    await database.asOwner('CREATE TABLE a (id int); INSERT INTO a VALUES (1), (1)');
    await expect(apply(SQL, { transaction: false })).rejects.toMatchObject({
      place: { phase: 'statement', statementIndex: 2, line: 3, column: 1, statementsApplied: 2 },
      error: { fields: { code: '23505' } },
    });
    expect(await list()).toMatchObject([{ status: 'failed', statementCount: 3, statementsApplied: 2 }]);
    const corrected = 'DROP INDEX u; DELETE FROM a WHERE true; CREATE UNIQUE INDEX CONCURRENTLY u ON a (id)';
    expect(await apply(corrected, { transaction: false })).toMatchObject({ migration: { status: 'applied' }, alreadyApplied: false });
    expect(await list()).toMatchObject([{ status: 'applied', statementCount: 3 }]);
  });

  test('still no statement may begin or end one', async () => {
    await expect(apply('CREATE TABLE a (); BEGIN; COMMIT', { transaction: false })).rejects.toMatchObject({
      error: { kind: 'unsupported_statement' },
    });
    await expectNoTrace();
  });
});

describe('destructive statements are warned about, with their place, and run', () => {
  test.each([false, true])('dry run: %s', async (dryRun) => {
    await database.asOwner('CREATE TABLE a (id int, b int); CREATE TABLE old ()');
    const { warnings } = await apply('SELECT 1;\nDROP TABLE old;\nALTER TABLE a ADD c int,\n  DROP COLUMN b', { dryRun });
    expect(warnings).toEqual([
      {
        severity: 'WARNING',
        code: 'destructive_statement',
        message: expect.stringContaining('DROP TABLE'),
        statementIndex: 1,
        line: 2,
        column: 1,
      },
      {
        severity: 'WARNING',
        code: 'destructive_statement',
        message: expect.stringContaining('DROP COLUMN'),
        statementIndex: 2,
        line: 4,
        column: 3,
      },
    ]);
  });
});

test('of very many warnings the first hundred are reported', async () => {
  const sql = 'CREATE TABLE IF NOT EXISTS a (); DELETE FROM a;\n'.repeat(150);
  const { warnings } = await apply(sql, { dryRun: true });
  expect(warnings.filter(({ code }) => code === 'destructive_statement')).toHaveLength(100);
  expect(warnings.filter(({ severity }) => severity === 'NOTICE')).toHaveLength(100);
});

describe('at the same time', () => {
  test('the same migration is applied once', async () => {
    const replies = await Promise.all(Array.from({ length: 5 }, () => apply('CREATE TABLE a (id int); SELECT pg_sleep(0.05)')));
    expect(replies.filter(({ alreadyApplied }) => !alreadyApplied)).toHaveLength(1);
    expect(await list()).toHaveLength(1);
  });

  test('different ones wait for each other', async () => {
    await Promise.all(
      ['a', 'b', 'c', 'd'].map((name) =>
        apply(`CREATE TABLE IF NOT EXISTS a (n int); INSERT INTO a VALUES (1); SELECT pg_sleep(0.02)`, { name }),
      ),
    );
    expect(await list()).toHaveLength(4);
  });

  test('one that builds an index concurrently is not held up by one that waits for it', async () => {
    await database.asOwner('CREATE TABLE a (id int)');
    const replies = await Promise.all([
      apply('CREATE INDEX CONCURRENTLY i ON a (id); SELECT pg_sleep(0.2); CREATE INDEX CONCURRENTLY j ON a (id)', {
        name: 'index',
        transaction: false,
      }),
      apply('CREATE TABLE b ()', { name: 'other' }),
    ]);
    expect(replies).toMatchObject([{ migration: { status: 'applied' } }, { migration: { status: 'applied' } }]);
  });
});
