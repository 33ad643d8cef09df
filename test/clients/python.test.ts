import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startTestService, type TestService } from '../support/service.ts';
import { type DebianPackage, libpqEnvironment, needDebian, runClient } from './debian.ts';

const FOLDER = fileURLToPath(new URL('python', import.meta.url));

/** Each is a file of Python's own unit tests, which run as an organization with few backends. */
const clients: readonly { name: string; module: string; packages: readonly DebianPackage[] }[] = [
  { name: 'psycopg 2', module: 'psycopg2_test', packages: ['python3-psycopg2'] },
  { name: 'psycopg 3', module: 'psycopg3_test', packages: ['python3-psycopg'] },
  { name: 'asyncpg', module: 'asyncpg_test', packages: ['python3-asyncpg'] },
  {
    name: 'SQLAlchemy',
    module: 'sqlalchemy_test',
    packages: ['python3-sqlalchemy', 'python3-psycopg2', 'python3-asyncpg', 'python3-greenlet', 'python3-alembic'],
  },
];

let service: TestService;
beforeAll(async () => {
  service = await startTestService({ POSTERN_BACKENDS_PER_TENANT: '4' });
});
afterAll(() => service.close());

describe.each(clients)('$name', ({ module, packages }) => {
  it('finds all it needs', async () => {
    needDebian(...packages);
    const env = { ...libpqEnvironment(service, await service.signUp()), PYTHONDONTWRITEBYTECODE: '1' };
    const said = await runClient('/usr/bin/python3', ['-W', 'ignore', '-m', 'unittest', '--failfast', module], { env, cwd: FOLDER });
    expect(said).toMatch(/\nRan \d+ tests in .*\n\nOK\n$/);
  });
});
