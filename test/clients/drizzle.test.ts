import { appendFile, mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { asc, eq, sql as raw } from 'drizzle-orm';
import { drizzle as overPg } from 'drizzle-orm/node-postgres';
import { migrate as migrateOverPg } from 'drizzle-orm/node-postgres/migrator';
import type { PgDatabase, PgQueryResultHKT } from 'drizzle-orm/pg-core';
import { drizzle as overPostgres } from 'drizzle-orm/postgres-js';
import { migrate as migrateOverPostgres } from 'drizzle-orm/postgres-js/migrator';
import pg from 'pg';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';
import { addressOf, closeAfterClients, failureOf, urlOf } from './address.ts';
import { runClient } from './debian.ts';
import { authors, books, places, shelf } from './drizzle/schema.ts';

const FOLDER = fileURLToPath(new URL('drizzle', import.meta.url));
const KIT = fileURLToPath(new URL('node_modules/drizzle-kit/bin.cjs', import.meta.url));

let service: TestService;
let organization: TestOrganization;
let out: string;
beforeAll(async () => {
  service = await startTestService({ POSTERN_BACKENDS_PER_TENANT: '4' });
});
afterAll(() => closeAfterClients(service));
beforeEach(async () => {
  organization = await service.signUp();
  out = await mkdtemp(join(tmpdir(), 'postern-drizzle-'));
});
afterEach(() => rm(out, { recursive: true }));

/** Runs `drizzle-kit`, which ends well even when it has failed. */
async function kit(command: string, ...schemas: readonly string[]): Promise<string> {
  const env = {
    PATH: process.env.PATH,
    DRIZZLE_URL: urlOf(service, organization),
    DRIZZLE_SCHEMA: ['schema.ts', ...schemas].map((name) => join(FOLDER, name)).join(),
    DRIZZLE_OUT: relative(FOLDER, out),
  };
  const said = await runClient(process.execPath, [KIT, command, '--config', 'config.ts'], { env, cwd: FOLDER });
  expect(said).not.toMatch(/error/i);
  return said;
}

async function tables(): Promise<string[]> {
  const { body } = await service.query(
    organization,
    "SELECT schemaname || '.' || tablename AS name FROM pg_tables WHERE schemaname IN ('public', 'stock') ORDER BY 1",
  );
  return body.rows.map(({ name }: { name: string }) => name);
}

describe('drizzle-kit', () => {
  it('generates migrations and applies them, one after the other', async () => {
    await kit('generate');
    expect(await kit('migrate')).toContain('migrations applied successfully');
    expect(await tables()).toEqual(['public.authors', 'public.books', 'stock.places']);
    await kit('generate', 'readers.ts');
    await kit('migrate', 'readers.ts');
    expect(await tables()).toEqual(['public.authors', 'public.books', 'public.readers', 'stock.places']);
    expect((await service.query(organization, 'SELECT id FROM drizzle.__drizzle_migrations')).body.rowCount).toBe(2);
  });

  it('pushes a schema, and finds it unchanged', async () => {
    expect(await kit('push')).toContain('Changes applied');
    expect(await kit('push')).toContain('No changes detected');
    expect(await kit('push', 'readers.ts')).toContain('Changes applied');
    expect(await tables()).toEqual(['public.authors', 'public.books', 'public.readers', 'stock.places']);
  });

  it('introspects what is there', async () => {
    await kit('push');
    await kit('introspect');
    const found = await readFile(join(out, 'schema.ts'), 'utf8');
    for (const expected of [
      `mood = pgEnum("mood", ['sad', 'happy'])`,
      'price: numeric({ precision: 12, scale:  2 })',
      'check("affordable", sql`price >= (0)::numeric`)',
      'index("by_title").using("btree", table.title.desc()',
      'foreignColumns: [authors.id]',
      '.onDelete("cascade")',
      'shelf = pgView("shelf"',
      'placesInStock = stock.table("places"',
    ]) {
      expect(found).toContain(expected);
    }
  });
});

interface Driver {
  readonly db: PgDatabase<PgQueryResultHKT>;
  /** As programs do it when they start. */
  migrate(): Promise<void>;
  end(): Promise<void>;
}

const drivers: readonly { name: string; open: () => Driver }[] = [
  {
    name: 'pg',
    open: () => {
      const pool = new pg.Pool({ ...addressOf(service, organization), max: 10 });
      const db = overPg(pool);
      return { db, migrate: () => migrateOverPg(db, { migrationsFolder: out }), end: () => pool.end() };
    },
  },
  {
    name: 'postgres',
    open: () => {
      const sql = service.sql(organization, { max: 10 });
      const db = overPostgres(sql);
      return { db, migrate: () => migrateOverPostgres(db, { migrationsFolder: out }), end: () => sql.end() };
    },
  },
];

describe.each(drivers)('drizzle migrates over $name', ({ open }) => {
  it('once, and leaves nothing behind of what fails', async () => {
    const driver = open();
    await kit('generate');
    await driver.migrate();
    await driver.migrate();
    await kit('generate', 'readers.ts');
    const [last = ''] = (await readdir(out)).filter((name) => name.startsWith('0001_'));
    await appendFile(join(out, last), '--> statement-breakpoint\nALTER TABLE nowhere ADD n int');
    expect(((await failureOf(driver.migrate())) as Error).cause).toMatchObject({ code: '42P01' });
    expect(await tables()).toEqual(['public.authors', 'public.books', 'stock.places']);
    await driver.end();
  });
});

describe.each(drivers)('drizzle over $name', ({ open }) => {
  let driver: Driver;
  beforeEach(async () => {
    await kit('push');
    driver = open();
  });
  afterEach(() => driver.end());

  it('keeps values of many types', async () => {
    const { db } = driver;
    const [ada] = await db.insert(authors).values({ name: 'Ada' }).returning();
    expect(ada).toEqual({ id: 1, name: 'Ada', mood: 'happy' });
    const book = {
      authorId: 1,
      title: 'äöü 😀 \\ \' " \n',
      price: '1234567890.12',
      copies: 9_223_372_036_854_775_807n,
      weight: 1.5e300,
      lent: true,
      tags: ['a', 'b,c', 'd"e\\'],
      data: { a: [1, null, { b: 'c' }] },
      cover: Buffer.from([0, 1, 2, 255]),
      printedOn: '2025-01-31',
      addedAt: new Date('2025-01-31T09:30:00.123Z'),
      lentFor: '3 days 02:00:00',
      from: '192.0.2.1',
    };
    const [inserted] = await db.insert(books).values(book).returning();
    expect(inserted).toMatchObject(book);
    const [found] = await db.select().from(books).innerJoin(authors, eq(authors.id, books.authorId));
    expect(found).toEqual({ authors: ada, books: inserted });
    expect(await db.select().from(shelf)).toEqual([{ title: book.title }]);
    await db
      .insert(places)
      .values({ id: 1, name: 'top' })
      .onConflictDoUpdate({ target: places.id, set: { name: 'bottom' } });
    expect(await db.$count(places)).toBe(1);
  });

  it('nests transactions, and reports errors with their codes', async () => {
    const { db } = driver;
    await db.transaction(
      async (transaction) => {
        await transaction.insert(authors).values({ name: 'Ada' });
        const failure = await failureOf(
          transaction.transaction((inner) => inner.insert(authors).values([{ name: 'Grace' }, { name: 'Ada' }])),
        );
        expect((failure as Error).cause).toMatchObject({ code: '23505', detail: 'Key (name)=(Ada) already exists.' });
        const [level] = await transaction
          .select({ level: raw<string>`current_setting('transaction_isolation')` })
          .from(raw`(SELECT 1) AS one`);
        expect(level).toEqual({ level: 'serializable' });
      },
      { isolationLevel: 'serializable' },
    );
    const failure = await failureOf(db.insert(books).values({ authorId: 1, title: '', price: '-1' }));
    expect((failure as Error).cause).toMatchObject({ code: '23514' });
    expect(await db.select({ name: authors.name }).from(authors)).toEqual([{ name: 'Ada' }]);
  });

  it('runs prepared queries on any connection', async () => {
    const { db } = driver;
    await db.insert(authors).values(Array.from({ length: 100 }, (_, n) => ({ name: `name ${n}` })));
    const byId = db
      .select()
      .from(authors)
      .where(eq(authors.id, raw.placeholder('id')))
      .prepare('by_id');
    const all = db.select().from(authors).orderBy(asc(authors.id)).prepare('all');
    const ids = Array.from({ length: 100 }, (_, index) => index + 1);
    const found = await Promise.all(ids.map((id) => byId.execute({ id })));
    expect(found.flat()).toEqual(await all.execute());
  });
});
