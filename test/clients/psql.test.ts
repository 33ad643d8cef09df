import { execFile, spawn } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { eventually } from '../support/eventually.ts';
import { LANDMARK, landmarkPassed } from '../support/landmark.ts';
import { PLACEMENT, startTestService, type TestOrganization, type TestService } from '../support/service.ts';

const run = promisify(execFile);

let service: TestService;
let organization: TestOrganization;
let folder: string;
beforeAll(async () => {
  service = await startTestService();
  organization = await service.signUp();
  folder = await mkdtemp(join(tmpdir(), 'postern-psql-'));
});
afterAll(async () => {
  await service.close();
  await rm(folder, { recursive: true });
});

const environment = () => ({
  PATH: process.env.PATH,
  LC_ALL: 'C.UTF-8',
  PGPASSWORD: organization.apiKey,
  PGHOST: '127.0.0.1',
  PGPORT: String(service.wirePort),
  PGUSER: organization.id,
  PSQLRC: '/dev/null',
  PSQL_HISTORY: '/dev/null',
  PAGER: '',
});

/** Runs lines as if they had been typed, without what psql says about itself. */
async function psql(...lines: readonly string[]): Promise<{ stdout: string; stderr: string }> {
  const child = run('psql', ['--no-align', '--tuples-only', '--quiet'], { env: environment(), cwd: folder });
  child.child.stdin?.end(`${lines.join('\n')}\n`);
  return child;
}

/** What it prints, which must be all there is. */
async function output(...lines: readonly string[]): Promise<string> {
  const { stdout, stderr } = await psql(...lines);
  expect(stderr).toBe('');
  return stdout.trimEnd();
}

describe('psql', () => {
  it('connects with the line that the service prints, and knows where it is', async () => {
    const { id, apiKey } = organization;
    const { stdout } = await run('psql', ['-h', '127.0.0.1', '-p', String(service.wirePort), '-U', id, id, '-Atc', 'SELECT current_user'], {
      env: { PATH: process.env.PATH, PGPASSWORD: apiKey },
    });
    expect(stdout).toBe(`${id}\n`);
    const address = `on host "127.0.0.1" at port "${service.wirePort}"`;
    expect(await output('\\conninfo')).toBe(`You are connected to database "${id}" as user "${id}" ${address}.`);
  });

  it('connects with a URL', async () => {
    const { id, apiKey } = organization;
    const url = `postgresql://${id}:${apiKey}@127.0.0.1:${service.wirePort}/${id}?application_name=by_url&connect_timeout=5`;
    const { stdout } = await run('psql', [url, '-Atc', 'SHOW application_name'], { env: { PATH: process.env.PATH } });
    expect(stdout).toBe('by_url\n');
  });

  it('is refused with a wrong key', async () => {
    const refused = run('psql', ['-c', 'SELECT 1'], { env: { ...environment(), PGPASSWORD: 'pst_wrong' } });
    await expect(refused).rejects.toMatchObject({
      code: 2,
      stderr: expect.stringContaining(`FATAL:  password authentication failed for user "${organization.id}"`),
    });
  });

  it('describes tables with \\d and lists them with \\dt', async () => {
    await psql(
      'CREATE TABLE orders (id bigint PRIMARY KEY, total numeric(10,2) NOT NULL DEFAULT 0, note text);',
      'CREATE INDEX by_total ON orders (total);',
    );
    const schema = PLACEMENT === 'schema' ? organization.id : 'public';
    expect(await output('\\dt')).toBe(`${schema}|orders|table|${organization.id}`);
    expect((await output('\\t off', '\\d orders')).split('\n')).toEqual([
      `Table "${schema}.orders"`,
      'Column|Type|Collation|Nullable|Default',
      'id|bigint||not null|',
      'total|numeric(10,2)||not null|0',
      'note|text|||',
      'Indexes:',
      '    "orders_pkey" PRIMARY KEY, btree (id)',
      '    "by_total" btree (total)',
    ]);
    expect((await output('\\d')).split('\n')).toEqual([`${schema}|orders|table|${organization.id}`]);
    for (const command of ['\\d+ orders', '\\di', '\\dn+', '\\df', '\\dv', '\\ds', '\\du', '\\dT', '\\dx', '\\dp', '\\dconfig search_path'])
      expect(await psql(command)).toMatchObject({ stderr: '' });
  });

  it('measures with \\timing', async () => {
    expect(await output('\\timing on', 'SELECT 1;')).toMatch(/^1\nTime: \d+\.\d+ ms/);
  });

  it('copies files in and out with \\copy', async () => {
    const lines = Array.from({ length: 10_000 }, (_, n) => `${n},"name, ""${n}"""\n`);
    await writeFile(join(folder, 'people.csv'), lines.join(''));
    await output('CREATE TABLE people (id int, name text);', '\\copy people FROM people.csv CSV');
    expect(await output('SELECT count(*), max(name) FROM people;')).toBe('10000|name, "9999"');
    await output('\\copy (SELECT id, name FROM people ORDER BY id) TO out.csv WITH (FORMAT csv, FORCE_QUOTE (name))');
    expect(await readFile(join(folder, 'out.csv'), 'utf8')).toBe(lines.join(''));
    expect(await output('COPY people (id, name) FROM STDIN;', '10001\tby hand', '\\.', 'SELECT name FROM people WHERE id = 10001;')).toBe(
      'by hand',
    );
  });

  it('runs transactions, and shows when one has failed', async () => {
    const { stdout, stderr } = await psql(
      'CREATE TABLE notes (body text);',
      'BEGIN;',
      "INSERT INTO notes VALUES ('kept');",
      'COMMIT;',
      'BEGIN;',
      "INSERT INTO notes VALUES ('dropped');",
      'SELECT 1/0;',
      'SELECT 2;',
      'COMMIT;',
      'SELECT body FROM notes;',
    );
    expect(stdout).toBe('kept\n');
    expect(stderr).toContain('ERROR:  division by zero');
    expect(stderr).toContain('current transaction is aborted');
    expect((await service.query(organization, 'SELECT body FROM notes')).body.rows).toEqual([{ body: 'kept' }]);
  });

  it('says where an error is, and shows notices', async () => {
    const { stderr } = await psql('SELECT nowhere;', "DO $$ BEGIN RAISE NOTICE 'by the way'; END $$;");
    expect(stderr).toContain('LINE 1: SELECT nowhere;\n               ^');
    expect(stderr).toContain('NOTICE:  by the way');
  });

  it('tells a script the code of an error', async () => {
    const code = '\\if :ERROR \\echo :SQLSTATE :LAST_ERROR_MESSAGE \\endif';
    for (const [statement, expected] of [
      ['SELECT 1 / 0', '22012 division by zero'],
      ['SELECT * FROM nowhere', '42P01 relation "nowhere" does not exist'],
      ["SELECT 'x'::int", '22P02 invalid input syntax for type integer: "x"'],
      ['SELEC', '42601 syntax error at or near "SELEC"'],
      ['SET statement_timeout = 50; SELECT pg_sleep(60)', '57014 canceling statement due to statement timeout'],
    ]) {
      expect((await psql(`${statement};`, code)).stdout).toBe(`${expected}\n`);
    }
    expect((await psql('SELECT 1 / 0;', '\\errverbose')).stderr).toContain('LOCATION:  int4div, int.c:');
  });

  it('goes on after an error in a transaction when it is told to', async () => {
    const { stdout } = await psql(
      '\\set ON_ERROR_ROLLBACK on',
      '\\set AUTOCOMMIT off',
      'CREATE TABLE kept (n int PRIMARY KEY);',
      'INSERT INTO kept VALUES (1);',
      'INSERT INTO kept VALUES (1);',
      'INSERT INTO kept VALUES (2);',
      'COMMIT;',
      'INSERT INTO kept VALUES (3);',
      'ROLLBACK;',
      'SELECT sum(n) FROM kept;',
    );
    expect(stdout).toBe('3\n');
  });

  it('describes a query that it does not run', async () => {
    expect(await output("SELECT 1 AS n, 1.5::numeric(4, 1) AS price, ARRAY['a'] AS tags \\gdesc")).toBe(
      'n|integer\nprice|numeric(4,1)\ntags|text[]',
    );
  });

  it('brings large objects in and out', async () => {
    const content = Buffer.from(Array.from({ length: 100_000 }, (_, n) => (n * 31) % 256));
    await writeFile(join(folder, 'large'), content);
    const { stdout, stderr } = await psql(
      '\\lo_import large a-comment',
      'SELECT length(lo_get(:LASTOID));',
      '\\lo_export :LASTOID large-again',
      '\\lo_unlink :LASTOID',
      'SELECT length(lo_get(:LASTOID));',
    );
    expect(stdout.split('\n')).toContain('100000');
    expect(stderr).toMatch(/^ERROR: {2}large object \d+ does not exist\n$/);
    expect((await readFile(join(folder, 'large-again'))).equals(content)).toBe(true);
  });

  it('hears notifications', async () => {
    expect(await output('LISTEN news;', "NOTIFY news, 'of today';")).toMatch(
      /^Asynchronous notification "news" with payload "of today" received from server process with PID \d+\.$/,
    );
  });

  it('keeps variables and prepared statements, runs what \\gexec makes, and reads in portions', async () => {
    expect(await output('SELECT 42 AS answer \\gset', 'SELECT :answer + 1;')).toBe('43');
    expect(await output("SELECT format('SELECT %s', n) FROM generate_series(1, 3) AS n \\gexec")).toBe('1\n2\n3');
    expect(await output('PREPARE twice AS SELECT $1::int * 2;', 'EXECUTE twice(21);', 'DEALLOCATE twice;')).toBe('42');
    expect(
      await output(
        '\\set FETCH_COUNT 100',
        'SELECT count(*) FROM (SELECT generate_series(1, 1000)) AS n;',
        'SELECT generate_series(1, 301);',
      ),
    ).toMatch(/301$/);
  });

  it('reads scripts as one transaction that stops at the first error', async () => {
    await writeFile(
      join(folder, 'script.sql'),
      'CREATE TABLE from_script (n int);\nINSERT INTO from_script VALUES (1);\nSELECT nowhere;\n',
    );
    const failed = run('psql', ['-q', '-1', '-v', 'ON_ERROR_STOP=1', '-f', 'script.sql'], { env: environment(), cwd: folder });
    await expect(failed).rejects.toMatchObject({ code: 3, stderr: expect.stringContaining('psql:script.sql:3: ERROR:') });
    expect(await output("SELECT to_regclass('from_script') IS NULL;")).toBe('t');
  });

  it('is interrupted by Ctrl-C, and goes on', async () => {
    // `script` gives it a terminal, whose driver turns the control character into a signal.
    const child = spawn('script', ['--quiet', '--command', 'psql --no-align --tuples-only --quiet', '/dev/null'], { env: environment() });
    let screen = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      screen += text;
    });
    const prompt = () => screen.endsWith('=> ');
    await eventually('the prompt', prompt);
    child.stdin.write(`SELECT FROM (${LANDMARK}) AS passed, pg_sleep(60);\n`);
    const watcher = await service.connect(organization);
    await landmarkPassed(watcher);
    child.stdin.write('\x03');
    await eventually('the statement is canceled', () => screen.includes('ERROR:  canceling statement due to user request'));
    await eventually('the prompt', prompt);
    child.stdin.write("SELECT 'still ' || 'here';\n");
    await eventually('it goes on', () => screen.includes('still here'));
    child.stdin.end('\\q\n');
    await Promise.all([watcher.end(), new Promise((resolve) => child.once('close', resolve))]);
  });

  it('is stopped by SIGINT in a script, and the server stops too', async () => {
    const child = spawn('psql', ['--command', `SELECT FROM (${LANDMARK}) AS passed, pg_sleep(60)`], { env: environment() });
    let said = '';
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      said += text;
    });
    const watcher = await service.connect(organization);
    await landmarkPassed(watcher);
    child.kill('SIGINT');
    expect(await new Promise((resolve) => child.once('close', resolve))).toBe(1);
    expect(said).toContain('ERROR:  canceling statement due to user request');
    expect((await watcher.query('SELECT pg_try_advisory_xact_lock(4711) AS free')).rows).toEqual([{ free: true }]);
    await watcher.end();
  });
});
