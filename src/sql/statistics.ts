import type { Placement } from '../catalog/organization.ts';
import { schemaBytes } from '../placement/schema-statistics.ts';
import type { Clusters } from '../router/clusters.ts';
import { BoundedMap } from '../runtime/bounded-map.ts';

/** To measure a database takes milliseconds: the server looks at each of its files. */
const MEASURED_EVERY_MS = 30_000;
const REMEMBERED_MAX = 10_000;

interface Measured {
  readonly at: number;
  readonly bytes: Promise<number>;
}

/** How large organizations' databases and schemas are, measured with the platform role, outside of them. */
export class DataSizes {
  readonly #clusters: Clusters;
  readonly #measured = new BoundedMap<string, Measured>({ maxEntries: REMEMBERED_MAX });

  constructor(clusters: Clusters) {
    this.#clusters = clusters;
  }

  /** At most half a minute old. */
  bytes(placement: Placement): Promise<number> {
    const key = `${placement.cluster} ${placement.database} ${placement.schema}`;
    const known = this.#measured.get(key);
    if (known !== undefined && performance.now() - known.at < MEASURED_EVERY_MS) return known.bytes;
    const bytes = this.#measure(placement);
    this.#measured.set(key, { at: performance.now(), bytes });
    bytes.catch(() => this.#measured.delete(key));
    return bytes;
  }

  async #measure(placement: Placement): Promise<number> {
    const { platform } = this.#clusters.of(placement);
    if (placement.kind === 'schema') return schemaBytes(platform, placement.schema);
    const { rows } = await platform.run((session) =>
      session.query<{ bytes: string }>('SELECT pg_catalog.pg_database_size($1::name) AS bytes', [placement.database]),
    );
    return Number(rows[0]?.bytes ?? 0);
  }
}
