import { DataSource, EntitySchema, type MigrationInterface, type QueryRunner, Table, TableIndex } from 'typeorm';
import { obey, variable } from './commands.ts';

interface Note {
  id: number;
  body: string;
  mood: 'sad' | 'happy';
  seen: number;
}

const notes = new EntitySchema<Note>({
  name: 'Note',
  tableName: 'notes',
  columns: {
    id: { type: 'int', primary: true, generated: 'increment' },
    body: { type: 'varchar', length: 200 },
    mood: { type: 'enum', enum: ['sad', 'happy'], enumName: 'mood', default: 'happy' },
    seen: { type: 'int', default: 0 },
  },
  indices: [{ name: 'by_body', columns: ['body'] }],
});

class First1700000000000 implements MigrationInterface {
  async up(runner: QueryRunner): Promise<void> {
    await runner.query("CREATE TYPE mood AS ENUM ('sad', 'happy')");
    await runner.createTable(
      new Table({
        name: 'notes',
        columns: [
          { name: 'id', type: 'int', isPrimary: true, isGenerated: true, generationStrategy: 'increment' },
          { name: 'body', type: 'varchar', length: '200' },
          { name: 'mood', type: 'mood', default: "'happy'" },
        ],
      }),
    );
  }
  async down(runner: QueryRunner): Promise<void> {
    await runner.dropTable('notes');
    await runner.query('DROP TYPE mood');
  }
}

class Second1700000000001 implements MigrationInterface {
  async up(runner: QueryRunner): Promise<void> {
    await runner.query('ALTER TABLE notes ADD seen int NOT NULL DEFAULT 0');
    await runner.createIndex('notes', new TableIndex({ name: 'by_body', columnNames: ['body'] }));
  }
  async down(runner: QueryRunner): Promise<void> {
    await runner.dropIndex('notes', 'by_body');
    await runner.dropColumn('notes', 'seen');
  }
}

const source = new DataSource({
  type: 'postgres',
  url: variable('DATABASE_URL'),
  entities: [notes],
  migrations: [First1700000000000, Second1700000000001],
  installExtensions: false,
});
await source.initialize();
await source.runMigrations();
await source.undoLastMigration();
await source.runMigrations();
const { upQueries } = await source.driver.createSchemaBuilder().log();
if (upQueries.length > 0) throw new Error(`the entities differ from the migrations: ${JSON.stringify(upQueries)}`);

const repository = source.getRepository(notes);
await obey({
  add: (body) => repository.save({ body }),
  list: async () => (await repository.find({ order: { id: 'ASC' } })).map(({ body }) => body),
  end: () => source.destroy(),
});
