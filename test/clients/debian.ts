import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { promisify } from 'node:util';
import type { TestOrganization, TestService } from '../support/service.ts';

const run = promisify(execFile);

/** Clients and servers that Debian packages, and a file that each package brings. */
const FILES = {
  barman: '/usr/bin/barman',
  'default-jdk-headless': '/usr/bin/javac',
  'etcd-server': '/usr/bin/etcd',
  haproxy: '/usr/sbin/haproxy',
  'libpostgresql-jdbc-java': '/usr/share/java/postgresql.jar',
  patroni: '/usr/bin/patroni',
  pgbackrest: '/usr/bin/pgbackrest',
  'postgresql-15': '/usr/lib/postgresql/15/bin/pgbench',
  'postgresql-client-15': '/usr/lib/postgresql/15/bin/pg_dump',
  'python3-alembic': '/usr/lib/python3/dist-packages/alembic/__init__.py',
  'python3-asyncpg': '/usr/lib/python3/dist-packages/asyncpg/__init__.py',
  'python3-django': '/usr/lib/python3/dist-packages/django/__init__.py',
  'python3-greenlet': '/usr/lib/python3/dist-packages/greenlet/__init__.py',
  'python3-psycopg': '/usr/lib/python3/dist-packages/psycopg/__init__.py',
  'python3-psycopg2': '/usr/lib/python3/dist-packages/psycopg2/__init__.py',
  'python3-sqlalchemy': '/usr/lib/python3/dist-packages/sqlalchemy/__init__.py',
};
export type DebianPackage = keyof typeof FILES;

/** @throws Error of one line that says what to install */
export function needDebian(...packages: readonly DebianPackage[]): void {
  const missing = packages.filter((name) => !existsSync(FILES[name]));
  if (missing.length > 0) throw new Error(`missing packages of Debian: apt-get install --no-install-recommends ${missing.join(' ')}`);
}

/** What libpq, and what goes by its example, reads to know where to connect. */
export function libpqEnvironment({ wirePort }: TestService, { id, apiKey }: TestOrganization): NodeJS.ProcessEnv {
  return {
    PATH: process.env.PATH,
    LC_ALL: 'C.UTF-8',
    PGHOST: '127.0.0.1',
    PGPORT: String(wirePort),
    PGUSER: id,
    PGDATABASE: id,
    PGPASSWORD: apiKey,
  };
}

/** @throws Error with all that the program has said, when it does not end well */
export async function runClient(
  program: string,
  words: readonly string[],
  options: { readonly env: NodeJS.ProcessEnv; readonly cwd?: string },
): Promise<string> {
  try {
    const { stdout, stderr } = await run(program, words, { ...options, maxBuffer: 64 * 1024 * 1024 });
    return stdout + stderr;
  } catch (failure) {
    const { stdout = '', stderr = '', message } = failure as { stdout?: string; stderr?: string; message: string };
    throw new Error(`${message.split('\n', 1)[0]}\n${stdout}${stderr}`, { cause: failure });
  }
}
