import type { Sql } from '../database/control-connection.ts';
import { OTHERS_ID, type StatementCounts, TEXTS_MAX } from './statement-counters.ts';

export const QUERY_ORDERS = ['totalTime', 'meanTime', 'calls', 'rows', 'errors', 'bytes'] as const;
export type QueryOrder = (typeof QUERY_ORDERS)[number];

/** Those not run for so long are deleted. */
const KEPT_MS = 30 * 86_400_000;

/** What one role of an organization has run. */
export interface RoleCounts {
  readonly organizationId: string;
  readonly isReader: boolean;
  readonly counts: readonly StatementCounts[];
}

/** Whose statements are wanted. */
export interface StatementsOf {
  readonly organizationId: string;
  /** Whether those of read keys are. */
  readonly ofReaders: boolean;
  readonly ofOthers: boolean;
}

/** As it is stored. */
export interface StoredStatistic {
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
export async function addStatistics(sql: Sql, roles: readonly RoleCounts[], timeOf: (at: number) => Date): Promise<void> {
  const rows = roles.flatMap(({ organizationId, isReader, counts }) =>
    counts.map(({ firstAt, lastAt, ...of }) => ({ organizationId, isReader, ...of, firstSeen: timeOf(firstAt), lastSeen: timeOf(lastAt) })),
  );
  const written = await sql<{ id: string; isNew: boolean }[]>`
    insert into postern.query_statistics as stored
      (organization_id, is_reader, query_id, sql, calls, errors, rows, bytes, total_ms, max_ms, first_seen, last_seen, latency)
    select o.id, c."isReader", c."queryId", c.sql, c.calls, c.errors, c.rows, c.bytes, c."totalMs", c."maxMs", c."firstSeen", c."lastSeen", c.latency
    from jsonb_to_recordset(${JSON.stringify(rows)}::text::jsonb) as c ("organizationId" text, "isReader" boolean, "queryId" bigint, sql text,
      calls bigint, errors bigint, rows bigint, bytes bigint, "totalMs" float8, "maxMs" float8, "firstSeen" timestamptz, "lastSeen" timestamptz,
      latency bigint[])
    join postern.organizations o on o.id = c."organizationId" and o.status <> 'dropped'
    on conflict (organization_id, is_reader, query_id) do update set
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
      select organization_id, is_reader, query_id,
        row_number() over (partition by organization_id, is_reader order by total_ms desc, query_id) as place
      from postern.query_statistics
      where organization_id in (select jsonb_array_elements_text(${JSON.stringify(organizationIds)}::text::jsonb)) and query_id <> ${OTHERS_ID}
    ),
    gone as (
      delete from postern.query_statistics s using ranked r
      where r.place > ${TEXTS_MAX} and (s.organization_id, s.is_reader, s.query_id) = (r.organization_id, r.is_reader, r.query_id)
      returning s.*
    )
    insert into postern.query_statistics as stored
      (organization_id, is_reader, query_id, sql, calls, errors, rows, bytes, total_ms, max_ms, first_seen, last_seen, latency)
    select g.organization_id, g.is_reader, ${OTHERS_ID}, '', sum(calls), sum(errors), sum(rows), sum(bytes), sum(total_ms), max(max_ms),
      min(first_seen), max(last_seen),
      array(
        select sum(counts.value)::bigint from gone of_, unnest(of_.latency) with ordinality as counts (value, place)
        where (of_.organization_id, of_.is_reader) = (g.organization_id, g.is_reader) group by counts.place order by counts.place)
    from gone g
    group by g.organization_id, g.is_reader
    on conflict (organization_id, is_reader, query_id) do update set
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
export async function readStatistics(
  sql: Sql,
  { organizationId, ofReaders, ofOthers }: StatementsOf,
  order: QueryOrder,
  limit: number,
): Promise<readonly StoredStatistic[]> {
  return sql<StoredStatistic[]>`
    with own as (
      select query_id::text as "queryId", min(sql) as sql, sum(calls)::float8 as calls, sum(errors)::float8 as errors,
        sum(rows)::float8 as rows, sum(bytes)::float8 as bytes, sum(total_ms) as "totalMs", max(max_ms) as "maxMs",
        min(first_seen) as "firstSeenAt", max(last_seen) as "lastSeenAt", json_agg(latency) as latencies
      from postern.query_statistics
      where organization_id = ${organizationId} and case when is_reader then ${ofReaders}::boolean else ${ofOthers}::boolean end
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
export async function statisticsBegan(sql: Sql, { organizationId, ofReaders, ofOthers }: StatementsOf): Promise<Date | null> {
  const [row] = await sql<{ since: Date | null }[]>`
    select min(first_seen) as since from postern.query_statistics
    where organization_id = ${organizationId} and case when is_reader then ${ofReaders}::boolean else ${ofOthers}::boolean end`;
  return row?.since ?? null;
}

export async function deleteOldStatistics(sql: Sql, now: Date): Promise<void> {
  await sql`delete from postern.query_statistics where last_seen < ${new Date(now.getTime() - KEPT_MS)}`;
}

/** For an organization that is dropped. */
export async function deleteStatistics(sql: Sql, organizationId: string): Promise<void> {
  await sql`delete from postern.query_statistics where organization_id = ${organizationId}`;
}
