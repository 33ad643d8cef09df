import { ServiceError } from '../errors.ts';
import { entriesOf } from './audit-blocks.ts';
import type { AuditEntry } from './audit-entry.ts';
import { type BlockRow, blockColumns } from './audit-rows.ts';
import { decodeCursor, encodeCursor } from './cursor.ts';
import { probesOf } from './request-filter.ts';
import type { Sql } from './session.ts';

const LIMIT_DEFAULT = 50;
const PAGE_BLOCKS = 4;
export const AUDIT_LIMIT_MAX = 1_000;

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
  readonly hasMore: boolean;
  /** For `after`; null on the last page. */
  readonly nextCursor: string | null;
}

/**
 * One page of an organization's audit log. Entries that are added meanwhile do not shift what later pages show.
 * @throws ServiceError `invalid_request` for a limit out of range or a foreign cursor
 */
export async function listEntries(sql: Sql, organizationId: string, filters: AuditFilters): Promise<AuditPage> {
  const limit = filters.limit ?? LIMIT_DEFAULT;
  if (!Number.isInteger(limit) || limit < 1 || limit > AUDIT_LIMIT_MAX) {
    throw new ServiceError('invalid_request', `limit: must be a whole number from 1 to ${AUDIT_LIMIT_MAX}`);
  }
  const bounds = boundsOf(filters);
  const found: AuditEntry[] = [];
  for await (const { entries, prev_hash } of blocks(sql, organizationId, bounds, filters)) {
    found.push(...[...entriesOf(entries, prev_hash)].filter((entry) => isWanted(entry, bounds, filters)).reverse());
    if (found.length > limit) break;
  }
  const data = found.slice(0, limit);
  const last = data.at(-1);
  const hasMore = found.length > limit;
  return { data, hasMore, nextCursor: hasMore && last !== undefined ? encodeCursor(last.seq) : null };
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
    since: since?.toISOString(),
    until: until?.toISOString(),
  };
}

/** Blocks that may hold what is wanted, the newest first. */
async function* blocks(sql: Sql, organizationId: string, bounds: Bounds, filters: AuditFilters): AsyncGenerator<BlockRow> {
  for (let before: string | undefined = String(Number.MAX_SAFE_INTEGER); before !== undefined; ) {
    const page: BlockRow[] = await sql<BlockRow[]>`
      select ${blockColumns(sql)}
      from postern.audit_blocks
      where organization_id = ${organizationId} and seq < ${before} ${conditions(sql, bounds, filters)}
      order by seq desc
      limit ${PAGE_BLOCKS}`;
    yield* page;
    before = page.length === PAGE_BLOCKS ? page.at(-1)?.seq : undefined;
  }
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

function isWanted(entry: AuditEntry, { beforeSeq, since, until }: Bounds, { action, outcome, requestId }: AuditFilters): boolean {
  const { seq, occurredAt } = entry;
  const isWithin = (beforeSeq === undefined || seq < beforeSeq) && !(since && occurredAt < since) && !(until && occurredAt >= until);
  if (!isWithin || (action !== undefined && entry.action !== action)) return false;
  return (outcome === undefined || entry.outcome.status === outcome) && (requestId === undefined || entry.requestId === requestId);
}
