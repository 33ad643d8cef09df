import { type ExecFileException, execFile } from 'node:child_process';
import { chown, mkdir, readFile, writeFile } from 'node:fs/promises';
import { userInfo } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import pg from 'pg';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { runAs, serverAccount, startOf } from '../../src/embedded/data-directory.ts';
import { needDebian } from '../clients/debian.ts';
import { textOf } from '../support/documents.ts';
import { eventually } from '../support/eventually.ts';
import { startPostgres15 } from '../support/postgres15.ts';
import { type Installation, makeInstallation, type PosternProcess } from '../support/process.ts';
import { makeScratch, type Scratch } from '../support/scratch.ts';
import { serverUrl } from '../support/server-url.ts';
import type { TestOrganization } from '../support/service.ts';

const run = promisify(execFile);
/** In the documents. */
const TIME = '2026-11-27 09:30:00+00';
const PASSWORD = 'of a tool';

let scratch: Scratch;
let installation: Installation;
let server: Awaited<ReturnType<typeof startPostgres15>>;
/** Ends what a tool has left. */
let ended: (() => Promise<void>)[];
beforeEach(async () => {
  [scratch, installation] = await Promise.all([makeScratch(), makeInstallation()]);
  ended = [];
});
afterEach(async () => {
  for (const end of ended) await end();
  await installation.remove();
  await server?.stop();
  await scratch.remove();
});

/** A folder for the account that the server runs as. */
async function makeFolder(name: string): Promise<string> {
  const path = join(scratch.path, name);
  await mkdir(path, { mode: 0o700 });
  await give(path);
  return path;
}

async function give(path: string): Promise<void> {
  const account = await serverAccount();
  if (account !== undefined) await chown(path, account.uid, account.gid);
}

/** Writes what only the account can read. */
async function keep(name: string, text: string): Promise<string> {
  const path = join(scratch.path, name);
  await writeFile(path, text, { mode: 0o600 });
  await give(path);
  return path;
}

/** Runs the lines of an example as the account. @throws Error with all that the program has said */
async function shell(lines: string, variables: Readonly<Record<string, string>>): Promise<string> {
  const options = { ...runAs(await serverAccount(), { LC_ALL: 'C.UTF-8', ...variables }), maxBuffer: 16 * 1024 * 1024 };
  try {
    const { stdout } = await run('/bin/bash', ['--norc', '-euc', lines], options);
    return stdout;
  } catch (failure) {
    const { stdout, stderr } = failure as ExecFileException & { readonly stdout: string; readonly stderr: string };
    throw new Error(`${lines}\n${stdout}${stderr}`, { cause: failure });
  }
}

async function query(sql: string): Promise<pg.QueryResult> {
  const client = new pg.Client(server);
  await client.connect();
  try {
    return await client.query(sql);
  } finally {
    await client.end();
  }
}

const isSo = async (sql: string): Promise<boolean> => (await query(sql)).rows[0]?.isSo ?? false;

const startPostern = () => installation.start({ DATABASE_URL: serverUrl(server), POSTERN_SECRET: 'of a server with recipes' });

const rowsOf = async (postern: PosternProcess, organization: TestOrganization, table: string) =>
  (await postern.query(organization, `SELECT count(*)::int AS rows FROM ${table}`)).body.rows?.[0]?.rows;

/**
 * Writes before and after a backup, and after a time that is then restored.
 * @param restore @returns the server's folder from then on
 */
async function expectRestored(backUp: () => Promise<void>, restore: (time: string) => Promise<string | undefined>): Promise<void> {
  const before = await startPostern();
  const organization = await before.signUp();
  const write = async (sql: string) => expect((await before.query(organization, sql)).status).toBe(200);
  await write('CREATE TABLE kept AS SELECT generate_series(1, 1000) AS number');
  await backUp();
  // pgBackRest knows the end of a backup by the second.
  const [{ second }] = (await query('SELECT now()::text AS second')).rows;
  await eventually('the next second', () => isSo(`SELECT date_trunc('second', now()) > '${second}' AS "isSo"`));
  await write('INSERT INTO kept SELECT 1001');
  // The server's clock, between two commits.
  const { rows } = await query("SELECT to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US+00') AS time");
  await write('INSERT INTO kept SELECT 1002');
  await write('DROP TABLE kept');
  const later = await before.signUp();
  const [{ position }] = (await query('SELECT pg_switch_wal() AS position')).rows;
  await eventually('the WAL is archived', () => isSo(isArchived(position)));
  expect((await before.end('SIGTERM')).code).toBe(0);
  await server.halt();

  const folder = await restore(rows[0]?.time);
  await server.start(folder);
  await eventually('it has recovered', () => isSo('SELECT NOT pg_is_in_recovery() AS "isSo"'));
  const after = await startPostern();
  expect(await rowsOf(after, organization, 'kept')).toBe(1_001);
  expect((await after.query(later, 'SELECT 1')).status).toBe(401);
  expect((await after.signUp()).id).toMatch(/^org_/);
  expect((await after.end('SIGTERM')).code).toBe(0);
}

/** Whether all up to a position is, by the archiver or by a client that streams. */
let isArchived: (position: string) => string;

describe('the recipe for a server of one’s own', () => {
  it('with pgBackRest', async () => {
    needDebian('pgbackrest', 'postgresql-15');
    const [repository, own] = [await makeFolder('repository'), await makeFolder('own')];
    const configuration = join(scratch.path, 'pgbackrest.conf');
    const here = (text: string) => text.replaceAll('pgbackrest ', `pgbackrest --config=${configuration} `);
    const settings = textOf('With pgBackRest', 'conf').matchAll(/^(\w+) = '?(.*?)'?$/gm);
    server = await startPostgres15(Object.fromEntries([...settings].map(([, name = '', value = '']) => [name, here(value)])));
    const paths = `log-path=${own}\nlock-path=${own}\nspool-path=${own}\nlog-level-file=off`;
    await keep(
      'pgbackrest.conf',
      textOf('With pgBackRest', 'ini')
        .replace('/var/lib/pgbackrest', `${repository}\n${paths}`)
        .replace('/var/lib/postgresql/15/main', `${server.folder}\npg1-socket-path=${server.host}\npg1-user=${server.user}`),
    );
    const variables = { PGPASSWORD: server.password };
    isArchived = (position) => `SELECT last_archived_wal >= pg_walfile_name('${position}') AS "isSo" FROM pg_stat_archiver`;
    await expectRestored(
      async () => {
        await shell(here(textOf('With pgBackRest', 'sh')), variables);
      },
      async (time) => {
        await shell(here(textOf('With pgBackRest', 'bash')).replace(TIME, time), variables);
        return undefined;
      },
    );
  });

  it('with Barman', async () => {
    needDebian('barman', 'postgresql-15', 'postgresql-client-15');
    server = await startPostgres15();
    await query(textOf('With Barman', 'sql').replaceAll('…', PASSWORD));
    const [home, servers] = [await makeFolder('barman'), await makeFolder('barman.d')];
    const ini = textOf('With Barman', 'ini').replaceAll('host=db.example', `host=${server.host}`);
    await keep('barman.d/postern.conf', ini);
    const account = await serverAccount();
    const user = account === undefined ? userInfo().username : (await run('id', ['-nu', String(account.uid)])).stdout.trim();
    const main = await keep(
      'barman.conf',
      `[barman]\nbarman_user = ${user}\nbarman_home = ${home}\nconfiguration_files_directory = ${servers}\nlog_file = ${join(home, 'barman.log')}\n`,
    );
    const passwords = await keep('pgpass', `*:*:*:*:${PASSWORD}\n`);
    const here = (text: string) => text.replaceAll('barman ', `barman -c ${main} `);
    const variables = { PGPASSFILE: passwords, HOME: home };
    ended.push(async () => {
      // cron leaves it running, unless it has noticed the server's end.
      const pid = Number((await readFile(join(home, '.postern-receive-wal.lock'), 'utf8').catch(() => '')).trim());
      if (!(pid > 0) || (await startOf(pid)) === undefined) return;
      process.kill(pid, 'SIGTERM');
      await eventually('it has ended', async () => (await startOf(pid)) === undefined);
    });
    isArchived = (position) => `SELECT bool_or(flush_lsn >= '${position}') AS "isSo" FROM pg_stat_replication`;
    await expectRestored(
      async () => {
        const [cron = '', ...commands] = here(textOf('With Barman', 'sh')).trim().split('\n');
        await shell(cron, variables);
        await eventually('WAL is received', () => isSo('SELECT count(*) > 0 AS "isSo" FROM pg_stat_replication'));
        await shell(commands.join('\n'), variables);
      },
      async (time) => {
        const folder = join(home, 'restored');
        // As cron does it each minute, after the server's end too.
        await shell(here('barman archive-wal postern'), variables);
        await shell(here(textOf('With Barman', 'bash')).replace(TIME, time).replace('/var/lib/postgresql/15/restored', folder), variables);
        return folder;
      },
    );
  });
});
