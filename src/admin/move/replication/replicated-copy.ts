import type pg from 'pg';
import { compareCounts, compareTable, compareTables } from '../../../copies/comparison.ts';
import { type Contents, type CopiedTable, readContents } from '../../../copies/contents.ts';
import { carrySequences, copyTables, lockTables } from '../../../copies/copy-data.ts';
import { completeDefinitions } from '../../../copies/definitions/not-in-dump.ts';
import { runDefinitions } from '../../../copies/definitions/restore-definitions.ts';
import { checkForObstacles } from '../../../copies/obstacles.ts';
import { type OpenPlacement, openTenantSession, type TenantSession } from '../../../copies/tenant-session.ts';
import { ServiceError } from '../../../errors.ts';
import { codeOf } from '../../../protocol/backend.ts';
import type { ServedPlacement } from '../../../router/served-cluster.ts';
import { Replication } from './logical-replication.ts';
import { areSame, type Definitions, divide, readDefinitions } from './replicated-definitions.ts';

interface Plan {
  readonly contents: Contents;
  readonly definitions: Definitions;
  /** Those that can be replicated, and the others. */
  readonly replicated: readonly CopiedTable[];
  readonly copiedInPause: readonly CopiedTable[];
  /** Definitions that are carried in the pause. */
  readonly late: readonly string[];
}

/** A session that sees the tables as they were when it began. */
interface Snapshot {
  readonly session: TenantSession;
  /** Where the rows of each table were stored then, by its name there. */
  readonly storage: ReadonlyMap<string, string>;
}

/** A copy of an organization's database on another server that follows the changes, until a short pause completes it. */
export class ReplicatedCopy {
  readonly #from: ServedPlacement;
  readonly #to: ServedPlacement;
  readonly #replication: Replication;
  #plan: Plan | undefined;
  #snapshots: Snapshot[] = [];
  /** Tables that were truncated while they were compared. */
  readonly #truncated: CopiedTable[] = [];

  private constructor(from: ServedPlacement, to: ServedPlacement, replication: Replication) {
    this.#from = from;
    this.#to = to;
    this.#replication = replication;
  }

  /** @throws ServiceError `invalid_request` if the servers cannot be connected; nothing of the organization has been copied then */
  static async open(from: ServedPlacement, to: ServedPlacement): Promise<ReplicatedCopy> {
    return new ReplicatedCopy(from, to, await Replication.open(from, to));
  }

  /** Carries the definitions and copies the rows while clients go on. Resolves when the copy is hardly behind. */
  async follow(): Promise<void> {
    await withSessions(this.#from, this.#to, async (own, copy) => {
      await checkForObstacles(own.client, this.#from.placement, this.#to.placement);
      const definitions = await readDefinitions(own.client, this.#from);
      const contents = await readContents(own.client, this.#from.placement, this.#to.placement, undefined);
      const replicated = contents.tables.filter(({ hasIdentity }) => hasIdentity);
      const copiedInPause = contents.tables.filter(({ hasIdentity }) => !hasIdentity);
      await runDefinitions(copy.client, definitions.beforeRows, this.#to.placement.schema);
      const { early, late } = await divide(copy.client, definitions.afterRows, copiedInPause);
      await runDefinitions(copy.client, early, this.#to.placement.schema);
      this.#plan = { contents, definitions, replicated, copiedInPause, late };
      await this.#replication.add(replicated);
    });
    await this.#replication.copied();
    await this.#vacuum(this.#planned().replicated);
  }

  /** Rows are counted by index in the pause then, and statements are planned well as soon as the copy is in use. */
  async #vacuum(tables: readonly CopiedTable[]): Promise<void> {
    const session = await openTenantSession(this.#to.server, this.#to.placement);
    try {
      for (const { to } of tables) await session.client.query(`VACUUM (ANALYZE) ${to}`);
    } finally {
      await session.end();
    }
  }

  /** Remembers the replicated tables as they are at both servers. In a pause, so that both are the same. */
  async takeSnapshots(limitMs: number): Promise<void> {
    const { contents, replicated } = this.#planned();
    const locking = await openTenantSession(this.#from.server, this.#from.placement);
    try {
      await lockTables(locking.client, contents);
      await this.#replication.caughtUp(limitMs);
      for (const [{ server, placement }, side] of [[this.#from, 'from'] as const, [this.#to, 'to'] as const]) {
        const session = await openTenantSession(server, placement);
        const storage = await storageOf(
          session.client,
          replicated.map((table) => table[side]),
        );
        this.#snapshots.push({ session, storage });
        // A client may keep a table locked; nothing is locked here meanwhile.
        await session.client.query('SET lock_timeout = 0');
        await session.client.query('BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY');
        await session.client.query('SELECT 1');
      }
    } finally {
      await locking.end();
    }
  }

  /**
   * Compares the remembered tables by count and checksum, while clients go on. No snapshot sees what TRUNCATE has removed, so a table that
   * was truncated meanwhile is compared in the last pause.
   * @throws ServiceError `internal` for one that differs, `organization_busy` for one that is gone
   */
  async compareSnapshots(): Promise<void> {
    const [own, copy] = this.#snapshots;
    if (own === undefined || copy === undefined) throw new Error('there are two snapshots');
    for (const table of this.#planned().replicated) {
      const difference = await compareUnlocked(own.session.client, copy.session.client, table);
      if (difference === undefined) continue;
      if (!(await this.#isStoredAnew(table, own, copy))) throw difference;
      this.#truncated.push(table);
    }
    await this.#endSnapshots();
  }

  /** Whether a table, or its copy, has been truncated since the snapshots were taken. */
  async #isStoredAnew({ from, to }: CopiedTable, own: Snapshot, copy: Snapshot): Promise<boolean> {
    let isStoredAnew = false;
    // Others than those of the snapshots, which need not notice.
    await withSessions(this.#from, this.#to, async ({ client: here }, { client: there }) => {
      const [now, copied] = [await storageOf(here, [from]), await storageOf(there, [to])];
      isStoredAnew = now.get(from) !== own.storage.get(from) || copied.get(to) !== copy.storage.get(to);
    });
    return isStoredAnew;
  }

  /**
   * Completes the copy in a pause.
   * @returns how much the organization has
   * @throws ServiceError `organization_busy` if its definitions have changed meanwhile, or the copy does not catch up
   */
  async complete(
    source: OpenPlacement,
    target: OpenPlacement,
    limitMs: number,
  ): Promise<{ readonly tables: number; readonly rows: number }> {
    const { contents, definitions, replicated, copiedInPause, late } = this.#planned();
    const { client: reading } = source.session;
    const { client: writing } = target.session;
    await lockTables(reading, contents);
    await this.#replication.caughtUp(limitMs);
    const [now, rows] = await allOf(readDefinitions(reading, source), compareCounts(reading, writing, replicated), this.#replication.end());
    if (!areSame(now, definitions)) throw changedMeanwhile();
    await compareTables(reading, writing, this.#truncated);
    await copyTables(source, target, copiedInPause);
    await runDefinitions(writing, late, target.placement.schema);
    for (const view of contents.views) await writing.query(`REFRESH MATERIALIZED VIEW ${view}`);
    await carrySequences(reading, writing, contents);
    const others = await compareTables(reading, writing, copiedInPause);
    await completeDefinitions(source, target);
    await this.#replication.unpublish();
    return { tables: contents.tables.length, rows: rows + others };
  }

  async close(): Promise<void> {
    await this.#endSnapshots();
    await this.#replication.close();
  }

  async #endSnapshots(): Promise<void> {
    const sessions = this.#snapshots;
    this.#snapshots = [];
    for (const { session } of sessions) await session.end();
  }

  #planned(): Plan {
    if (this.#plan === undefined) throw new Error('the copy has not begun');
    return this.#plan;
  }
}

/** Runs `work` with a session at one placement, and one at another. */
async function withSessions(
  own: ServedPlacement,
  copy: ServedPlacement,
  work: (own: TenantSession, copy: TenantSession) => Promise<void>,
): Promise<void> {
  const reading = await openTenantSession(own.server, own.placement);
  try {
    const writing = await openTenantSession(copy.server, copy.placement);
    await work(reading, writing).finally(() => writing.end());
  } finally {
    await reading.end();
  }
}

/** As Promise.all, but nothing goes on after a failure. */
async function allOf<A, B, C>(...work: readonly [Promise<A>, Promise<B>, Promise<C>]): Promise<[A, B, C]> {
  await Promise.allSettled(work);
  return Promise.all(work);
}

/** Where the rows of tables are stored, which TRUNCATE changes. */
async function storageOf(client: pg.Client, tables: readonly string[]): Promise<ReadonlyMap<string, string>> {
  const { rows } = await client.query<{ name: string; storage: string | null }>(
    `SELECT name, pg_catalog.pg_relation_filenode(pg_catalog.to_regclass(name))::text AS storage FROM pg_catalog.unnest($1::text[]) AS name`,
    [tables],
  );
  return new Map(rows.map(({ name, storage }) => [name, storage ?? '']));
}

const UNDEFINED_TABLE = '42P01';

/** Compares a table as a snapshot has it. Its locks are released, so that nobody has to wait until other tables have been compared. */
async function compareUnlocked(own: pg.Client, copy: pg.Client, table: CopiedTable): Promise<ServiceError | undefined> {
  for (const client of [own, copy]) await client.query('SAVEPOINT compared');
  const { difference } = await compareTable(own, copy, table).catch((cause: unknown) => {
    throw codeOf(cause) === UNDEFINED_TABLE ? changedMeanwhile() : cause;
  });
  for (const client of [own, copy]) await client.query('ROLLBACK TO compared');
  return difference;
}

function changedMeanwhile(): ServiceError {
  return new ServiceError('organization_busy', 'tables or other definitions were changed while the data was copied', {
    hint: 'Move the organization again when no migration runs.',
  });
}
