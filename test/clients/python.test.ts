import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { PLACEMENT, startTestService, type TestService } from '../support/service.ts';
import { type DebianPackage, libpqEnvironment, needDebian, runClient } from './debian.ts';

const FOLDER = fileURLToPath(new URL('python', import.meta.url));

interface PythonClient {
  readonly name: string;
  readonly module: string;
  readonly packages: readonly DebianPackage[];
  /** It makes schemas or extensions. */
  readonly needsDatabase?: true;
}

/** Each is a file of Python's own unit tests, which run as an organization with few backends. */
const clients: readonly PythonClient[] = [
  { name: 'psycopg 2', module: 'psycopg2_test', packages: ['python3-psycopg2'], needsDatabase: true },
  { name: 'psycopg 3', module: 'psycopg3_test', packages: ['python3-psycopg'] },
  { name: 'asyncpg', module: 'asyncpg_test', packages: ['python3-asyncpg'], needsDatabase: true },
  { name: 'Django', module: 'django_test', packages: ['python3-django', 'python3-psycopg2'] },
  {
    name: 'SQLAlchemy',
    module: 'sqlalchemy_test',
    packages: ['python3-sqlalchemy', 'python3-psycopg2', 'python3-asyncpg', 'python3-greenlet', 'python3-alembic'],
  },
];

/** SQL that takes away all that an earlier test has made. */
const EMPTY_PLACE = {
  database: 'DROP SCHEMA public CASCADE; CREATE SCHEMA public',
  schema: 'SET client_min_messages = error; DROP OWNED BY CURRENT_USER CASCADE; RESET client_min_messages',
}[PLACEMENT];

let service: TestService;
beforeAll(async () => {
  service = await startTestService({ POSTERN_BACKENDS_PER_TENANT: '4' });
});
afterAll(() => service.close());

describe.each(clients.filter(({ needsDatabase }) => PLACEMENT === 'database' || !needsDatabase))('$name', ({ module, packages }) => {
  it('finds all it needs', async () => {
    needDebian(...packages);
    const env = { ...libpqEnvironment(service, await service.signUp()), PYTHONDONTWRITEBYTECODE: '1', EMPTY_PLACE };
    const said = await runClient('/usr/bin/python3', ['-W', 'ignore', '-m', 'unittest', '--failfast', module], { env, cwd: FOLDER });
    expect(said).toMatch(/\nRan [1-9]\d* tests in .*\n\nOK\n$/);
  });
});
