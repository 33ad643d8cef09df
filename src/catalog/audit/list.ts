import { ServiceError } from '../../errors.ts';
import type { Sql } from '../database/control-connection.ts';
import { entriesOf } from './blocks/blocks.ts';
import { probesOf } from './blocks/bloom-filter.ts';
import { type BlockRow, blockColumns } from './blocks/rows.ts';
import { decodeCursor, encodeCursor } from './cursor.ts';
import type { AuditEntry } from './entries/entry.ts';

const LIMIT_DEFAULT = 50;
const PAGE_BLOCKS = 4;
/** One statement looks through so many entries at most: some tenths of a second, of the seconds that it may take. */
const WINDOW_ENTRIES = 500_000;
/** Who looks for what is rare in a long log gets what has been found by then: a session of the control database is not to be had for longer. */
const PATIENCE_MS = 3_000;
const AUDIT_LIMIT_MAX = 1_000;

export interface AuditFilters {
  /** 1 to 1,000; 50 where absent. */
  readonly limit?: number;
  /** `nextCursor` of the page before. */
  readonly after?: string;
  readonly action?: string;
  readonly outcome?: 'ok' | 'error';
  /** From this instant on. */
  readonly since?: Date;
  /** Before this instant. */
  readonly until?: Date;
  readonly requestId?: string;
}

export interface AuditPage {
  /** Newest first. */
  readonly data: AuditEntry[];
  /** Also where only a part of a long log has been looked through, however much `data` holds. */
  readonly hasMore: boolean;
  /** For `after`; null on the last page. */
  readonly nextCursor: string | null;
  /** Where entries should be that cannot be read, for they were changed in the database; absent where there are none. */
  readonly unreadable?: readonly Gap[];
}

/** Places in the chain, the first and the last of them included. */
interface Gap {
  readonly fromSeq: number;
  readonly toSeq: number;
}

/**
 * One page of an organization's audit log. Entries that are added meanwhile do not shift what later pages show.
 * @throws ServiceError `invalid_request` for a limit out of range or a foreign cursor
 */
export async function listEntries(sql: Sql, organizationId: string, filters: AuditFilters, patienceMs = PATIENCE_MS): Promise<AuditPage> {
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
    if (performance.now() - startedAt >= patienceMs) return pageOf(found, gaps, leftOffAt);
  }
  return pageOf(found, gaps, undefined);
}

/**
 * The entries of a block up to one that nobody has written so, or that is not at its place: those behind that may refer to what
 * it said. Whoever changes one entry must not hide the whole log, nor anything of it unnoticed.
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
    // What could not be read is told by where it should be.
  }
  return { wanted, gap: fromSeq > toSeq ? undefined : { fromSeq, toSeq } };
}

/** @param leftOffAt the next page shows what is before that; undefined if there is none */
function pageOf(data: AuditEntry[], gaps: readonly Gap[], leftOffAt: number | undefined): AuditPage {
  const hasMore = leftOffAt !== undefined;
  const unreadable = hasMore ? gaps.filter(({ fromSeq }) => fromSeq >= leftOffAt) : gaps;
  const page = { data, hasMore, nextCursor: hasMore ? encodeCursor(leftOffAt) : null };
  return unreadable.length === 0 ? page : { ...page, unreadable };
}

/** What entries have to lie within, both ends told as they are told in entries. */
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

/** Beyond years of four digits Postgres reads no ISO time, and no entry is there. */
function instantOf(date: Date): string {
  return new Date(Math.min(Math.max(date.getTime(), EARLIEST_MS), LATEST_MS)).toISOString();
}

interface BlockPage {
  readonly blocks: readonly BlockRow[];
  /** All that is wanted from here on is in these blocks and those of the pages before; undefined on the last page. */
  readonly leftOffAt: number | undefined;
}

/** Blocks that may hold what is wanted, the newest first. */
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
    // A block reaches back from its place.
    const leftOffAt = Math.min(before, Number(last?.first_seq ?? before));
    yield { blocks, leftOffAt: before > oldest ? leftOffAt : undefined };
  }
}

/** Places of the blocks among which is all that may be wanted. */
async function endsOf(sql: Sql, organizationId: string, { beforeSeq }: Bounds): Promise<{ oldest: number; newest: number }> {
  const places = () => sql`
    from postern.audit_blocks where organization_id = ${organizationId} and seq between 1 and ${Number.MAX_SAFE_INTEGER - 1}`;
  const [ends] = await sql<{ oldest: string | null; newest: string | null }[]>`
    select
      (select min(seq) ${places()}) as oldest,
      coalesce((select min(seq) ${places()} and seq >= ${beforeSeq ?? null}::bigint), (select max(seq) ${places()})) as newest`;
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

/** In the order in which it is written: to look into the entries is dear. */
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
