import type { Sql } from '../database/control-connection.ts';
import type { UsageCounts } from './counters.ts';

export const USAGE_PERIODS = ['24h', '90d'] as const;
export type UsagePeriod = (typeof USAGE_PERIODS)[number];

export interface StoredUsage extends UsageCounts {
  readonly startsAt: Date;
}

/** What is counted in a minute belongs to the five minutes and the day (UTC) in which the minute began. */
export function intervalsOf(at: Date): { readonly fiveMinutes: Date; readonly day: Date } {
  const floorTo = (ms: number) => new Date(Math.floor(at.getTime() / ms) * ms);
  return { fiveMinutes: floorTo(FIVE_MINUTES_MS), day: floorTo(DAY_MS) };
}

const FIVE_MINUTES_MS = 300_000;
const DAY_MS = 86_400_000;
const KEPT_MS = { fiveMinutes: 25 * 3_600_000, day: 91 * DAY_MS };
const SHOWN_MS: Readonly<Record<UsagePeriod, number>> = { '24h': DAY_MS, '90d': 90 * DAY_MS };

/**
 * Adds counts to those that are stored. Rows are locked in the order of their ids, so that processes cannot deadlock. An organization that
 * has been dropped meanwhile gets none.
 */
export async function addUsage(sql: Sql, usage: ReadonlyMap<string, UsageCounts>, at: Date): Promise<void> {
  const counts = JSON.stringify([...usage].map(([id, of]) => ({ id, ...of })));
  const { fiveMinutes, day } = intervalsOf(at);
  await sql`
    insert into postern.usage as stored
      (organization_id, is_day, starts_at, statements, errors, rows, bytes_in, bytes_out, peak_sessions, latency)
    select o.id, i.is_day, i.starts_at, c.statements, c.errors, c.rows, c."bytesIn", c."bytesOut", c."peakSessions", c.latency
    from jsonb_to_recordset(${counts}::text::jsonb) as c (id text, statements bigint, errors bigint, rows bigint, "bytesIn" bigint,
      "bytesOut" bigint, "peakSessions" integer, latency bigint[])
    join postern.organizations o on o.id = c.id and o.status <> 'dropped'
    cross join (values (false, ${fiveMinutes}::timestamptz), (true, ${day}::timestamptz)) as i (is_day, starts_at)
    order by o.id, i.is_day
    on conflict (organization_id, is_day, starts_at) do update set
      statements = stored.statements + excluded.statements,
      errors = stored.errors + excluded.errors,
      rows = stored.rows + excluded.rows,
      bytes_in = stored.bytes_in + excluded.bytes_in,
      bytes_out = stored.bytes_out + excluded.bytes_out,
      peak_sessions = greatest(stored.peak_sessions, excluded.peak_sessions),
      latency = array(
        select coalesce(a, 0) + coalesce(b, 0) from unnest(stored.latency, excluded.latency) with ordinality as both_(a, b, place) order by place)`;
}

/** The intervals of a period in which something happened, the oldest first. */
export async function readUsage(sql: Sql, organizationId: string, period: UsagePeriod, now: Date): Promise<readonly StoredUsage[]> {
  const since = new Date(now.getTime() - SHOWN_MS[period]);
  return sql<StoredUsage[]>`
    select starts_at as "startsAt", statements::float8, errors::float8, rows::float8, bytes_in::float8 as "bytesIn",
      bytes_out::float8 as "bytesOut", peak_sessions as "peakSessions", to_json(latency) as latency
    from postern.usage
    where organization_id = ${organizationId} and is_day = ${period === '90d'} and starts_at > ${since}
    order by starts_at`;
}

export async function deleteOldUsage(sql: Sql, now: Date): Promise<void> {
  const before = (ms: number) => new Date(now.getTime() - ms);
  await sql`
    delete from postern.usage
    where (not is_day and starts_at < ${before(KEPT_MS.fiveMinutes)}) or (is_day and starts_at < ${before(KEPT_MS.day)})`;
}

/** For an organization that is dropped. */
export async function deleteUsage(sql: Sql, organizationId: string): Promise<void> {
  await sql`delete from postern.usage where organization_id = ${organizationId}`;
}
