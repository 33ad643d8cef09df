import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { eventually } from '../support/eventually.ts';
import { type Installation, makeInstallation, type PosternProcess } from '../support/process.ts';
import { makeScratch, type Scratch } from '../support/scratch.ts';

const scratch: Scratch = await makeScratch();
const installation: Installation = await makeInstallation();
const dir = join(scratch.path, 'backups');
const variables = { POSTERN_BACKUP_DIR: dir, POSTERN_BACKUP_VERIFY_HOURS: '0' };
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
  const { apiKey: key } = await first.signUp();
  const rowsOf = async (postern: PosternProcess) => {
    const { body } = await postern.call('POST', '/api/query', { key, body: { sql: 'SELECT count(*)::int AS rows FROM kept' } });
    return Number((body as { rows?: { rows: number }[] }).rows?.[0]?.rows);
  };
  const write = async (postern: PosternProcess, sql = 'INSERT INTO kept SELECT 1') =>
    (await postern.call('POST', '/api/query', { key, body: { sql } })).status === 200;
  expect(await write(first, 'CREATE TABLE kept (number int)')).toBe(true);
  let written = 0;
  const writing = new AbortController();
  const writer = (async () => {
    while (!writing.signal.aborted) if (await write(first).catch(() => false)) written += 1;
  })();
  await eventually('the first base backup', () => first.log().some(({ event }) => event === 'backup.done'));
  expect(await admin('create')).toMatch(/^the base backup of \S+Z is whole: \d+ MB\n$/);
  expect(await metric(first, 'last_success_timestamp_seconds')).toBeGreaterThan(Date.now() / 1_000 - 300);
  expect(await metric(first, 'failures_total')).toBe(0);
  expect(await admin('verify')).toMatch(/^the base backup of \S+Z is good: 1 organizations, \d+ tables of the control database/);
  await first.end('SIGKILL');
  writing.abort();
  await writer;

  const second = await installation.start(variables);
  expect(await rowsOf(second)).toBeGreaterThanOrEqual(written);
  const kept = await rowsOf(second);
  const before = new Date();
  expect(await write(second, 'DROP TABLE kept')).toBe(true);
  await eventually('WAL is archived', async () => (await metric(second, 'wal_lag_bytes')) === 0);
  const listed = JSON.parse(await admin('list', '--json')) as { backups: { verified: string | null; isUsable: boolean }[] }[];
  expect(listed[0]?.backups.map(({ verified, isUsable }) => [verified === null, isUsable])).toEqual([
    [true, true],
    [false, true],
  ]);
  expect(await admin('list')).toMatch(/^server \d+: any time since \S+Z can be restored\nBACKUP /);
  const [system = ''] = await readdir(dir);
  const [base = ''] = await readdir(join(dir, system, 'base'));
  expect((await stat(join(dir, system, 'base', base, 'secret'))).mode & 0o777).toBe(0o600);
  expect(await admin('prune')).toBe('base backups removed: 0\n');

  const to = join(scratch.path, 'restored');
  const words = ['backup', 'restore', '--to', to, '--at', before.toISOString()];
  expect((await installation.admin(words, variables)).stderr).toMatch(/^postern: stop the Postern that runs on the data directory /);
  await second.end('SIGTERM');
  expect((await installation.admin(['backup', 'create'], variables)).stderr).toMatch(/^postern: no Postern that this user can see runs /);
  expect((await installation.admin(['backup', 'restore', '--to', to, '--at', 'yesterday'], variables)).code).toBe(2);
  expect(await admin(...words.slice(1))).toContain(`${to} is restored from the base backup of `);
  const restored = await installation.start({ ...variables, POSTERN_DATA_DIR: to });
  expect(await rowsOf(restored)).toBe(kept);
  // It is on a timeline of its own.
  await eventually('its own base backup', () => restored.log().some(({ event }) => event === 'backup.done'));
  await restored.end('SIGTERM');
});
