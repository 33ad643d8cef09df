import { text } from 'node:stream/consumers';
import knex, { type Knex } from 'knex';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { LANDMARK, landmarkPassed } from '../support/landmark.ts';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';
import { addressOf, closeAfterClients, failureOf } from './address.ts';

interface Migration extends Knex.Migration {
  readonly config?: { readonly transaction: boolean };
}

const migrations: Record<string, Migration> = {
  '1_authors': {
    async up(db) {
      await db.schema.createTable('authors', (table) => {
        table.increments('id');
        table.text('name').notNullable().unique();
        table.enu('mood', ['sad', 'happy'], { useNative: true, enumName: 'mood' }).defaultTo('happy');
      });
    },
    down: async (db) => {
      await db.schema.dropTable('authors');
      await db.raw('DROP TYPE mood');
    },
  },
  '2_books': {
    async up(db) {
      await db.schema.createTable('books', (table) => {
        table.uuid('id').primary().defaultTo(db.raw('gen_random_uuid()'));
        table.integer('author_id').notNullable().references('authors.id').onDelete('CASCADE').index();
        table.string('title', 100).notNullable();
        table.decimal('price', 12, 2).checkPositive('affordable');
        table.specificType('tags', 'text[]');
        table.jsonb('data');
        table.binary('cover');
        table.timestamp('added_at', { useTz: true }).defaultTo(db.fn.now());
      });
    },
    down: (db) => db.schema.dropTable('books'),
  },
  '3_index': {
    up: (db) => db.raw('CREATE INDEX CONCURRENTLY by_title ON books (title)'),
    down: (db) => db.raw('DROP INDEX CONCURRENTLY by_title'),
    config: { transaction: false },
  },
};

class MigrationSource implements Knex.MigrationSource<string> {
  getMigrations = async () => Object.keys(migrations);
  getMigrationName = (name: string) => name;
  getMigration = async (name: string) => migrations[name] ?? Promise.reject(new Error(`no migration ${name}`));
}

let service: TestService;
let organization: TestOrganization;
let db: Knex;
beforeAll(async () => {
  service = await startTestService({ POSTERN_BACKENDS_PER_TENANT: '4' });
});
afterAll(() => closeAfterClients(service));
beforeEach(async () => {
  organization = await service.signUp();
  db = open();
});
afterEach(() => db.destroy());

function open(): Knex {
  const connection = addressOf(service, organization);
  const log = { warn: () => {} };
  return knex({ client: 'pg', connection, pool: { min: 0, max: 10 }, migrations: { migrationSource: new MigrationSource() }, log });
}

describe('knex migrates', () => {
  it('up and down, and holds a lock meanwhile', async () => {
    expect(await db.migrate.latest()).toEqual([1, Object.keys(migrations)]);
    expect(await db.migrate.currentVersion()).toBe('3');
    expect(Object.keys(await db('books').columnInfo())).toEqual(['id', 'author_id', 'title', 'price', 'tags', 'data', 'cover', 'added_at']);
    await db('knex_migrations_lock').update({ is_locked: 1 });
    expect(await failureOf(db.migrate.down())).toMatchObject({ message: expect.stringContaining('Migration table is already locked') });
    await db.migrate.forceFreeMigrationsLock();
    expect(await db.migrate.rollback(undefined, true)).toEqual([1, Object.keys(migrations).reverse()]);
    expect(await db.schema.hasTable('authors')).toBe(false);
  });
});

describe('knex', () => {
  beforeEach(() => db.migrate.latest());

  it('keeps values of many types', async () => {
    const [ada] = await db('authors').insert({ name: 'Ada' }).returning('*');
    expect(ada).toEqual({ id: 1, name: 'Ada', mood: 'happy' });
    const book = {
      author_id: 1,
      title: 'äöü 😀 \\ \' " ?',
      price: '1234567890.12',
      tags: ['a', 'b,c'],
      data: { a: [1, null] },
      cover: Buffer.from([0, 1, 255]),
      added_at: new Date('2025-01-31T09:30:00.123Z'),
    };
    const [inserted] = await db('books').insert(book).returning('*');
    expect(inserted).toMatchObject(book);
    expect(
      await db('books')
        .whereJsonSupersetOf('data', { a: [1] })
        .join('authors', 'authors.id', 'author_id')
        .select('name', 'title'),
    ).toEqual([{ name: 'Ada', title: book.title }]);
    await db('authors').insert({ name: 'Ada', mood: 'sad' }).onConflict('name').merge();
    expect(await db('authors').first('mood')).toEqual({ mood: 'sad' });
  });

  it('nests transactions, and reports errors with their codes', async () => {
    await db.transaction(
      async (transaction) => {
        await transaction('authors').insert({ name: 'Ada' });
        const failure = await failureOf(transaction.transaction((inner) => inner('authors').insert([{ name: 'Grace' }, { name: 'Ada' }])));
        expect(failure).toMatchObject({ code: '23505', constraint: 'authors_name_unique' });
        expect((await transaction.raw('SHOW transaction_isolation')).rows).toEqual([{ transaction_isolation: 'repeatable read' }]);
      },
      { isolationLevel: 'repeatable read' },
    );
    expect(await failureOf(db('books').insert({ author_id: 1, title: 'x', price: -1 }))).toMatchObject({
      code: '23514',
      constraint: 'affordable',
    });
    expect(await db('authors').pluck('name')).toEqual(['Ada']);
  });

  it('works on more connections than there are backends', async () => {
    await db('authors').insert(Array.from({ length: 500 }, (_, n) => ({ name: `name ${n}` })));
    const find = (n: number) =>
      db('authors')
        .where({ name: `name ${n}` })
        .first('name');
    const found = await Promise.all(Array.from({ length: 500 }, (_, n) => find(n)));
    expect(found.map(({ name }) => name)).toEqual(Array.from({ length: 500 }, (_, n) => `name ${n}`));
    const csv = db('authors').orderBy('id').limit(3).select(db.raw("name || ';' AS line")).stream();
    expect(await text(csv.map(({ line }: { line: string }) => line))).toBe('name 0;name 1;name 2;');
  });

  it('cancels what takes too long', async () => {
    const watcher = await service.connect(organization);
    const slow = failureOf(db.raw(`SELECT FROM (${LANDMARK}) AS passed, pg_sleep(60)`).timeout(5_000, { cancel: true }));
    await landmarkPassed(watcher);
    expect(await slow).toMatchObject({ message: expect.stringContaining('Defined query timeout of 5000ms exceeded') });
    // The server has let go of it too.
    expect((await watcher.query('SELECT pg_advisory_xact_lock(4711)')).rowCount).toBe(1);
    await watcher.end();
  });
});
