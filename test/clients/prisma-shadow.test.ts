import { readFile } from 'node:fs/promises';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';
import { closeAfterClients, urlOf } from './address.ts';
import { withSchemaEngine } from './prisma/schema-engine.ts';

const SCHEMA = new URL('prisma/schema.prisma', import.meta.url);
const filters = { externalTables: [], externalEnums: [] };

let service: TestService;
let organization: TestOrganization;
let shadowUrl: string;
beforeAll(async () => {
  service = await startTestService({ POSTERN_PLACEMENT: 'database' });
  organization = await service.signUp();
});
afterAll(() => closeAfterClients(service));

interface MadeMigration {
  readonly name: string;
  readonly sql: string;
}

/** What `prisma migrate dev` does, with `shadowDatabaseUrl`: makes and applies a migration if the schema needs one. */
function migrateDev(content: string, migrations: readonly MadeMigration[]) {
  const list = (made: readonly MadeMigration[]) => ({
    baseDir: '.',
    lockfile: { path: 'migration_lock.toml', content: 'provider = "postgresql"\n' },
    shadowDbInitScript: '',
    migrationDirectories: made.map(({ name, sql }) => ({
      path: name,
      migrationFile: { path: 'migration.sql', content: { tag: 'ok', value: sql } as const },
    })),
  });
  return withSchemaEngine(
    urlOf(service, organization),
    'public',
    async (engine) => {
      const { action } = await engine.devDiagnostic({ migrationsList: list(migrations), filters });
      if (action.tag === 'reset') return { reset: action.reason };
      const { migrationScript: sql } = await engine.createMigration({
        draft: false,
        migrationName: 'made',
        migrationsList: list(migrations),
        schema: { files: [{ path: 'schema.prisma', content }] },
        filters,
      });
      if (!sql) return { applied: [] };
      const made = [...migrations, { name: String(migrations.length + 1), sql }];
      const { appliedMigrationNames: applied } = await engine.applyMigrations({ migrationsList: list(made), filters });
      return { applied, made };
    },
    shadowUrl,
  );
}

it('prisma migrate dev has a clone as its shadow database', async () => {
  await service.query(organization, 'CREATE TABLE mine (n int)');
  const { status, body } = await service.call('POST', '/api/clones', { key: organization.apiKey, body: { name: 'shadow' } });
  expect(status).toBe(201);
  shadowUrl = body.connectionString;
  await service.query(organization, 'DROP TABLE mine');
  const schema = await readFile(SCHEMA, 'utf8');

  const first = await migrateDev(schema, []);
  expect(first).toMatchObject({ applied: ['1'], made: [{ sql: expect.stringContaining('CREATE TABLE "Author"') }] });
  expect(await migrateDev(schema, first.made ?? [])).toEqual({ applied: [] });

  const more = await migrateDev(`${schema}\nmodel Later {\n  id Int @id\n}\n`, first.made ?? []);
  expect(more).toMatchObject({ applied: ['2'], made: [{}, { sql: expect.stringContaining('CREATE TABLE "Later"') }] });
  expect(more.made?.[1]?.sql).not.toContain('Author');

  // The clone shows what the organization's own database has beyond the migrations.
  await service.query(organization, 'CREATE TABLE beyond (n int)');
  expect(await migrateDev(schema, more.made ?? [])).toMatchObject({ reset: expect.stringContaining('beyond') });
  expect((await service.query(organization, 'SELECT count(*)::int FROM "Later"')).body.rows).toEqual([{ count: 0 }]);
});
