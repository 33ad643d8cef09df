import { createHash } from 'node:crypto';
import { cp, readFile, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { PrismaPg } from '@prisma/adapter-pg';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { makeScratch, type Scratch } from '../support/scratch.ts';
import { PLACEMENTS, startTestService, type TestOrganization, type TestService } from '../support/service.ts';
import { addressOf, closeAfterClients, failureOf, urlOf } from './address.ts';
import { runClient } from './debian.ts';
import { withSchemaEngine } from './prisma/schema-engine.ts';

const FOLDER = fileURLToPath(new URL('prisma', import.meta.url));
const MODULES = fileURLToPath(new URL('node_modules', import.meta.url));
const COMMAND = join(MODULES, 'prisma/build/index.js');
const LATER = 'CREATE TABLE later (n int); INSERT INTO later VALUES (1);';
/** Without it, it prepares nothing: a name for each text. */
const PREPARING = { statementNameGenerator: ({ sql }: { readonly sql: string }) => createHash('md5').update(sql).digest('hex') };

let scratch: Scratch;
let service: TestService;
let organization: TestOrganization;
let schemaName: string;
/** As developers make it, who know of no organization. */
let migration: string;
const filters = { externalTables: [], externalEnums: [] };

beforeAll(async () => {
  scratch = await makeScratch();
  await cp(FOLDER, scratch.path, { recursive: true });
  await symlink(MODULES, join(scratch.path, 'node_modules'));
  // The engine that it would look for is one that it does not need for this.
  const env = { PATH: process.env.PATH, PRISMA_SCHEMA_ENGINE_BINARY: process.execPath, CHECKPOINT_DISABLE: '1' };
  await runClient(process.execPath, [COMMAND, 'generate'], { env, cwd: scratch.path });
  migration = await readFile(join(FOLDER, 'migration.sql'), 'utf8');
});
afterAll(() => scratch.remove());

/** What `prisma migrate deploy` does. */
function migrate(later: readonly string[] = []): Promise<readonly string[]> {
  return withSchemaEngine(urlOf(service, organization), schemaName, async (engine) => {
    const migrationDirectories = [migration, ...later].map((sql, index) => ({
      path: String(index + 1),
      migrationFile: { path: 'migration.sql', content: { tag: 'ok', value: sql } as const },
    }));
    const lockfile = { path: 'migration_lock.toml', content: 'provider = "postgresql"\n' };
    const migrationsList = { baseDir: '.', lockfile, shadowDbInitScript: '', migrationDirectories };
    return (await engine.applyMigrations({ migrationsList, filters })).appliedMigrationNames;
  });
}

it('prisma makes a migration of a schema', async () => {
  service = await startTestService();
  organization = await service.signUp();
  const files = [{ path: 'schema.prisma', content: await readFile(join(FOLDER, 'schema.prisma'), 'utf8') }];
  const to = { tag: 'schemaDatamodel', files } as const;
  const made = await withSchemaEngine(urlOf(service, organization), 'public', (engine) =>
    engine.diff({ from: { tag: 'empty' }, to, script: true, exitCode: null, filters }),
  );
  expect(made.stdout).toBe(migration);
  await closeAfterClients(service);
});

describe.each(PLACEMENTS)('prisma, placement %s', (placement) => {
  beforeAll(async () => {
    service = await startTestService({ POSTERN_BACKENDS_PER_TENANT: '4', POSTERN_PLACEMENT: placement });
  });
  afterAll(() => closeAfterClients(service));
  beforeEach(async () => {
    organization = await service.signUp();
    schemaName = placement === 'schema' ? organization.id : 'public';
  });

  it('migrates once, and goes on with what is new', async () => {
    expect(await migrate()).toEqual(['1']);
    expect(await migrate()).toEqual([]);
    expect(await migrate([LATER])).toEqual(['2']);
    expect(await failureOf(migrate([LATER, 'ALTER TABLE nowhere ADD n int']))).toMatchObject({
      message: expect.stringContaining('No such table: nowhere'),
    });
    const { body } = await service.query(
      organization,
      'SELECT migration_name AS name, finished_at IS NOT NULL AS done FROM _prisma_migrations ORDER BY 1',
    );
    expect(body.rows).toEqual([
      { name: '1', done: true },
      { name: '2', done: true },
      { name: '3', done: false },
    ]);
  });

  describe('client', () => {
    // Its types are made at the same time as itself.
    let prisma: Awaited<ReturnType<typeof open>>;
    beforeEach(async () => {
      await migrate();
      prisma = await open();
    });
    afterEach(() => prisma.$disconnect());

    async function open(settings = {}) {
      const { PrismaClient } = await import(/* @vite-ignore */ pathToFileURL(join(scratch.path, 'generated/client.ts')).href);
      const adapter = new PrismaPg({ ...addressOf(service, organization), max: 10, ...settings }, PREPARING);
      // Of its own accord it gives a transaction up after five seconds.
      return new PrismaClient({ adapter, transactionOptions: { maxWait: 250_000, timeout: 250_000 } });
    }

    it('keeps values of many types', async () => {
      const book = {
        title: 'äöü 😀 \\ \' " \n',
        price: '1234567890.12',
        copies: 9_223_372_036_854_775_807n,
        weight: 1.5e300,
        tags: ['a', 'b,c', 'd"e\\'],
        data: { a: [1, null, { b: 'c' }] },
        cover: new Uint8Array([0, 1, 2, 255]),
        printedOn: new Date('2025-01-31'),
        addedAt: new Date('2025-01-31T09:30:00.123Z'),
      };
      await prisma.author.create({ data: { name: 'Ada', books: { create: [book, { title: 'second' }] } } });
      const ada = await prisma.author.findUniqueOrThrow({ where: { name: 'Ada' }, include: { books: { orderBy: { addedAt: 'asc' } } } });
      expect(ada).toMatchObject({
        id: 1,
        mood: 'happy',
        books: [
          { ...book, price: expect.anything() },
          { title: 'second', tags: [] },
        ],
      });
      expect(String(ada.books[0].price)).toBe(book.price);
      expect(await prisma.book.count({ where: { data: { path: ['a', '0'], equals: 1 }, tags: { has: 'b,c' } } })).toBe(1);
      expect(await prisma.author.upsert({ where: { name: 'Ada' }, create: { name: 'Ada' }, update: { mood: 'sad' } })).toMatchObject({
        id: 1,
        mood: 'sad',
      });
      expect(await prisma.$queryRaw`SELECT ${1}::int + 1 AS n, now() > ${new Date(0)} AS later`).toEqual([{ n: 2, later: true }]);
      await prisma.author.delete({ where: { id: 1 } });
      expect(await prisma.book.count()).toBe(0);
    });

    it('runs transactions, and reports errors with their codes', async () => {
      await prisma.$transaction([prisma.author.create({ data: { name: 'Ada' } }), prisma.author.create({ data: { name: 'Grace' } })]);
      const batch = prisma.$transaction([
        prisma.author.create({ data: { name: 'dropped' } }),
        prisma.author.create({ data: { name: 'Ada' } }),
      ]);
      expect(await failureOf(batch)).toMatchObject({ code: 'P2002' });
      const interactive = prisma.$transaction(
        async (transaction: typeof prisma) => {
          await transaction.author.create({ data: { name: 'dropped' } });
          const [{ level }] = await transaction.$queryRaw`SELECT current_setting('transaction_isolation') AS level`;
          throw new Error(level);
        },
        { isolationLevel: 'Serializable' },
      );
      expect(await failureOf(interactive)).toMatchObject({ message: 'serializable' });
      expect(await failureOf(prisma.book.create({ data: { title: '', authorId: 999 } }))).toMatchObject({ code: 'P2003' });
      expect(await failureOf(prisma.$queryRaw`SELECT nowhere`)).toMatchObject({ code: 'P2010', message: expect.stringContaining('42703') });
      expect(await prisma.author.findMany({ select: { name: true }, orderBy: { id: 'asc' } })).toEqual([
        { name: 'Ada' },
        { name: 'Grace' },
      ]);
    });

    it('gives up when it is told to', async () => {
      const hasty = await open({ statement_timeout: 5_000 });
      const message = expect.stringContaining('57014');
      expect(await failureOf(hasty.$queryRaw`SELECT pg_sleep(60)::text`)).toMatchObject({ code: 'P2010', message });
      await hasty.$disconnect();
    });

    it('works on more connections than there are backends', async () => {
      await prisma.author.createMany({ data: Array.from({ length: 300 }, (_, n) => ({ name: `name ${n}` })) });
      const find = (n: number) => prisma.author.findUnique({ where: { name: `name ${n}` }, include: { books: true } });
      const found = await Promise.all(Array.from({ length: 300 }, (_, n) => find(n)));
      expect(found.map(({ name }: { name: string }) => name)).toEqual(Array.from({ length: 300 }, (_, n) => `name ${n}`));
      const rename = (n: number) =>
        prisma.$transaction(async (transaction: typeof prisma) => {
          const { id } = await transaction.author.findUniqueOrThrow({ where: { name: `name ${n}` } });
          await transaction.author.update({ where: { id }, data: { name: `renamed ${n}` } });
        });
      await Promise.all(Array.from({ length: 40 }, (_, n) => rename(n)));
      expect(await prisma.author.count({ where: { name: { startsWith: 'renamed' } } })).toBe(40);
    });
  });
});
