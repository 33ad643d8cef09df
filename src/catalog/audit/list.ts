import { ServiceError } from '../../errors.ts';
import type { Sql } from '../control-pool.ts';
import { type BlockRow, blockColumns, entriesOf, probesOf } from './blocks.ts';
import type { AuditEntry } from './records.ts';

const LIMIT_DEFAULT = 50;
const PAGE_BLOCKS = 4;
/** One statement searches at most this many entries, which takes a few tenths of a second. */
const WINDOW_ENTRIES = 500_000;
/** After this time a search returns the entries found so far, because it occupies a session of the control database. */
const SEARCH_MS = 3_000;
const AUDIT_LIMIT_MAX = 1_000;

export interface AuditFilters {
  /** 1 to 1,000; 50 where absent. */
  readonly limit?: number;
  /** The `nextCursor` of the previous page. */
  readonly after?: string;
  readonly action?: string;
  readonly outcome?: 'ok' | 'error';
  /** Entries at or after this time. */
  readonly since?: Date;
  /** Entries before this time. */
  readonly until?: Date;
  readonly requestId?: string;
}

export interface AuditPage {
  /** Newest first. */
  readonly data: AuditEntry[];
  /** True also where only a part of a long log has been searched; `data` may be empty then. */
  readonly hasMore: boolean;
  /** For `after`; null on the last page. */
  readonly nextCursor: string | null;
  /** The positions of entries that cannot be read because the database was tampered with; undefined where there are none. */
  readonly unreadable?: readonly Gap[];
}

/** A range of positions in the chain, both ends included. */
interface Gap {
  readonly fromSeq: number;
  readonly toSeq: number;
}

/**
 * One page of an organization's audit log. Entries added between two calls do not shift the later pages.
 * @throws ServiceError `invalid_request` for a limit out of range or an invalid cursor
 */
export async function listEntries(sql: Sql, organizationId: string, filters: AuditFilters, searchMs = SEARCH_MS): Promise<AuditPage> {
  const limit = filters.limit ?? LIMIT_DEFAULT;
  if (!Number.isInteger(limit) || limit < 1 || limit > AUDIT_LIMIT_MAX) {
    throw new ServiceError('invalid_request', `limit: must be a whole number from 1 to ${AUDIT_LIMIT_MAX}`);
  }
  const bounds = boundsOf(filters);
  const startedAt = performance.now();
  const found: AuditEntry[] = [];
  const gaps: Gap[] = [];
  for await (const { blocks, leftOffAt } of pages(sql, organizationId, bounds, filters)) {
    for (const block of blocks) {
      const { wanted, gap } = readBlock(block, (entry) => isWanted(entry, bounds, filters));
      found.push(...wanted.reverse());
      if (gap !== undefined && isBefore(bounds, gap.fromSeq)) gaps.push(gap);
      if (found.length > limit) return pageOf(found.slice(0, limit), gaps, found[limit - 1]?.seq);
    }
    if (performance.now() - startedAt >= searchMs) return pageOf(found, gaps, leftOffAt);
  }
  return pageOf(found, gaps, undefined);
}

/**
 * The entries of a block up to the first that is malformed or out of sequence; later ones may refer to values in it. Somebody who
 * changes one entry in the database must not make the whole log unreadable, and what cannot be read must be reported.
 */
function readBlock({ entries, prev_hash, first_seq, seq }: BlockRow, isWanted: (entry: AuditEntry) => boolean) {
  const wanted: AuditEntry[] = [];
  const toSeq = Number(seq);
  let fromSeq = Number(first_seq);
  try {
    for (const entry of entriesOf(entries, prev_hash)) {
      if (entry.seq !== fromSeq) break;
      if (isWanted(entry)) wanted.push(entry);
      fromSeq += 1;
    }
  } catch {
    // The unreadable entries are reported as a gap.
  }
  return { wanted, gap: fromSeq > toSeq ? undefined : { fromSeq, toSeq } };
}

/** @param leftOffAt the next page shows the entries before this position; undefined: there is no next page */
function pageOf(data: AuditEntry[], gaps: readonly Gap[], leftOffAt: number | undefined): AuditPage {
  const hasMore = leftOffAt !== undefined;
  const unreadable = hasMore ? gaps.filter(({ fromSeq }) => fromSeq >= leftOffAt) : gaps;
  const page = { data, hasMore, nextCursor: hasMore ? encodeCursor(leftOffAt) : null };
  return unreadable.length === 0 ? page : { ...page, unreadable };
}

/** Bounds on the position and time of entries; times are in the format of entries. */
interface Bounds {
  readonly beforeSeq: number | undefined;
  readonly since: string | undefined;
  readonly until: string | undefined;
}

function boundsOf({ after, since, until }: AuditFilters): Bounds {
  return {
    beforeSeq: after === undefined ? undefined : decodeCursor(after),
    since: since && instantOf(since),
    until: until && instantOf(until),
  };
}

const EARLIEST_MS = Date.parse('0001-01-01T00:00:00.000Z');
const LATEST_MS = Date.parse('9999-12-31T23:59:59.999Z');

/** Limits the year to four digits, because Postgres reads no other ISO time. No entry is outside of that. */
function instantOf(date: Date): string {
  return new Date(Math.min(Math.max(date.getTime(), EARLIEST_MS), LATEST_MS)).toISOString();
}

interface BlockPage {
  readonly blocks: readonly BlockRow[];
  /** These blocks and those of the earlier pages hold all entries from this position on; undefined on the last page. */
  readonly leftOffAt: number | undefined;
}

/** The blocks that may hold wanted entries, the newest first. */
async function* pages(sql: Sql, organizationId: string, bounds: Bounds, filters: AuditFilters): AsyncGenerator<BlockPage> {
  const { oldest, newest } = await endsOf(sql, organizationId, bounds);
  for (let before = newest + 1; before > oldest; ) {
    const windowStart = Math.max(before - WINDOW_ENTRIES, oldest);
    const blocks = await sql<BlockRow[]>`
      select ${blockColumns(sql)}
      from postern.audit_blocks
      where organization_id = ${organizationId} and seq >= ${windowStart} and seq < ${before} ${conditions(sql, bounds, filters)}
      order by seq desc
      limit ${PAGE_BLOCKS}`;
    const last = blocks.at(-1);
    before = last !== undefined && blocks.length === PAGE_BLOCKS ? Number(last.seq) : windowStart;
    // A block's position is that of its last entry.
    const leftOffAt = Math.min(before, Number(last?.first_seq ?? before));
    yield { blocks, leftOffAt: before > oldest ? leftOffAt : undefined };
  }
}

/** The positions of the oldest and the newest block that may hold wanted entries. */
async function endsOf(sql: Sql, organizationId: string, { beforeSeq }: Bounds): Promise<{ oldest: number; newest: number }> {
  const blocks = () => sql`
    from postern.audit_blocks where organization_id = ${organizationId} and seq between 1 and ${Number.MAX_SAFE_INTEGER - 1}`;
  const [ends] = await sql<{ oldest: string | null; newest: string | null }[]>`
    select
      (select min(seq) ${blocks()}) as oldest,
      coalesce((select min(seq) ${blocks()} and seq >= ${beforeSeq ?? null}::bigint), (select max(seq) ${blocks()})) as newest`;
  return { oldest: Number(ends?.oldest ?? 1), newest: Number(ends?.newest ?? 0) };
}

function conditions(sql: Sql, { beforeSeq, since, until }: Bounds, { action, outcome, requestId }: AuditFilters) {
  const holds = (text: string | undefined) => (text === undefined ? sql`` : sql`and strpos(entries, ${text}) > 0`);
  return [
    beforeSeq === undefined ? sql`` : sql`and first_seq < ${beforeSeq}`,
    since === undefined ? sql`` : sql`and last_at >= ${since}`,
    until === undefined ? sql`` : sql`and first_at < ${until}`,
    holds(action && JSON.stringify(action)),
    holdsRequest(sql, requestId),
    holds(outcome && `"status":"${outcome}"`),
  ];
}

/** `case` fixes the order of evaluation: the filter is checked first, because searching the entries is slow. */
function holdsRequest(sql: Sql, id: string | undefined) {
  if (id === undefined) return sql``;
  return sql`and case
    when request_filter is null
      or (select bool_and(get_bit(request_filter, bit % (8 * length(request_filter))) = 1) from unnest(${`{${probesOf(id)}}`}::bigint[]) as bit)
    then strpos(entries, ${JSON.stringify(id)}) > 0
  end`;
}

function isBefore({ beforeSeq }: Bounds, seq: number): boolean {
  return beforeSeq === undefined || seq < beforeSeq;
}

function isWanted(entry: AuditEntry, bounds: Bounds, { action, outcome, requestId }: AuditFilters): boolean {
  const { since, until } = bounds;
  const { seq, occurredAt } = entry;
  const isWithin = isBefore(bounds, seq) && !(since && occurredAt < since) && !(until && occurredAt >= until);
  if (!isWithin || (action !== undefined && entry.action !== action)) return false;
  return (outcome === undefined || entry.outcome.status === outcome) && (requestId === undefined || entry.requestId === requestId);
}

/** An opaque cursor: a position in a list that is read newest first. */
function encodeCursor(seq: number): string {
  return Buffer.from(`1.${seq}`).toString('base64url');
}

/** @throws ServiceError `invalid_request` when it was not made by {@link encodeCursor} */
function decodeCursor(cursor: string): number {
  const seq = /^1\.([1-9]\d{0,15})$/.exec(Buffer.from(cursor, 'base64url').toString())?.[1];
  if (seq === undefined || encodeCursor(Number(seq)) !== cursor)
    throw new ServiceError('invalid_request', 'after: is not a cursor of this list');
  return Number(seq);
}
