import { symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterAll, afterEach, beforeAll, expect, it, vi } from 'vitest';
import { atService, exportedVariables, REPOSITORY, textOf } from '../support/documents.ts';
import { makeScratch, type Scratch } from '../support/scratch.ts';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';
import { closeAfterClients } from './address.ts';
import { needDebian, runClient } from './debian.ts';

/** What `prisma db pull` makes of the README's table. */
const SCHEMA = `
datasource db {
  provider = "postgresql"
}
generator client {
  provider               = "prisma-client"
  moduleFormat           = "esm"
  output                 = "generated"
  importFileExtension    = "ts"
  generatedFileExtension = "ts"
}
model orders {
  id        BigInt   @id @default(autoincrement())
  customer  String
  total     Decimal  @db.Decimal(10, 2)
  placed_at DateTime @default(now()) @db.Timestamptz(6)
}
`;

let scratch: Scratch;
let service: TestService;
let organization: TestOrganization;
beforeAll(async () => {
  scratch = await makeScratch();
  service = await startTestService();
  organization = await service.signUp();
  const client = await service.connect(organization);
  await client.query(textOf('psql', 'sql'));
  await client.end();
});
afterAll(async () => {
  await closeAfterClients(service);
  await scratch.remove();
});
afterEach(() => {
  vi.restoreAllMocks();
  vi.unstubAllEnvs();
});

const here = (section: string, language: string) => atService(textOf(section, language), service, organization);
const env = () => exportedVariables(service, organization);

it('connects from an ORM as the README says', async () => {
  await symlink(join(REPOSITORY, 'test/clients/node_modules'), join(scratch.path, 'node_modules'));
  await writeFile(join(scratch.path, 'orders.mjs'), here('An ORM', 'js'));
  const printed = await runClient(process.execPath, [join(scratch.path, 'orders.mjs')], { env: env() });
  expect(printed.match(/customer: '\w+',\s+total: '[\d.]+'/g)).toHaveLength(3);
  expect(printed).toMatch(/\{ id: 3, customer: 'ada', total: '20\.00' \}/);
});

it('connects from Python as the README says', async () => {
  needDebian('python3-psycopg');
  expect(await runClient('/usr/bin/python3', ['-c', here('Python (psycopg 3)', 'python')], { env: env() })).toBe("('grace',)\n");
});

it('connects from Java as the README says', async () => {
  needDebian('default-jdk-headless', 'libpostgresql-jdbc-java');
  const body = `public class Orders { public static void main(String[] words) throws Exception {\n${here('Java (JDBC)', 'java')}} }\n`;
  const source = join(scratch.path, 'Orders.java');
  await writeFile(source, `import java.sql.DriverManager;\n${body}`);
  expect(await runClient('java', ['-cp', '/usr/share/java/postgresql.jar', source], { env: env() })).toBe('grace\n');
});

it('connects from Prisma as the README says', async () => {
  const modules = join(scratch.path, 'node_modules');
  await writeFile(join(scratch.path, 'schema.prisma'), SCHEMA);
  await writeFile(join(scratch.path, 'orders.ts'), here('Prisma', 'ts'));
  // The engine that it would look for is one that it does not need for this.
  const quiet = { PATH: process.env.PATH, PRISMA_SCHEMA_ENGINE_BINARY: process.execPath, CHECKPOINT_DISABLE: '1' };
  await runClient(process.execPath, [join(modules, 'prisma/build/index.js'), 'generate'], { env: quiet, cwd: scratch.path });
  vi.stubEnv('DATABASE_URL', env().DATABASE_URL);
  const printed = vi.spyOn(console, 'log').mockReturnValue();
  await import(/* @vite-ignore */ pathToFileURL(join(scratch.path, 'orders.ts')).href);
  expect(printed.mock.calls).toEqual([[[{ customer: 'grace' }]]]);
});
