import { Migrator } from '@mikro-orm/migrations';
import { EntitySchema, MikroORM } from '@mikro-orm/postgresql';
import { obey, variable } from './commands.ts';

interface Note {
  id: number;
  body: string;
  mood: 'sad' | 'happy';
}

const notes = new EntitySchema<Note>({
  name: 'Note',
  tableName: 'notes',
  properties: {
    id: { type: 'integer', primary: true, autoincrement: true },
    body: { type: 'string', index: true },
    mood: { enum: true, items: ['sad', 'happy'], nativeEnumName: 'mood', default: 'happy' },
  },
});

const orm = await MikroORM.init({
  clientUrl: variable('DATABASE_URL'),
  entities: [notes],
  extensions: [Migrator],
  ...(variable('PLACEMENT') === 'schema' ? { schema: variable('SCHEMA') } : {}),
  migrations: { path: `${process.cwd()}/migrations`, emit: 'js', snapshot: false },
});
// What a developer does: let it compare, keep the migration, run it.
const { diff } = await orm.migrator.create();
if (diff.up.some((statement) => /drop schema|drop table/i.test(statement))) throw new Error(`it would drop: ${JSON.stringify(diff.up)}`);
await orm.migrator.up();
const left = await orm.schema.getUpdateSchemaSQL();
if (left.trim() !== '') throw new Error(`the entities differ from the migrations: ${left}`);

await obey({
  async add(body) {
    const em = orm.em.fork();
    em.create(notes, { body, mood: 'happy' });
    await em.flush();
  },
  list: async () => (await orm.em.fork().find(notes, {}, { orderBy: { id: 'asc' } })).map(({ body }) => body),
  end: () => orm.close(true),
});
