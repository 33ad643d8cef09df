import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { migrationReply, migrationsReply, rollbackReply } from '../../http/reply-schemas.ts';
import { eventually } from '../support/eventually.ts';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';

let service: TestService;
let acme: TestOrganization;
beforeAll(async () => {
  service = await startTestService();
  acme = await service.signUp();
});
afterAll(() => service.close());

const migrate = (body: object) => service.call('POST', '/api/migrations', { key: acme.apiKey, body });
const ledger = async () => (await service.call('GET', '/api/migrations', { key: acme.apiKey })).body.migrations;
const tables = async () =>
  (await service.query(acme, 'select tablename from pg_tables where schemaname = current_schema() order by 1')).body.rows.flatMap(
    Object.values,
  );

describe('a migration', () => {
  it('is applied once, and listed', async () => {
    const orders = { name: 'orders', sql: 'create table orders (id int primary key);\ncreate index on orders (id);' };
    const first = await migrate(orders);
    expect(first.status).toBe(201);
    expect(migrationReply.strict().parse(first.body)).toMatchObject({
      migration: { name: 'orders', status: 'applied', statementCount: 2, checksum: expect.stringMatching(/^sha256:[0-9a-f]{64}$/) },
      alreadyApplied: false,
      warnings: [],
    });

    const again = await migrate(orders);
    expect([again.status, again.body.alreadyApplied, again.body.migration.checksum]).toEqual([200, true, first.body.migration.checksum]);

    const other = await migrate({ ...orders, sql: 'select 1' });
    expect([other.status, other.body.code]).toEqual([409, 'migration_checksum_mismatch']);

    const reply = await service.call('GET', '/api/migrations', { key: acme.apiKey });
    expect(reply.status).toBe(200);
    expect(migrationsReply.strict().parse(reply.body).migrations).toMatchObject([{ name: 'orders', status: 'applied' }]);
  });

  it('whose second statement fails leaves no trace and says where it failed', async () => {
    const before = await ledger();
    const { status, body } = await migrate({
      name: 'broken',
      sql: 'create table half (id int);\n\nalter table half\n  add column x nosuchtype;',
    });
    expect(status).toBe(400);
    expect(body).toMatchObject({
      code: 'sql_error',
      sqlstate: '42704',
      statementIndex: 1,
      phase: 'statement',
      transactionStatus: 'rolled_back',
      postgres: { line: 4, column: 16 },
    });
    expect(await tables()).not.toContain('half');
    expect(await ledger()).toEqual(before);
  });

  it('may be a file of pg_dump', async () => {
    const sql = `--
-- PostgreSQL database dump
--

\\restrict x1

SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
CREATE TABLE public.dumped (id integer NOT NULL);
INSERT INTO public.dumped VALUES (1);

\\unrestrict x1
`;
    const { status, body } = await migrate({ name: 'dumped', sql });
    expect([status, body.migration?.statementCount]).toEqual([201, 4]);
    expect((await service.query(acme, 'select * from dumped')).body.rows).toEqual([{ id: 1 }]);
    expect((await migrate({ name: 'nothing', sql: '\\restrict abc\n' })).body).toMatchObject({
      code: 'invalid_request',
      sqlstate: '42601',
    });
  });

  it.each([
    ['between statements', 'select 1;\n\\connect other\nselect 2;', { line: 2 }, '\\connect'],
    ['at the start', '\\set ON_ERROR_STOP on\nselect 1;', { line: 1 }, '\\set'],
    ['within a statement', 'select 1;\nselect 1\n  as one \\gset', { line: 3 }, '\\gset'],
  ])('with a command of psql %s is told which, and where', async (_, sql, place, command) => {
    const { status, body } = await migrate({ name: 'psql', sql });
    expect([status, body.code, body.sqlstate]).toEqual([400, 'invalid_request', '42601']);
    expect(body).toMatchObject({ hint: `Leave out ${command} in line ${place.line}, or run the file with psql.` });
  });

  it('with BEGIN and COMMIT is told that it is one transaction already', async () => {
    const { body } = await migrate({ name: 'begun', sql: 'begin; select 1; commit;' });
    expect(body).toMatchObject({ code: 'unsupported_statement', hint: expect.stringContaining('one transaction already') });
  });

  it('may be tried without a trace', async () => {
    const { status, body } = await migrate({
      name: 'tried',
      sql: 'create table tried (id int)',
      rollbackSql: 'drop table tried',
      dryRun: true,
    });
    expect([status, body.migration.status]).toEqual([200, 'dry_run']);
    expect(await tables()).not.toContain('tried');
  });

  it.each([true, false])('has no parameters (transaction: %o)', async (transaction) => {
    const { status, body } = await migrate({ name: 'parameters', sql: 'select 1;\nselect $1::int, $2::text', transaction });
    expect([status, body.code, body.retryable]).toEqual([400, 'invalid_request', false]);
    expect([body.message, body.statementIndex]).toEqual(['a migration has no values for parameters such as $1', 1]);
  });

  it.each([
    ['is refused', "select 'ä';\n  select 1; commit", {}, 'unsupported_statement', { statementIndex: 2, line: 2, column: 13 }],
    [
      'takes too long',
      'select 1;\n\n select pg_sleep(60)',
      { timeoutMs: 2_000 },
      'statement_timeout',
      { statementIndex: 1, line: 3, column: 2 },
    ],
  ])('says where the statement stands that %s', async (name, sql, options, code, place) => {
    expect((await migrate({ name, sql, ...options })).body).toMatchObject({ code, ...place, transactionStatus: 'rolled_back' });
  });

  it('without a transaction keeps what went before the failure, and does not claim otherwise', async () => {
    const { status, body } = await migrate({ name: 'steps', sql: 'create table first_step (id int); select nope', transaction: false });
    expect([status, body.statementIndex, body.statementsApplied]).toEqual([400, 1, 1]);
    expect(body).not.toHaveProperty('transactionStatus');
    expect(await tables()).toContain('first_step');
    expect(await ledger()).toContainEqual(expect.objectContaining({ name: 'steps', status: 'failed', statementsApplied: 1 }));
  });

  it.each([
    [true, true],
    [false, false],
  ])('that failed for a passing reason is retryable if nothing of it remains (transaction: %o)', async (transaction, retryable) => {
    const sql = `create table passing_${transaction} (id int); do $$ begin raise exception 'not now' using errcode = '55P03'; end $$`;
    const { status, body } = await migrate({ name: `passing ${transaction}`, sql, transaction });
    expect([status, body.code, body.retryable]).toEqual([400, 'lock_not_available', retryable]);
  });

  it.each([
    [{ sql: 'select 1' }, 'name: is required'],
    [{ name: '', sql: 'select 1' }, 'name: must be a string of 1 to 200 characters'],
    [{ name: 'a\nb', sql: 'select 1' }, 'name: must not contain control characters'],
    [{ name: 'a\u202eb', sql: 'select 1' }, 'name: must not contain invisible formatting characters or line separators'],
    [{ name: '\u2800', sql: 'select 1' }, 'name: must have a visible character'],
    [{ name: 'x', sql: '' }, 'sql: must not be empty'],
    [{ name: 'x', sql: 'select 1', dryrun: true }, 'unknown field "dryrun"'],
  ])('that is %j is refused before it runs', async (body, message) => {
    const { status, body: problem } = await migrate(body);
    expect([status, problem.code]).toEqual([400, 'invalid_request']);
    expect(problem.message).toEqual(typeof message === 'string' ? message : expect.stringMatching(message));
  });
});

describe('undoing a migration', () => {
  let own: TestOrganization;
  beforeAll(async () => {
    own = await service.signUp();
  });
  const apply = (name: string, sql: string, rollbackSql?: string) =>
    service.call('POST', '/api/migrations', {
      key: own.apiKey,
      body: { name, sql, ...(rollbackSql === undefined ? {} : { rollbackSql }) },
    });
  const undo = (name: string, body?: object, { key = own.apiKey, headers = {} } = {}) =>
    service.call('POST', `/api/migrations/${encodeURIComponent(name)}/rollback`, { key, headers, ...(body === undefined ? {} : { body }) });
  const entries = async () => (await service.call('GET', '/api/migrations', { key: own.apiKey })).body.migrations;
  const exists = async (name: string) => (await service.query(own, 'select to_regclass($1) is not null as is', [name])).body.rows[0].is;

  it('runs what was kept with it, once, and the ledger knows; applied again it really is', async () => {
    await apply('a/1', 'create table undone (id int)', 'drop table undone');
    const tried = await undo('a/1', { dryRun: true });
    expect([tried.status, tried.body.migration.status, await exists('undone')]).toEqual([200, 'dry_run', true]);
    expect(await entries()).toMatchObject([{ name: 'a/1', status: 'applied', isReversible: true, rolledBackAt: null }]);

    const headers = { 'idempotency-key': 'undo-1' };
    const done = await undo('a/1', undefined, { headers });
    expect(rollbackReply.strict().parse(done.body)).toMatchObject({
      migration: { name: 'a/1', status: 'rolled_back', rolledBackAt: expect.stringMatching(/^\d{4}-.*Z$/) },
      alreadyRolledBack: false,
      warnings: [{ code: 'destructive_statement' }],
    });
    expect([done.status, await exists('undone')]).toEqual([200, false]);
    const replayed = await undo('a/1', undefined, { headers });
    expect([replayed.body, replayed.headers.get('idempotency-replayed')]).toEqual([done.body, 'true']);
    expect((await undo('a/1')).body).toMatchObject({ alreadyRolledBack: true, warnings: [] });
    expect(await entries()).toMatchObject([{ name: 'a/1', status: 'rolled_back' }]);

    const again = await apply('a/1', 'create table undone (id int, note text)', 'drop table undone');
    expect([again.status, again.body.alreadyApplied, await exists('undone')]).toEqual([201, false, true]);
    expect(await entries()).toMatchObject([{ name: 'a/1', status: 'applied', rolledBackAt: null }]);

    let recorded: { readonly statement: object }[] = [];
    await eventually('it is in the audit log', async () => {
      const { body } = await service.call('GET', '/api/audit?action=migrations.rollback&outcome=ok', { key: own.apiKey });
      recorded = body.data;
      return recorded.length >= 3;
    });
    expect(recorded.map(({ statement }) => statement)).toContainEqual(expect.objectContaining({ sql: 'drop table undone' }));
  });

  it('is refused unless it is the newest and can be undone, and by keys that may not change objects', async () => {
    await apply('b', 'create table b (id int)');
    expect(await undo('a/1')).toMatchObject({ status: 409, body: { code: 'migration_not_newest', sqlstate: '55000' } });
    expect(await undo('b')).toMatchObject({ status: 409, body: { code: 'migration_not_reversible', sqlstate: '55000' } });
    expect(await undo('none')).toMatchObject({ status: 404, body: { code: 'not_found' } });
    for (const scope of ['read', 'data']) {
      const { body } = await service.call('POST', '/api/keys', { key: own.apiKey, body: { name: scope, scope } });
      expect(await undo('a/1', { force: true }, { key: body.apiKey })).toMatchObject({ status: 403, body: { code: 'forbidden' } });
    }
    expect((await undo('a/1', { force: true })).status).toBe(200);
    expect(await exists('undone')).toBe(false);
  });

  it('changes nothing where a statement fails, and says which', async () => {
    await apply('c', 'create table c (id int)', 'drop table c;\ndrop table nosuchtable');
    const { status, body } = await undo('c');
    expect([status, body.code, body.phase, body.statementIndex, body.postgres.line]).toEqual([400, 'sql_error', 'rollback', 1, 2]);
    expect(await exists('c')).toBe(true);
    expect((await entries()).at(-1)).toMatchObject({ name: 'c', status: 'applied' });
  });

  it('that was applied before names what of it is gone or changed, unless another migration has done that', async () => {
    const made = 'create table made (id int primary key, note text);\ncreate view seen as select id from made;\ncreate table spare ()';
    await apply('made', made);
    await apply('later', 'drop table spare; alter table made add more text');
    const warned = async () => {
      const { body } = await apply('made', made);
      expect(body.alreadyApplied).toBe(true);
      return body.warnings.map(({ code, message }: { code: string; message: string }) => [code, message.split(',')[0]]).sort();
    };
    expect(await warned()).toEqual([]);
    await service.query(own, 'drop view seen');
    await service.query(own, 'alter table made drop note');
    expect(await warned()).toEqual([
      ['changed_object', 'table public.made is not as the migration has left it'],
      ['missing_object', 'view public.seen is gone'],
    ]);
  });

  it('works with a ledger from before this could be done', async () => {
    const { body } = await service.query(own, "select to_regclass('postern.migrations') is not null as is");
    const table = body.rows[0].is ? 'postern.migrations' : 'postern_migrations';
    await service.query(own, `alter table ${table} drop column rolled_back_at, drop column objects`);
    expect((await entries()).at(-1)).toMatchObject({ name: 'later', status: 'applied', rolledBackAt: null });
    expect((await apply('later', 'drop table spare; alter table made add more text')).body).toMatchObject({
      alreadyApplied: true,
      warnings: [],
    });
    await apply('d', 'create table d ()', 'drop table d');
    expect((await undo('d')).body).toMatchObject({ migration: { status: 'rolled_back' } });
  });
});
