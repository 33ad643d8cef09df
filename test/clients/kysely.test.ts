import { type ColumnType, type Generated, Kysely, type Migration, Migrator, PostgresDialect, sql } from 'kysely';
import pg from 'pg';
import Cursor from 'pg-cursor';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';
import { addressOf, closeAfterClients, failureOf } from './address.ts';

interface Tables {
  authors: { id: Generated<number>; name: string; mood: Generated<'sad' | 'happy'> };
  books: {
    id: Generated<string>;
    author_id: number;
    title: string;
    price: string | null;
    tags: string[] | null;
    data: ColumnType<{ a: unknown[] } | null, string, string>;
    added_at: Generated<Date>;
  };
}

const migrations: Record<string, Migration> = {
  '1_authors': {
    async up(db) {
      await db.schema.createType('mood').asEnum(['sad', 'happy']).execute();
      await db.schema
        .createTable('authors')
        .addColumn('id', 'integer', (column) => column.primaryKey().generatedAlwaysAsIdentity())
        .addColumn('name', 'text', (column) => column.notNull().unique())
        .execute();
    },
    async down(db) {
      await db.schema.dropTable('authors').execute();
      await db.schema.dropType('mood').execute();
    },
  },
  '2_books': {
    async up(db) {
      await db.schema
        .alterTable('authors')
        .addColumn('mood', sql`mood`, (column) => column.notNull().defaultTo('happy'))
        .execute();
      await db.schema
        .createTable('books')
        .addColumn('id', 'uuid', (column) => column.primaryKey().defaultTo(sql`gen_random_uuid()`))
        .addColumn('author_id', 'integer', (column) => column.notNull().references('authors.id').onDelete('cascade'))
        .addColumn('title', 'varchar(100)', (column) => column.notNull())
        .addColumn('price', 'numeric(12, 2)', (column) => column.check(sql`price >= 0`))
        .addColumn('tags', sql`text[]`)
        .addColumn('data', 'jsonb')
        .addColumn('added_at', 'timestamptz', (column) => column.notNull().defaultTo(sql`now()`))
        .execute();
      await db.schema.createIndex('by_title').on('books').columns(['title desc', 'author_id']).execute();
    },
    async down(db) {
      await db.schema.dropTable('books').execute();
      await db.schema.alterTable('authors').dropColumn('mood').execute();
    },
  },
};

let service: TestService;
let organization: TestOrganization;
let db: Kysely<Tables>;
beforeAll(async () => {
  service = await startTestService({ POSTERN_BACKENDS_PER_TENANT: '4' });
});
afterAll(() => closeAfterClients(service));
beforeEach(async () => {
  organization = await service.signUp();
  const dialect = new PostgresDialect({ pool: new pg.Pool({ ...addressOf(service, organization), max: 10 }), cursor: Cursor });
  db = new Kysely<Tables>({ dialect });
});
afterEach(() => db.destroy());

const migrator = () => new Migrator({ db, provider: { getMigrations: async () => migrations } });

describe('kysely migrates', () => {
  it('up, down, and not twice when two start at once', async () => {
    const results = await Promise.all([migrator().migrateToLatest(), migrator().migrateToLatest()]);
    expect(results.map(({ error }) => error)).toEqual([undefined, undefined]);
    expect(results.flatMap((result) => result.results ?? []).map(({ status }) => status)).toEqual(['Success', 'Success']);
    expect(await migrator().migrateDown()).toMatchObject({ results: [{ migrationName: '2_books', direction: 'Down', status: 'Success' }] });
    expect((await db.introspection.getTables()).map(({ name, columns }) => [name, columns.map((column) => column.name)])).toEqual([
      ['authors', ['id', 'name']],
    ]);
  });

  it('leaves nothing behind when one fails', async () => {
    const broken: Migration = { up: (on) => on.schema.createTable('gone').addColumn('id', sql`nowhere`).execute() };
    const provider = { getMigrations: async () => ({ ...migrations, '3_broken': broken }) };
    expect(await new Migrator({ db, provider }).migrateToLatest()).toMatchObject({ error: { code: '42704' } });
    expect(await db.introspection.getTables()).toEqual([]);
  });
});

describe('kysely', () => {
  beforeEach(async () => {
    expect((await migrator().migrateToLatest()).error).toBeUndefined();
  });

  it('keeps values of many types', async () => {
    const ada = await db.insertInto('authors').values({ name: 'Ada' }).returningAll().executeTakeFirstOrThrow();
    expect(ada).toEqual({ id: 1, name: 'Ada', mood: 'happy' });
    const book = {
      author_id: ada.id,
      title: 'äöü 😀 \\ \' "',
      price: '1234567890.12',
      tags: ['a', 'b,c'],
      added_at: new Date('2025-01-31T09:30:00.123Z'),
    };
    const inserted = await db
      .insertInto('books')
      .values({ ...book, data: JSON.stringify({ a: [1, null] }) })
      .returningAll()
      .executeTakeFirstOrThrow();
    expect(inserted).toMatchObject({ ...book, data: { a: [1, null] } });
    const found = await db.selectFrom('books').innerJoin('authors', 'authors.id', 'author_id').select(['name', 'title']).execute();
    expect(found).toEqual([{ name: 'Ada', title: book.title }]);
    const [deleted] = await db.deleteFrom('authors').execute();
    expect(deleted?.numDeletedRows).toBe(1n);
  });

  it('runs transactions, with savepoints and errors in them', async () => {
    await db
      .transaction()
      .setIsolationLevel('serializable')
      .execute(async (transaction) => {
        await transaction.insertInto('authors').values({ name: 'Ada' }).execute();
        const level = await sql<{ level: string }>`SELECT current_setting('transaction_isolation') AS level`.execute(transaction);
        expect(level.rows).toEqual([{ level: 'serializable' }]);
      });
    const controlled = await db.startTransaction().execute();
    const savepoint = await controlled.savepoint('here').execute();
    expect(await failureOf(savepoint.insertInto('authors').values({ name: 'Ada' }).execute())).toMatchObject({ code: '23505' });
    expect(await failureOf(savepoint.selectFrom('authors').selectAll().execute())).toMatchObject({ code: '25P02' });
    await savepoint.rollbackToSavepoint('here').execute();
    await controlled.insertInto('authors').values({ name: 'Grace' }).execute();
    await controlled.commit().execute();
    const dropped = db.transaction().execute(async (transaction) => {
      await transaction.insertInto('authors').values({ name: 'dropped' }).execute();
      throw new Error('never mind');
    });
    expect(await failureOf(dropped)).toMatchObject({ message: 'never mind' });
    expect(await db.selectFrom('authors').select('name').orderBy('id').execute()).toEqual([{ name: 'Ada' }, { name: 'Grace' }]);
  });

  it('streams by cursor, side by side', async () => {
    const values = Array.from({ length: 1_000 }, (_, n) => ({ name: `name ${n}` }));
    await db.insertInto('authors').values(values).execute();
    const count = async () => {
      let seen = 0;
      for await (const _ of db.selectFrom('authors').selectAll().stream(50)) seen += 1;
      return seen;
    };
    expect(await Promise.all(Array.from({ length: 8 }, count))).toEqual(Array.from({ length: 8 }, () => 1_000));
    for await (const { id } of db.selectFrom('authors').select('id').stream(10)) if (id > 20) break;
  });

  it('keeps to one connection when asked to', async () => {
    await db.connection().execute(async (one) => {
      await sql`CREATE TEMPORARY TABLE mine AS SELECT 7 AS n`.execute(one);
      await Promise.all(Array.from({ length: 20 }, () => db.selectFrom('authors').selectAll().execute()));
      expect((await sql`SELECT n FROM mine`.execute(one)).rows).toEqual([{ n: 7 }]);
    });
  });
});
