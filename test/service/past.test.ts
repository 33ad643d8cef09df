import { readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { findRunningServer } from '../../src/embedded/embedded.ts';
import { withSession } from '../../src/placement/admin-connection.ts';
import { fill, mountDisk } from '../support/disk.ts';
import type { TestOrganization } from '../support/doors.ts';
import { eventually } from '../support/eventually.ts';
import { type Ended, type Installation, makeInstallation, type PosternProcess } from '../support/process.ts';
import { makeScratch, type Scratch } from '../support/scratch.ts';

const scratch: Scratch = await makeScratch();
const installation: Installation = await makeInstallation();
/** Undefined where this user may not mount one: then a full disk is not tried. */
const disk = await mountDisk(join(scratch.path, 'disk'), 2_000);
const dataDir = join(disk?.folder ?? scratch.path, 'data');
const variables = {
  POSTERN_DATA_DIR: dataDir,
  POSTERN_BACKUP_DIR: join(scratch.path, 'backups'),
  POSTERN_BACKUP_VERIFY_HOURS: '1',
};
const past = join(dataDir, 'past');

let postern: PosternProcess;
let acme: TestOrganization;
let other: TestOrganization;
/** In the schema placement. */
let shared: TestOrganization;
/** When they had rows that they have not any more. */
let then: string;

beforeAll(async () => {
  postern = await installation.start(variables);
  [acme, other] = [await postern.signUp('Acme'), await postern.signUp('Other')];
  // Whoever is signed up in a schema lives there whatever the service does with others.
  const made = await admin(['org', 'create', 'Schema', 'schema@acme.test'], { POSTERN_PLACEMENT: 'schema' });
  const [, id = '', apiKey = ''] = /ORG=(\S+) API_KEY=(\S+)/.exec(made.stdout) ?? [];
  shared = { id, apiKey, orgName: 'Schema', email: '' };
  for (const one of [acme, other]) await query(one, 'CREATE TABLE kept AS SELECT generate_series(1, 10) AS number');
  await eventually('the first base backup', () => postern.log().some(({ event }) => event === 'backup.done'));
  then = await moment();
  for (const one of [acme, other]) await query(one, 'DROP TABLE kept');
});
afterAll(async () => {
  await postern.end('SIGTERM');
  await installation.remove();
  await disk?.unmount();
  await scratch.remove();
});

async function query({ apiKey: key }: Pick<TestOrganization, 'apiKey'>, sql: string) {
  const { status, body } = await postern.call('POST', '/api/query', { key, body: { sql } });
  expect({ status, body }).toMatchObject({ status: 200 });
  return body.rows;
}

/** A time after what has been done, and before what will be. */
async function moment(): Promise<string> {
  const at = Date.now() + 1;
  await eventually('it is past', () => Date.now() > at);
  return new Date(at).toISOString();
}

const admin = (words: readonly string[], more: Readonly<Record<string, string>> = {}): Promise<Ended> =>
  installation.admin(words, { ...variables, ...more });

const cloneOf = ({ id }: TestOrganization, time = then) => admin(['org', 'at', id, '--time', time]);

function keyIn({ stdout, stderr }: Ended): { readonly id: string; readonly apiKey: string } {
  expect(stderr).toBe('');
  const [, id = '', apiKey = ''] = /ORG=(\S+) API_KEY=(\S+)\n$/.exec(stdout) ?? [];
  return { id, apiKey };
}

/** As the superuser, in the control database. */
async function control(sql: string, ...values: unknown[]): Promise<void> {
  const { host, port, superuser } = await findRunningServer(dataDir);
  await withSession({ host, port, ...superuser, database: 'postern_control' }, async (session) => {
    await session.query(sql, values);
  });
}

it('the newest base backup is restored for a trial when it is time', async () => {
  await eventually('it is verified', () => postern.log().some(({ event }) => event === 'backup.verified'));
  const verified = postern.log().find(({ event }) => event === 'backup.verified');
  expect(verified).toMatchObject({ backup: expect.stringMatching(/^2.*Z$/), organizations: expect.any(Number) });
});

it('clones of one time share a server, which goes when the last of them has expired', async () => {
  const clones = [keyIn(await cloneOf(acme)), keyIn(await cloneOf(other))];
  for (const clone of clones) expect(await query(clone, 'SELECT count(*)::int AS rows FROM kept')).toEqual([{ rows: 10 }]);
  expect((await readdir(past)).length).toBe(1);
  expect((await admin(['cluster', 'list'])).stdout.match(/^past-\S+/gm)?.length).toBe(1);

  const [first, last] = clones;
  const expire = (id = '') => control("UPDATE postern.clones SET expires_at = now() - interval '1 second' WHERE organization_id = $1", id);
  const isGone = async (id = '') => (await admin(['org', 'show', id])).stdout.includes('dropped');
  await expire(first?.id);
  await eventually('the first one is dropped', () => isGone(first?.id));
  expect(await query(last ?? { apiKey: '' }, 'SELECT count(*)::int AS rows FROM kept')).toEqual([{ rows: 10 }]);
  await expire(last?.id);
  await eventually('the server is removed', async () => (await readdir(past)).length === 0);
  expect((await admin(['cluster', 'list'])).stdout).not.toContain('past-');
});

it.each([
  ['that did not exist', async () => [await postern.signUp('Late'), then, /there was no organization "org_\w+" at /] as const],
  [
    'in the schema placement, where there is no pg_dump',
    async () => [shared, then, /cannot be cloned here: the service needs pg_dump of PostgreSQL 18 or later in PATH/] as const,
  ],
  [
    'at a time before all backups',
    async () => [acme, '2026-01-01T00:00:00Z', /no earlier time can be restored|there was no organization/] as const,
  ],
])('an organization %s is refused before anything is restored', async (_which, make) => {
  const [organization, time, message] = await make();
  const { code, stderr, stdout } = await cloneOf(organization, time);
  expect({ code: code === 0, stdout }).toEqual({ code: false, stdout: '' });
  expect(stderr).toMatch(message);
  expect(await readdir(past).catch(() => [])).toEqual([]);
});

it.runIf(disk !== undefined)('nothing is restored where there is not enough disk', async () => {
  const folder = disk?.folder ?? '';
  // Not so little that organizations cannot be cloned at all.
  await fill(folder, 110 * 1024 * 1024);
  const { code, stderr } = await cloneOf(acme);
  expect(code).not.toBe(0);
  expect(stderr).toMatch(/^postern: there is not enough space for the restored files: \d+ MB are needed, and \d+ MB are free\n$/);
  expect(await readdir(past)).toEqual([]);
  await rm(join(folder, 'filler'));
});

it('an organization that was being moved then is refused, and nothing is left', async () => {
  const elsewhere = `INSERT INTO postern.moves (organization_id, token, other_placement)
    SELECT id, 'test', placement || '{"database": "org_elsewhere"}' FROM postern.organizations WHERE id = $1`;
  await control(elsewhere, acme.id);
  const time = await moment();
  await control('DELETE FROM postern.moves WHERE organization_id = $1', acme.id);
  const { code, stderr } = await cloneOf(acme, time);
  expect(code).not.toBe(0);
  expect(stderr).toMatch(/^postern: organization "org_\w+" was being moved at /);
  await eventually('the restored server is removed', async () => (await readdir(past)).length === 0);
});

it('the newest base backup is restored for a trial by an operator without the service', async () => {
  expect((await postern.end('SIGTERM')).code).toBe(0);
  const verified = await admin(['backup', 'verify']);
  expect(verified).toMatchObject({ code: 0, stderr: '' });
  expect(verified.stdout).toMatch(
    /^the base backup of \S+Z is good: \d+ organizations, \d+ tables of the control database; the last commit/,
  );
  expect((await readdir(dataDir)).filter((name) => name.startsWith('verify-'))).toEqual([]);
});
