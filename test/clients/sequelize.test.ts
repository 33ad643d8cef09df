import {
  ConnectionRefusedError,
  DataTypes,
  ForeignKeyConstraintError,
  Op,
  QueryTypes,
  Sequelize,
  Transaction,
  UniqueConstraintError,
} from 'sequelize';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { PLACEMENTS, startTestService, type TestOrganization, type TestService } from '../support/service.ts';
import { addressOf, closeAfterClients, failureOf } from './address.ts';

let service: TestService;
let organization: TestOrganization;
let sequelize: Sequelize;

/** A service for the tests of a group, an organization for each of them. */
function testWith(variables: Readonly<Record<string, string>>): void {
  beforeAll(async () => {
    service = await startTestService({ POSTERN_BACKENDS_PER_TENANT: '4', ...variables });
  });
  afterAll(() => closeAfterClients(service));
  beforeEach(async () => {
    organization = await service.signUp();
    const { user: username, ...address } = addressOf(service, organization);
    sequelize = new Sequelize({ dialect: 'postgres', ...address, username, logging: false, pool: { max: 10 } });
  });
  afterEach(() => sequelize.close());
}

async function tables(): Promise<string[]> {
  const query = 'SELECT tablename FROM pg_tables WHERE schemaname = current_schema() ORDER BY 1';
  const rows = await sequelize.query<{ tablename: string }>(query, { type: QueryTypes.SELECT });
  return rows.map(({ tablename }) => tablename);
}

function models() {
  const Author = sequelize.define('Author', {
    name: { type: DataTypes.TEXT, allowNull: false, unique: true },
    mood: { type: DataTypes.ENUM('sad', 'happy'), defaultValue: 'happy' },
  });
  const Book = sequelize.define(
    'Book',
    {
      id: { type: DataTypes.UUID, primaryKey: true, defaultValue: DataTypes.UUIDV4 },
      title: { type: DataTypes.STRING(100), allowNull: false },
      price: DataTypes.DECIMAL(12, 2),
      copies: DataTypes.BIGINT,
      tags: DataTypes.ARRAY(DataTypes.TEXT),
      data: DataTypes.JSONB,
      cover: DataTypes.BLOB,
      onSale: DataTypes.RANGE(DataTypes.DATEONLY),
      printedAt: DataTypes.DATE(3),
    },
    { indexes: [{ fields: ['data'], using: 'gin' }], version: true },
  );
  Author.hasMany(Book, { foreignKey: { name: 'authorId', allowNull: false }, onDelete: 'CASCADE' });
  Book.belongsTo(Author, { foreignKey: 'authorId' });
  return { Author, Book };
}

describe.each(PLACEMENTS)('sequelize, placement %s', (placement) => {
  testWith({ POSTERN_PLACEMENT: placement });

  it('synchronizes, by force too', async () => {
    models();
    await sequelize.sync();
    await sequelize.sync();
    expect(await tables()).toEqual(['Authors', 'Books']);
    await sequelize.sync({ force: true });
    expect(await tables()).toEqual(['Authors', 'Books']);
    await sequelize.drop({});
    expect(await tables()).toEqual([]);
  });

  it('migrates by its query interface, in transactions', async () => {
    const queries = sequelize.getQueryInterface();
    const id = { type: DataTypes.INTEGER, primaryKey: true, autoIncrement: true };
    await sequelize.transaction(async (transaction) => {
      await queries.createTable('readers', { id, name: DataTypes.TEXT }, { transaction });
      await queries.addColumn('readers', 'born', { type: DataTypes.DATEONLY }, { transaction });
      await queries.addIndex('readers', ['name'], { unique: true, transaction });
    });
    const failing = sequelize.transaction(async (transaction) => {
      await queries.createTable('gone', { id }, { transaction });
      await queries.addColumn('nowhere', 'x', { type: DataTypes.TEXT }, { transaction });
    });
    expect(await failureOf(failing)).toMatchObject({ original: { code: '42P01' } });
    expect(await tables()).toEqual(['readers']);
    await queries.bulkInsert('readers', [{ name: 'Ada', born: '1815-12-10' }]);
    await queries.changeColumn('readers', 'name', { type: DataTypes.STRING(10), allowNull: false });
    expect(await sequelize.query('SELECT * FROM readers', { type: QueryTypes.SELECT })).toEqual([
      { id: 1, name: 'Ada', born: '1815-12-10' },
    ]);
  });

  it('keeps values of many types', async () => {
    const { Author, Book } = models();
    await sequelize.sync();
    const book = {
      title: 'äöü 😀 \\ \' " $1 :x ?',
      price: '1234567890.12',
      copies: '9223372036854775807',
      tags: ['a', 'b,c', 'd"e'],
      data: { a: [1, null, { b: 'c' }] },
      cover: Buffer.from([0, 1, 255]),
      printedAt: new Date('2025-01-31T09:30:00.123Z'),
    };
    const ada = await Author.create({ name: 'Ada' });
    await Book.create({ ...book, authorId: ada.get('id'), onSale: ['2025-01-01', '2025-02-01'] });
    const [found] = await Author.findAll({ include: [{ model: Book, where: { data: { [Op.contains]: { a: [1] } } } }] });
    const onSale = [{ value: '2025-01-01' }, { value: '2025-02-01' }];
    expect(found?.toJSON()).toMatchObject({ name: 'Ada', mood: 'happy', Books: [{ ...book, onSale, version: 0 }] });
    const [, created] = await Author.upsert({ id: 1, name: 'Ada', mood: 'sad' });
    expect(created).toBeNull();
    expect(await Author.count({ where: { mood: 'sad' } })).toBe(1);
    await Author.bulkCreate(Array.from({ length: 500 }, (_, n) => ({ name: `name ${n}` })));
    const rows = await sequelize.query('SELECT name FROM "Authors" WHERE id > $1 ORDER BY id LIMIT 1', {
      bind: [1],
      type: QueryTypes.SELECT,
    });
    expect(rows).toEqual([{ name: 'name 0' }]);
  });

  it('nests transactions, and reports errors with their codes', async () => {
    const { Author, Book } = models();
    await sequelize.sync();
    await sequelize.transaction({ isolationLevel: Transaction.ISOLATION_LEVELS.SERIALIZABLE }, async (transaction) => {
      await Author.create({ name: 'Ada' }, { transaction });
      const nested = sequelize.transaction({ transaction }, (inner) => Author.create({ name: 'Ada' }, { transaction: inner }));
      const failure = await failureOf(nested);
      expect(failure).toBeInstanceOf(UniqueConstraintError);
      expect(failure).toMatchObject({ parent: { code: '23505', table: 'Authors' }, fields: { name: 'Ada' } });
    });
    expect(await failureOf(Book.create({ title: '', authorId: 999 }))).toBeInstanceOf(ForeignKeyConstraintError);
    expect(await Author.count()).toBe(1);
  });

  it('works on more connections than there are backends', async () => {
    const { Author } = models();
    await sequelize.sync();
    await Author.create({ name: '0' });
    const count = () =>
      sequelize.transaction(async (transaction) => {
        const author = await Author.findOne({ where: { id: 1 }, lock: Transaction.LOCK.UPDATE, transaction });
        await author?.update({ name: String(Number(author.get('name')) + 1) }, { transaction });
      });
    await Promise.all(Array.from({ length: 40 }, count));
    expect((await Author.findByPk(1))?.get('name')).toBe('40');
  });

  it('gives up when it is told to, and is refused with a wrong key', async () => {
    const { user: username, ...address } = addressOf(service, organization);
    const hasty = new Sequelize({
      dialect: 'postgres',
      ...address,
      username,
      logging: false,
      dialectOptions: { statement_timeout: 5_000 },
    });
    expect(await failureOf(hasty.query('SELECT pg_sleep(60)'))).toMatchObject({ parent: { code: '57014' } });
    await hasty.close();
    const other = new Sequelize({ dialect: 'postgres', ...address, username, password: 'pst_wrong', logging: false });
    const failure = await failureOf(other.authenticate());
    expect(failure).not.toBeInstanceOf(ConnectionRefusedError);
    expect(failure).toMatchObject({ parent: { code: '28P01' } });
    await other.close();
  });
});

/** It asks for statistics, which a shared database keeps from its tenants, and for a schema by the name of `public`. */
describe('sequelize that looks at tables', () => {
  testWith({ POSTERN_PLACEMENT: 'database' });

  it('alters them to what its models say', async () => {
    models();
    await sequelize.sync();
    await sequelize.sync({ alter: true });
    sequelize.define('Author', {
      name: { type: DataTypes.STRING(50) },
      born: DataTypes.DATEONLY,
      mood: DataTypes.ENUM('sad', 'calm', 'happy'),
    });
    await sequelize.sync({ alter: true });
    const queries = sequelize.getQueryInterface();
    expect(await queries.showAllTables()).toEqual(expect.arrayContaining(['Authors', 'Books']));
    await queries.renameColumn('Authors', 'born', 'birthday');
    expect(Object.keys(await queries.describeTable('Authors'))).toEqual(['id', 'name', 'mood', 'createdAt', 'updatedAt', 'birthday']);
  });
});
