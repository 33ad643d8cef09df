import { BoundedMap } from '../../runtime/bounded-map.ts';
import type { ControlPool } from '../database/control-pool.ts';

const WRITE_DELAY_MS = 1_000;
/** The use of one key is written at most this often. */
const WRITE_EVERY_MS = 60_000;
/** Uses remembered at once; that of a key whose last one has been forgotten is written sooner. */
const NOTED_MAX = 100_000;

export type KeyLastUsedListener = (organizationId: string, keyId: string, at: Date) => void;

/** When keys were last used. It is noted in memory and written in batches; if the process crashes, at most a minute is lost. */
export class KeyLastUsed {
  readonly #database: ControlPool;
  readonly #now: () => Date;
  readonly #written: KeyLastUsedListener;
  /** When a use of each key was noted last. */
  readonly #noted = new BoundedMap<string, number>({ maxEntries: NOTED_MAX });
  #unwritten = new Map<string, Date>();
  #timer: NodeJS.Timeout | undefined;

  constructor(database: ControlPool, now: () => Date, written: KeyLastUsedListener) {
    this.#database = database;
    this.#now = now;
    this.#written = written;
  }

  touch(keyId: string): void {
    const last = this.#noted.get(keyId);
    const now = performance.now();
    if (last !== undefined && now - last < WRITE_EVERY_MS) return;
    this.#noted.set(keyId, now);
    this.#unwritten.set(keyId, this.#now());
    this.#timer ??= setTimeout(() => void this.flush(), WRITE_DELAY_MS);
  }

  /** Never rejects. What cannot be written now is written after the key's next use. */
  async flush(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const uses = this.#unwritten;
    this.#unwritten = new Map();
    if (uses.size === 0) return;
    try {
      for (const { keyId, organizationId } of await this.#write(uses)) this.#written(organizationId, keyId, uses.get(keyId) ?? this.#now());
    } catch {
      for (const keyId of uses.keys()) this.#noted.delete(keyId);
    }
  }

  /** Rows are locked in the order of their ids, so that processes cannot deadlock. */
  #write(uses: ReadonlyMap<string, Date>): Promise<{ keyId: string; organizationId: string }[]> {
    const rows = JSON.stringify([...uses].map(([id, at]) => ({ id, at })));
    return this.#database.run(
      (sql) => sql<{ keyId: string; organizationId: string }[]>`
        with uses as (
          select k.id, u.at
          from jsonb_to_recordset(${rows}::text::jsonb) as u (id text, at timestamptz)
          join postern.api_keys k on k.id = u.id
          order by k.id
          for no key update of k
        )
        update postern.api_keys k set last_used_at = greatest(k.last_used_at, uses.at)
        from uses
        where k.id = uses.id
        returning k.id as "keyId", k.organization_id as "organizationId"`,
    );
  }
}
