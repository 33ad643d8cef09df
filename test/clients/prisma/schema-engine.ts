import type { EventEmitter } from 'node:events';
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { PrismaPg } from '@prisma/adapter-pg';
import { bindMigrationAwareSqlAdapterFactory, ColumnTypeEnum, type SqlDriverAdapter } from '@prisma/driver-adapter-utils';
import * as glue from '@prisma/schema-engine-wasm/schema_engine_bg';
import pg from 'pg';

/**
 * Lends the engine behind `prisma migrate`, over a driver: the command line would download
 * a binary of it, which connects by a driver of its own. What it leaves to the end of its process is ended after the work: its
 * connections, and with them the advisory lock it has taken.
 * @param schema by its name in the catalogs, where the engine looks for it
 * @param shadowUrl as `shadowDatabaseUrl`: instead of creating a database, the engine empties this one and replays migrations there
 */
export async function withSchemaEngine<T>(
  url: string,
  schema: string,
  work: (engine: glue.SchemaEngine) => Promise<T>,
  shadowUrl?: string,
): Promise<T> {
  await load();
  const pool = openPool(url);
  try {
    const factory = new PrismaPg(pool, { schema });
    const connect = factory.connect.bind(factory);
    factory.connect = async () => {
      const adapter = await connect();
      readChars(adapter);
      return adapter;
    };
    if (shadowUrl !== undefined) Object.assign(factory, { connectToShadowDb: () => openShadow(shadowUrl) });
    const adapter = bindMigrationAwareSqlAdapterFactory(factory);
    return await work(await glue.SchemaEngine.new({ datamodels: undefined }, () => {}, adapter));
  } finally {
    await pool.end();
  }
}

/** Empties it as the engine does. */
async function openShadow(url: string): Promise<SqlDriverAdapter> {
  const pool = openPool(url);
  await pool.query('DROP SCHEMA IF EXISTS "public" CASCADE');
  await pool.query('CREATE SCHEMA "public"');
  return readChars(await new PrismaPg(pool, { disposeExternalPool: true }).connect());
}

/**
 * The driver adapter does not know the type "char", which the engine asks the catalogs for: the columns are described to it as text, and
 * as characters to the engine.
 */
function readChars(adapter: SqlDriverAdapter): SqlDriverAdapter {
  const queryRaw = adapter.queryRaw.bind(adapter);
  adapter.queryRaw = async (query) => {
    const result = await queryRaw(query);
    const columnTypes = result.columnTypes.map((type, at) => (chars.has(result.columnNames[at] ?? '') ? ColumnTypeEnum.Character : type));
    return { ...result, columnTypes };
  };
  return adapter;
}

/** Names of such columns. */
const chars = new Set<string>();

function openPool(url: string): pg.Pool {
  return new pg.Pool({ connectionString: url }).on('connect', (client) => {
    const { connection } = client as unknown as { readonly connection: EventEmitter };
    connection.prependListener('rowDescription', ({ fields }: { readonly fields: { name: string; dataTypeID: number }[] }) => {
      for (const field of fields) {
        if (field.dataTypeID !== pg.types.builtins.CHAR) continue;
        chars.add(field.name);
        field.dataTypeID = pg.types.builtins.TEXT;
      }
    });
  });
}

let loaded: Promise<void> | undefined;

function load(): Promise<void> {
  loaded ??= instantiate();
  return loaded;
}

async function instantiate(): Promise<void> {
  const path = createRequire(import.meta.url).resolve('@prisma/schema-engine-wasm/schema_engine_bg');
  const bytes = await readFile(path.replace(/\.js$/, '.wasm'));
  const { instance } = await WebAssembly.instantiate(bytes, { './schema_engine_bg.js': glue });
  glue.__wbg_set_wasm(instance.exports);
  const { __wbindgen_start: start } = instance.exports;
  if (typeof start === 'function') start();
}
