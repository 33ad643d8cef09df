import type { Placement } from '../../catalog/organizations/organization.ts';
import type { Platform } from '../../router/placement/platform-sessions.ts';
import { schemaBytes } from '../../router/placement/shared-database/schema-statistics.ts';
import { BoundedMap } from '../../runtime/bounded-map.ts';

/** To measure a database takes milliseconds: the server looks at each of its files. */
const MEASURED_EVERY_MS = 30_000;
const REMEMBERED_MAX = 10_000;

interface Measured {
  readonly at: number;
  readonly bytes: Promise<number>;
}

/** How large organizations' databases and schemas are, measured with the platform role, outside of them. */
export class DataSizes {
  readonly #platform: Platform;
  readonly #measured = new BoundedMap<string, Measured>({ maxEntries: REMEMBERED_MAX });

  constructor(platform: Platform) {
    this.#platform = platform;
  }

  /** At most half a minute old. */
  bytes(placement: Placement): Promise<number> {
    const key = `${placement.database} ${placement.schema}`;
    const known = this.#measured.get(key);
    if (known !== undefined && performance.now() - known.at < MEASURED_EVERY_MS) return known.bytes;
    const bytes = placement.kind === 'schema' ? schemaBytes(this.#platform, placement.schema) : this.#databaseBytes(placement.database);
    this.#measured.set(key, { at: performance.now(), bytes });
    bytes.catch(() => this.#measured.delete(key));
    return bytes;
  }

  async #databaseBytes(database: string): Promise<number> {
    const { rows } = await this.#platform.run((session) =>
      session.query<{ bytes: string }>('SELECT pg_catalog.pg_database_size($1::name) AS bytes', [database]),
    );
    return Number(rows[0]?.bytes ?? 0);
  }
}
