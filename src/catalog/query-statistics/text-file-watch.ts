import type { Observe } from '../../observation.ts';
import type { ControlPool } from '../database/control-pool.ts';

const CHECK_EVERY_MS = 5_000;
/** A usual file has a megabyte or two. */
const TEXTS_MAX_BYTES = 64 * 1_048_576;

/**
 * Limits the file in which pg_stat_statements keeps the texts of queries. It keeps each text whole, of any size, and the server reads
 * all of them into memory to remove those that nobody needs any more: thousands of texts of megabytes would fill disk and memory.
 */
export class TextFileWatch {
  readonly #database: ControlPool;
  readonly #observe: Observe;
  readonly #maxBytes: number;
  #timer: NodeJS.Timeout | undefined;
  #checking: Promise<void> = Promise.resolve();

  constructor(database: ControlPool, observe: Observe, maxBytes = TEXTS_MAX_BYTES) {
    this.#database = database;
    this.#observe = observe;
    this.#maxBytes = maxBytes;
  }

  start(): void {
    this.#timer = setInterval(() => {
      this.#checking = this.check();
    }, CHECK_EVERY_MS).unref();
  }

  async stop(): Promise<void> {
    clearInterval(this.#timer);
    await this.#checking;
  }

  /** Never rejects. When the server does not let the role look, or has no such file, it is not looked for again. */
  async check(): Promise<void> {
    try {
      const size = await this.#database.run(
        (sql) => sql<{ bytes: number | null }[]>`
        select (pg_catalog.pg_stat_file('pg_stat_tmp/pgss_query_texts.stat', true)).size::float8 as bytes`,
      );
      const bytes = size[0]?.bytes ?? undefined;
      if (bytes === undefined) clearInterval(this.#timer);
      if (bytes === undefined || bytes <= this.#maxBytes) return;
      await this.#database.run((sql) => sql`select public.pg_stat_statements_reset()`);
      const message = `the texts of queries that pg_stat_statements keeps had reached ${bytes} bytes: its statistics begin anew`;
      this.#observe({ name: 'service.warning', message });
    } catch (error) {
      if (error instanceof Error && 'severity' in error) clearInterval(this.#timer);
    }
  }
}
