import {
  DataSource,
  type DataSourceOptions,
  EntitySchema,
  type MigrationInterface,
  QueryFailedError,
  type QueryRunner,
  Table,
} from 'typeorm';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { PLACEMENTS, startTestService, type TestOrganization, type TestService } from '../support/service.ts';
import { addressOf, closeAfterClients, failureOf } from './address.ts';

interface Author {
  id: number;
  name: string;
  mood: 'sad' | 'happy';
  books: Book[];
}

interface Book {
  id: string;
  author: Author;
  title: string;
  price: string;
  tags: string[];
  data: unknown;
  cover: Buffer;
  addedAt: Date;
  version: number;
}

const authors = new EntitySchema<Author>({
  name: 'Author',
  tableName: 'authors',
  columns: {
    id: { type: 'int', primary: true, generated: 'increment' },
    name: { type: 'text', unique: true },
    mood: { type: 'enum', enum: ['sad', 'happy'], enumName: 'mood', default: 'happy' },
  },
  relations: { books: { type: 'one-to-many', target: 'Book', inverseSide: 'author', cascade: true } },
});

const books = new EntitySchema<Book>({
  name: 'Book',
  tableName: 'books',
  columns: {
    // For this TypeORM makes an extension, unless it is told not to.
    id: { type: 'uuid', primary: true, generated: 'uuid' },
    title: { type: 'varchar', length: 100 },
    price: { type: 'numeric', precision: 12, scale: 2, nullable: true },
    tags: { type: 'text', array: true, nullable: true },
    data: { type: 'jsonb', nullable: true },
    cover: { type: 'bytea', nullable: true },
    addedAt: { type: 'timestamptz', createDate: true },
    version: { type: 'int', version: true },
  },
  relations: { author: { type: 'many-to-one', target: 'Author', inverseSide: 'books', onDelete: 'CASCADE', nullable: false } },
  indices: [{ columns: ['title'] }],
  checks: [{ name: 'affordable', expression: 'price >= 0' }],
});

class Readers1700000000001 implements MigrationInterface {
  async up(runner: QueryRunner): Promise<void> {
    const columns = [
      { name: 'id', type: 'int', isPrimary: true, isGenerated: true, generationStrategy: 'identity' as const },
      { name: 'name', type: 'varchar', length: '50' },
    ];
    await runner.createTable(new Table({ name: 'readers', columns }));
    await runner.query("INSERT INTO readers (name) VALUES ('Ada')");
  }

  down = (runner: QueryRunner) => runner.dropTable('readers');
}

class ReadersBorn1700000000002 implements MigrationInterface {
  async up(runner: QueryRunner): Promise<void> {
    await runner.query('ALTER TABLE readers ADD born date');
    await runner.query('ALTER TABLE readers ALTER name TYPE text');
  }

  down = (runner: QueryRunner) => runner.dropColumn('readers', 'born');
}

class Broken1700000000003 implements MigrationInterface {
  async up(runner: QueryRunner): Promise<void> {
    await runner.query('CREATE TABLE gone ()');
    await runner.query('ALTER TABLE nowhere ADD born date');
  }

  async down(): Promise<void> {}
}

/** Where no organization makes extensions: what `pgcrypto` stands for is a function of Postgres itself. */
const WITHOUT_EXTENSIONS = { uuidExtension: 'pgcrypto', installExtensions: false } as const;

let service: TestService;
let organization: TestOrganization;
let opened: DataSource[] = [];
let defaults: Partial<DataSourceOptions>;

async function open(options: Partial<DataSourceOptions>): Promise<DataSource> {
  const { user: username, ...address } = addressOf(service, organization);
  const source = new DataSource({ type: 'postgres', ...address, username, poolSize: 10, ...defaults, ...options } as DataSourceOptions);
  await source.initialize();
  opened.push(source);
  return source;
}

describe.each(PLACEMENTS)('typeorm, placement %s', (placement) => {
  beforeAll(async () => {
    service = await startTestService({ POSTERN_BACKENDS_PER_TENANT: '4', POSTERN_PLACEMENT: placement });
    defaults = placement === 'schema' ? WITHOUT_EXTENSIONS : {};
  });
  afterAll(() => closeAfterClients(service));
  beforeEach(async () => {
    organization = await service.signUp();
  });
  afterEach(async () => {
    await Promise.all(opened.map((source) => source.destroy()));
    opened = [];
  });

  it('synchronizes, and finds nothing to do the second time', async () => {
    const source = await open({ entities: [authors, books], synchronize: true });
    const { upQueries } = await source.driver.createSchemaBuilder().log();
    expect(upQueries).toEqual([]);
    const changed = new EntitySchema<Author>({
      ...authors.options,
      columns: { ...authors.options.columns, mood: { type: 'enum', enum: ['sad', 'calm', 'happy'], enumName: 'mood', default: 'happy' } },
    });
    await (await open({ entities: [changed, books], synchronize: true })).getRepository<Author>('Author').insert({ name: 'Ada' });
    expect(await source.query("UPDATE authors SET mood = 'calm' RETURNING mood::text")).toEqual([[{ mood: 'calm' }], 1]);
    await source.dropDatabase();
    expect(await source.query('SELECT tablename FROM pg_tables WHERE schemaname = current_schema()')).toEqual([]);
  });

  it('runs migrations and takes them back', async () => {
    const source = await open({ migrations: [Readers1700000000001, ReadersBorn1700000000002] });
    expect(await source.showMigrations()).toBe(true);
    expect(await source.runMigrations({ transaction: 'each' })).toHaveLength(2);
    expect(await source.query('SELECT * FROM readers')).toEqual([{ id: 1, name: 'Ada', born: null }]);
    expect(await source.showMigrations()).toBe(false);
    await source.undoLastMigration();
    expect(await source.query('SELECT * FROM readers')).toEqual([{ id: 1, name: 'Ada' }]);
  });

  it('leaves nothing behind when a migration fails', async () => {
    const source = await open({ migrations: [Readers1700000000001, Broken1700000000003] });
    const failure = await failureOf(source.runMigrations({ transaction: 'all' }));
    expect(failure).toMatchObject({ driverError: { code: '42P01' } });
    expect(await source.query('SELECT tablename FROM pg_tables WHERE schemaname = current_schema()')).toEqual([
      { tablename: 'migrations' },
    ]);
  });

  it('keeps values of many types', async () => {
    const source = await open({ entities: [authors, books], synchronize: true });
    const book = {
      title: 'äöü 😀 \\ \' "',
      price: '1234567890.12',
      tags: ['a', 'b,c'],
      data: { a: [1, null] },
      cover: Buffer.from([0, 1, 255]),
    };
    await source.getRepository<Author>('Author').save({ name: 'Ada', books: [book, { title: 'second' }] });
    const found = await source.getRepository<Author>('Author').findOneOrFail({ where: { name: 'Ada' }, relations: { books: true } });
    expect(found.books).toHaveLength(2);
    expect(found.books.find(({ title }) => title === book.title)).toMatchObject({ ...book, version: 1, addedAt: expect.any(Date) });
    const query = source
      .getRepository<Book>('Book')
      .createQueryBuilder('book')
      .where('book.data @> :data', { data: { a: [1] } });
    expect(await query.getCount()).toBe(1);
    const upserted = await source.getRepository<Author>('Author').upsert({ name: 'Ada', mood: 'sad' }, ['name']);
    expect(upserted.identifiers).toEqual([{ id: found.id }]);
  });

  it('nests transactions, and reports errors with their codes', async () => {
    const source = await open({ entities: [authors, books], synchronize: true });
    await source.transaction('SERIALIZABLE', async (manager) => {
      await manager.insert('Author', { name: 'Ada' });
      const failure = await failureOf(manager.transaction((inner) => inner.insert('Author', [{ name: 'Grace' }, { name: 'Ada' }])));
      expect(failure).toBeInstanceOf(QueryFailedError);
      expect(failure).toMatchObject({ driverError: { code: '23505', detail: 'Key (name)=(Ada) already exists.' } });
      expect(await manager.query('SHOW transaction_isolation')).toEqual([{ transaction_isolation: 'serializable' }]);
    });
    const [ada] = await source.getRepository<Author>('Author').find();
    expect(ada?.name).toBe('Ada');
    const tooCheap = source.getRepository('Book').insert({ author: ada, title: '', price: '-1' });
    expect(await failureOf(tooCheap)).toMatchObject({ driverError: { code: '23514', constraint: 'affordable' } });
  });

  it('locks rows, streams, and works on more connections than there are backends', async () => {
    const source = await open({ entities: [authors, books], synchronize: true });
    await source.getRepository<Author>('Author').insert({ name: '0' });
    const count = () =>
      source.transaction(async (manager) => {
        const author = await manager.findOneOrFail<Author>('Author', { where: { id: 1 }, lock: { mode: 'pessimistic_write' } });
        await manager.update('Author', 1, { name: String(Number(author.name) + 1) });
      });
    await Promise.all(Array.from({ length: 30 }, count));
    expect(await source.query('SELECT name FROM authors')).toEqual([{ name: '30' }]);
    await source.query("INSERT INTO authors (name) SELECT 'name ' || n FROM generate_series(1, 500) AS n");
    let streamed = 0;
    for await (const _ of await source.getRepository('Author').createQueryBuilder('author').stream()) streamed += 1;
    expect(streamed).toBe(501);
  });

  it('gives up when it is told to', async () => {
    const source = await open({ extra: { statement_timeout: 5_000 } });
    expect(await failureOf(source.query('SELECT pg_sleep(60)'))).toMatchObject({ driverError: { code: '57014' } });
    expect(await source.query('SHOW statement_timeout')).toEqual([{ statement_timeout: '5s' }]);
  });
});
