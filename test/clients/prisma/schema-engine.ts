import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { PrismaPg } from '@prisma/adapter-pg';
import { bindMigrationAwareSqlAdapterFactory } from '@prisma/driver-adapter-utils';
import * as glue from '@prisma/schema-engine-wasm/schema_engine_bg';
import pg from 'pg';

/**
 * Lends the engine behind `prisma migrate`, over a driver: the command line would download
 * a binary of it, which connects by a driver of its own. What it leaves to the end of its process is ended after the work: its
 * connections, and with them the advisory lock it has taken.
 * @param schema by its name in the catalogs, where the engine looks for it
 */
export async function withSchemaEngine<T>(url: string, schema: string, work: (engine: glue.SchemaEngine) => Promise<T>): Promise<T> {
  await load();
  const pool = new pg.Pool({ connectionString: url });
  try {
    const adapter = bindMigrationAwareSqlAdapterFactory(new PrismaPg(pool, { schema }));
    return await work(await glue.SchemaEngine.new({ datamodels: undefined }, () => {}, adapter));
  } finally {
    await pool.end();
  }
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
