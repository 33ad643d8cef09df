import type pg from 'pg';
import type { Observe } from '../observation.ts';
import { ADVISORY_LOCKS } from './advisory-locks.ts';
import type { ControlPool, Sql } from './control-pool.ts';
import type { Organization } from './organization.ts';
import {
  type CountersMemory,
  OTHERS_ID,
  RoleStatements,
  type StatementCounts,
  type StatementRole,
  TEXTS_MAX,
} from './statement-counters.ts';
import { addUp, percentile } from './usage.ts';

export const QUERIES_MAX = 100;

export interface QueryStatistic extends Omit<StoredStatistic, 'latencies'> {
  readonly meanMs: number;
  readonly p99Ms: number;
}

interface QueryStatisticsReply {
  readonly statsSince: Date | null;
  readonly queries: readonly QueryStatistic[];
  /** What is not told apart, together; null: there is none. */
  readonly others: QueryStatistic | null;
}

/** When a statement has just run, it is soon to be seen by all processes; and a process that is killed loses only so much. */
const FLUSH_EVERY_MS = 15_000;
/** Written by one statement. */
const ROWS_PER_WRITE = 500;
const COUNTERS_MAX_BYTES = 64 * 1_048_576;

/**
 * Which statements organizations run, and how long these take: counted in memory, and added to the control database every few seconds and
 * at the end.
 */
export class QueryStatistics {
  readonly #database: ControlPool;
  readonly #now: () => Date;
  readonly #memory: CountersMemory;
  /** There is one organization object for each role. */
  readonly #byOrganization = new WeakMap<Organization, RoleStatements>();
  /** Those that have counted something lately. */
  readonly #active = new Set<RoleStatements>();
  #timer: NodeJS.Timeout | undefined;
  #writing: Promise<void> = Promise.resolve();

  constructor(database: ControlPool, now: () => Date, maxBytes = COUNTERS_MAX_BYTES) {
    this.#database = database;
    this.#now = now;
    this.#memory = { bytes: 0, maxBytes };
  }

  /**
   * @param organization as its role sees it
   * @param asWritten a statement that reached the server, as the organization wrote it
   */
  of(organization: Organization, role: StatementRole, asWritten: (sql: string) => string): RoleStatements {
    let statements = this.#byOrganization.get(organization);
    if (statements === undefined) {
      const of = { organizationId: organization.id, role };
      statements = new RoleStatements(of, asWritten, this.#memory, (active) => this.#active.add(active));
      this.#byOrganization.set(organization, statements);
    }
    return statements;
  }

  start(): void {
    this.#timer = setInterval(() => void this.flush(), FLUSH_EVERY_MS).unref();
  }

  /** Writes what is left. */
  async stop(): Promise<void> {
    clearInterval(this.#timer);
    await this.flush();
  }

  /** Never rejects. What cannot be written counts again. @param organizationId only this one's */
  flush(organizationId?: string): Promise<void> {
    this.#writing = this.#writing.then(() => this.#write(organizationId));
    return this.#writing;
  }

  async read(of: StatementsOf, order: QueryOrder, limit: number): Promise<QueryStatisticsReply> {
    await this.flush(of.organizationId);
    const [stored, statsSince] = await this.#database.snapshot(async (sql) => [
      await readStatistics(sql, of, order, limit),
      await statisticsBegan(sql, of),
    ]);
    const others = stored.find(({ queryId }) => queryId === OTHERS_ID);
    return {
      statsSince,
      queries: stored.filter((each) => each !== others).map(shown),
      others: others === undefined ? null : shown(others),
    };
  }

  async #write(organizationId: string | undefined): Promise<void> {
    let part: Taken[] = [];
    let rows = 0;
    for (const statements of [...this.#active]) {
      if (organizationId !== undefined && statements.organizationId !== organizationId) continue;
      const counts = statements.takeAll();
      if (statements.isIdle) this.#active.delete(statements);
      if (counts.length === 0) continue;
      part.push({ statements, counts });
      rows += counts.length;
      if (rows < ROWS_PER_WRITE) continue;
      await this.#writePart(part);
      part = [];
      rows = 0;
    }
    if (part.length > 0) await this.#writePart(part);
  }

  async #writePart(part: readonly Taken[]): Promise<void> {
    const offset = this.#now().getTime() - performance.now();
    try {
      await this.#database.transaction(async (sql) => {
        // Two processes that change the same rows in another order would block each other.
        await sql`select pg_catalog.pg_advisory_xact_lock(${ADVISORY_LOCKS.queryStatistics}, 0)`;
        for (const roles of eachRoleOnce(part)) await addStatistics(sql, roles, (at) => new Date(offset + at));
      });
    } catch {
      for (const { statements, counts } of part) statements.giveBack(counts);
    }
  }
}

interface Taken {
  readonly statements: RoleStatements;
  readonly counts: readonly StatementCounts[];
}

/** A role has two objects for a while when its organization has been read anew. One statement must not write a row twice. */
function eachRoleOnce(part: readonly Taken[]): readonly (readonly RoleCounts[])[] {
  const writes: Map<string, RoleCounts>[] = [];
  for (const { statements, counts } of part) {
    const { organizationId, role } = statements;
    const key = `${organizationId} ${role}`;
    const write = writes.find((roles) => !roles.has(key)) ?? new Map<string, RoleCounts>();
    if (write.size === 0) writes.push(write);
    write.set(key, { organizationId, role, counts });
  }
  return writes.map((roles) => [...roles.values()]);
}

function shown({ latencies, ...statistic }: StoredStatistic): QueryStatistic {
  const { calls, totalMs, maxMs } = statistic;
  // The middle of a bucket may be more than the longest run.
  const p99Ms = Math.min(percentile(addUp(latencies), 0.99), maxMs);
  return { ...statistic, meanMs: totalMs / Math.max(1, calls), p99Ms };
}

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

/** The setting is there if the server preloads pg_stat_statements. */
const PRELOADED = "pg_catalog.current_setting('pg_stat_statements.max', true) IS NOT NULL";

const INSUFFICIENT_PRIVILEGE = '42501';

const WARNING =
  'the PostgreSQL server preloads pg_stat_statements, in which a statement of any key can end the server process, and with it the ' +
  'sessions of all organizations: take it out of shared_preload_libraries (POSTERN_QUERY_STATISTICS=off for the embedded server)';

/**
 * Warns where the server preloads pg_stat_statements. There the extension is created for operators, in the control database only, where
 * no organization can connect: in its view, each would see the others' queries. A role gets what {@link TextFileWatch} needs.
 * @param session in the control database
 * @param role the one that watches, which may be another than the session's
 */
export async function provideQueryStatistics(session: pg.Client, role: string, observe: Observe): Promise<void> {
  const { rows } = await session.query<{ preloaded: boolean }>(`SELECT ${PRELOADED} AS preloaded`);
  if (!rows[0]?.preloaded) return;
  observe({ name: 'service.warning', message: WARNING });
  try {
    await session.query('CREATE EXTENSION IF NOT EXISTS pg_stat_statements SCHEMA public; ALTER EXTENSION pg_stat_statements UPDATE');
    await session.query(`GRANT EXECUTE ON FUNCTION pg_catalog.pg_stat_file(text, boolean) TO ${role}`);
    await session.query(await grantReset(session, role));
  } catch (error) {
    // Not a superuser: the operator may do it, as docker/README.md says. Where nothing is missing, nothing has to be done.
    if (!(error instanceof Error && 'code' in error && error.code === INSUFFICIENT_PRIVILEGE)) throw error;
  }
}

/** Its parameters differ between versions. */
async function grantReset(session: pg.Client, role: string): Promise<string> {
  const { rows } = await session.query<{ signature: string }>(
    `SELECT oid::pg_catalog.regprocedure::text AS signature FROM pg_catalog.pg_proc
     WHERE proname = 'pg_stat_statements_reset' AND pronamespace = 'public'::pg_catalog.regnamespace`,
  );
  return rows.map(({ signature }) => `GRANT EXECUTE ON FUNCTION ${signature} TO ${role}`).join('; ');
}

export const QUERY_ORDERS = ['totalTime', 'meanTime', 'calls', 'rows', 'errors', 'bytes'] as const;
type QueryOrder = (typeof QUERY_ORDERS)[number];

/** Those not run for so long are deleted. */
const KEPT_MS = 30 * 86_400_000;

/** What one role of an organization has run. */
interface RoleCounts {
  readonly organizationId: string;
  readonly role: StatementRole;
  readonly counts: readonly StatementCounts[];
}

/** Whose statements are wanted. */
interface StatementsOf {
  readonly organizationId: string;
  readonly roles: readonly StatementRole[];
}

/** As it is stored. */
interface StoredStatistic {
  readonly queryId: string;
  readonly sql: string;
  readonly calls: number;
  readonly errors: number;
  readonly rows: number;
  readonly bytes: number;
  readonly totalMs: number;
  readonly maxMs: number;
  readonly firstSeenAt: Date;
  readonly lastSeenAt: Date;
  /** One for each role. */
  readonly latencies: readonly (readonly number[])[];
}

/**
 * Adds counts to those that are stored. An organization that has been dropped meanwhile gets none.
 * @param sql in a transaction in which no other process writes statistics
 * @param timeOf of the clock by which it was counted
 */
async function addStatistics(sql: Sql, roles: readonly RoleCounts[], timeOf: (at: number) => Date): Promise<void> {
  const rows = roles.flatMap(({ organizationId, role, counts }) =>
    counts.map(({ firstAt, lastAt, ...of }) => ({ organizationId, role, ...of, firstSeen: timeOf(firstAt), lastSeen: timeOf(lastAt) })),
  );
  const written = await sql<{ id: string; isNew: boolean }[]>`
    insert into postern.query_statistics as stored
      (organization_id, role, query_id, sql, calls, errors, rows, bytes, total_ms, max_ms, first_seen, last_seen, latency)
    select o.id, c.role, c."queryId", c.sql, c.calls, c.errors, c.rows, c.bytes, c."totalMs", c."maxMs", c."firstSeen", c."lastSeen", c.latency
    from jsonb_to_recordset(${JSON.stringify(rows)}::text::jsonb) as c ("organizationId" text, role text, "queryId" bigint, sql text,
      calls bigint, errors bigint, rows bigint, bytes bigint, "totalMs" float8, "maxMs" float8, "firstSeen" timestamptz, "lastSeen" timestamptz,
      latency bigint[])
    join postern.organizations o on o.id = c."organizationId" and o.status <> 'dropped'
    on conflict (organization_id, role, query_id) do update set
      calls = stored.calls + excluded.calls,
      errors = stored.errors + excluded.errors,
      rows = stored.rows + excluded.rows,
      bytes = stored.bytes + excluded.bytes,
      total_ms = stored.total_ms + excluded.total_ms,
      max_ms = greatest(stored.max_ms, excluded.max_ms),
      first_seen = least(stored.first_seen, excluded.first_seen),
      last_seen = greatest(stored.last_seen, excluded.last_seen),
      latency = array(
        select coalesce(a, 0) + coalesce(b, 0) from unnest(stored.latency, excluded.latency) with ordinality as both_(a, b, place) order by place)
    returning organization_id as id, (xmax = 0) as "isNew"`;
  const grown = new Set(written.filter(({ isNew }) => isNew).map(({ id }) => id));
  if (grown.size > 0) await limitTexts(sql, [...grown]);
}

/** Of each role the texts that took the most time stay; the others are added up. */
async function limitTexts(sql: Sql, organizationIds: readonly string[]): Promise<void> {
  await sql`
    with ranked as (
      select organization_id, role, query_id,
        row_number() over (partition by organization_id, role order by total_ms desc, query_id) as place
      from postern.query_statistics
      where organization_id in (select jsonb_array_elements_text(${JSON.stringify(organizationIds)}::text::jsonb)) and query_id <> ${OTHERS_ID}
    ),
    gone as (
      delete from postern.query_statistics s using ranked r
      where r.place > ${TEXTS_MAX} and (s.organization_id, s.role, s.query_id) = (r.organization_id, r.role, r.query_id)
      returning s.*
    )
    insert into postern.query_statistics as stored
      (organization_id, role, query_id, sql, calls, errors, rows, bytes, total_ms, max_ms, first_seen, last_seen, latency)
    select g.organization_id, g.role, ${OTHERS_ID}, '', sum(calls), sum(errors), sum(rows), sum(bytes), sum(total_ms), max(max_ms),
      min(first_seen), max(last_seen),
      array(
        select sum(counts.value)::bigint from gone of_, unnest(of_.latency) with ordinality as counts (value, place)
        where (of_.organization_id, of_.role) = (g.organization_id, g.role) group by counts.place order by counts.place)
    from gone g
    group by g.organization_id, g.role
    on conflict (organization_id, role, query_id) do update set
      calls = stored.calls + excluded.calls,
      errors = stored.errors + excluded.errors,
      rows = stored.rows + excluded.rows,
      bytes = stored.bytes + excluded.bytes,
      total_ms = stored.total_ms + excluded.total_ms,
      max_ms = greatest(stored.max_ms, excluded.max_ms),
      first_seen = least(stored.first_seen, excluded.first_seen),
      last_seen = greatest(stored.last_seen, excluded.last_seen),
      latency = array(
        select coalesce(a, 0) + coalesce(b, 0) from unnest(stored.latency, excluded.latency) with ordinality as both_(a, b, place) order by place)`;
}

/** The largest statements, the largest first, and what all others have in common, which has an empty text. */
async function readStatistics(
  sql: Sql,
  { organizationId, roles }: StatementsOf,
  order: QueryOrder,
  limit: number,
): Promise<readonly StoredStatistic[]> {
  return sql<StoredStatistic[]>`
    with own as (
      select query_id::text as "queryId", min(sql) as sql, sum(calls)::float8 as calls, sum(errors)::float8 as errors,
        sum(rows)::float8 as rows, sum(bytes)::float8 as bytes, sum(total_ms) as "totalMs", max(max_ms) as "maxMs",
        min(first_seen) as "firstSeenAt", max(last_seen) as "lastSeenAt", json_agg(latency) as latencies
      from postern.query_statistics
      where organization_id = ${organizationId} and role in (select jsonb_array_elements_text(${JSON.stringify(roles)}::text::jsonb))
      group by query_id
    )
    (select * from own where "queryId" <> ${OTHERS_ID}
    order by case ${order}::text
      when 'meanTime' then "totalMs" / greatest(calls, 1) when 'calls' then calls when 'rows' then rows when 'errors' then errors
      when 'bytes' then bytes else "totalMs" end desc, "queryId"
    limit ${limit})
    union all
    select * from own where "queryId" = ${OTHERS_ID}`;
}

/** When the oldest of an organization's figures began; null if there are none. */
async function statisticsBegan(sql: Sql, { organizationId, roles }: StatementsOf): Promise<Date | null> {
  const [row] = await sql<{ since: Date | null }[]>`
    select min(first_seen) as since from postern.query_statistics
    where organization_id = ${organizationId} and role in (select jsonb_array_elements_text(${JSON.stringify(roles)}::text::jsonb))`;
  return row?.since ?? null;
}

export async function deleteOldStatistics(sql: Sql, now: Date): Promise<void> {
  await sql`delete from postern.query_statistics where last_seen < ${new Date(now.getTime() - KEPT_MS)}`;
}

/** For an organization that is dropped. */
export async function deleteStatistics(sql: Sql, organizationId: string): Promise<void> {
  await sql`delete from postern.query_statistics where organization_id = ${organizationId}`;
}
