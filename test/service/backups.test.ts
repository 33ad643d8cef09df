import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import pg from 'pg';
import { afterAll, expect, it } from 'vitest';
import { eventually } from '../support/eventually.ts';
import { type Installation, makeInstallation, type PosternProcess } from '../support/process.ts';
import { makeScratch, type Scratch } from '../support/scratch.ts';

const scratch: Scratch = await makeScratch();
const installation: Installation = await makeInstallation();
const dir = join(scratch.path, 'backups');
const KEY = 'the key of the operators';
const variables = { POSTERN_BACKUP_DIR: dir, POSTERN_BACKUP_VERIFY_HOURS: '0', POSTERN_OPERATOR_KEY: KEY };
afterAll(async () => {
  await installation.remove();
  await scratch.remove();
});

async function admin(...words: string[]): Promise<string> {
  const { code, stdout, stderr } = await installation.admin(['backup', ...words], variables);
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  return stdout;
}

async function metric(postern: PosternProcess, name: string): Promise<number> {
  const text = await (await fetch(`${postern.opsUrl}/metrics`)).text();
  return Number(new RegExp(`^postern_backup_${name}(?:\\{[^}]*\\})? (\\S+)$`, 'm').exec(text)?.[1]);
}

it('an organization is as it was at a time, after kills and with all workers writing', { timeout: 280_000 }, async () => {
  const first = await installation.start({ ...variables, POSTERN_WORKERS: '2' });
  const { id, apiKey: key } = await first.signUp();
  const query = async (postern: PosternProcess, sql: string, of = key) => {
    const { status, body } = await postern.call('POST', '/api/query', { key: of, body: { sql } });
    return { status, rows: (body as { rows?: { rows: number }[] }).rows };
  };
  const rowsOf = async (postern: PosternProcess, table: string, of = key) =>
    (await query(postern, `SELECT count(*)::int AS rows FROM ${table}`, of)).rows?.[0]?.rows;
  await query(first, 'CREATE TABLE written (number int)');
  await query(first, 'CREATE TABLE kept AS SELECT generate_series(1, 1000) AS number');
  let written = 0;
  const writing = new AbortController();
  const writer = (async () => {
    while (!writing.signal.aborted) {
      const { status } = await query(first, 'INSERT INTO written SELECT 1').catch(() => ({ status: 0 }));
      if (status === 200) written += 1;
    }
  })();
  await eventually('the first base backup', () => first.log().some(({ event }) => event === 'backup.done'));
  const before = new Date();
  await query(first, 'DROP TABLE kept');
  const at = await installation.admin(['org', 'at', id, '--time', before.toISOString(), '--name', 'as it was'], variables);
  const [, clone = '', apiKey = ''] = /ORG=(\S+) API_KEY=(\S+)\n$/.exec(at.stdout) ?? [];
  expect(at.stderr).toBe('');
  expect(await rowsOf(first, 'kept', apiKey)).toBe(1_000);
  expect(await rowsOf(first, 'kept')).toBeUndefined();
  expect(await admin('create')).toMatch(/^the base backup of \S+Z is whole: \d+ MB\n$/);
  await eventually('it is measured', async () => (await metric(first, 'last_success_timestamp_seconds')) > before.getTime() / 1_000);
  expect(await metric(first, 'failures_total')).toBe(0);
  await first.end('SIGKILL');
  writing.abort();
  await writer;

  const second = await installation.start(variables);
  expect(await rowsOf(second, 'written')).toBeGreaterThanOrEqual(written);
  await eventually('the restored server is started again', async () => (await rowsOf(second, 'kept', apiKey)) === 1_000);
  const past = join(installation.dataDir, 'past');
  expect((await readdir(past)).length).toBe(1);
  expect((await installation.admin(['org', 'drop', clone, '--yes'], variables)).code).toBe(0);
  await eventually('the restored server is removed', async () => (await readdir(past)).length === 0);
  expect((await installation.admin(['cluster', 'list'], variables)).stdout).not.toContain('past-');

  await eventually('WAL is archived', async () => (await metric(second, 'wal_lag_bytes')) === 0);
  expect(await admin('verify')).toMatch(/^the base backup of \S+Z is good: 2 organizations, \d+ tables of the control database/);
  const listed = JSON.parse(await admin('list', '--json')) as { backups: { verified: string | null; isUsable: boolean }[] }[];
  expect(listed[0]?.backups.map(({ verified, isUsable }) => [verified === null, isUsable])).toEqual([
    [true, true],
    [false, true],
  ]);
  const [system = ''] = await readdir(dir);
  const console = new pg.Client({ host: '127.0.0.1', port: second.wirePort, user: 'operator', database: 'postern', password: KEY });
  await console.connect();
  expect((await console.query('SHOW BACKUPS ORDER BY backup')).rows).toMatchObject([
    { system_identifier: system, verified: null, usable: 1, major: 18 },
    { system_identifier: system, verified: expect.stringMatching(/Z$/), usable: 1, timeline: 1, bytes: expect.stringMatching(/^\d{7,}$/) },
  ]);
  await console.end();
  const [base = ''] = await readdir(join(dir, system, 'base'));
  expect((await stat(join(dir, system, 'base', base, 'secret'))).mode & 0o777).toBe(0o600);

  const to = join(scratch.path, 'restored');
  const words = ['restore', '--to', to, '--at', before.toISOString()];
  const { stderr } = await installation.admin(['backup', ...words], variables);
  expect(stderr).toMatch(/^postern: stop the Postern that runs on the data directory /);
  await second.end('SIGTERM');
  expect(await admin('list')).toMatch(/^server \d+: any time since \S+Z can be restored\nBACKUP /);
  expect(await admin('prune')).toBe('base backups removed: 0\n');
  expect(await admin(...words)).toContain(`${to} is restored from the base backup of `);
  const restored = await installation.start({ ...variables, POSTERN_DATA_DIR: to });
  expect(await rowsOf(restored, 'kept')).toBe(1_000);
  // It is on a timeline of its own.
  await eventually('its own base backup', () => restored.log().some(({ event }) => event === 'backup.done'));
  await restored.end('SIGTERM');
});
