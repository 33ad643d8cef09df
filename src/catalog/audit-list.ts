import { ServiceError } from '../errors.ts';
import type { AuditEntry } from './audit-entry.ts';
import { wellFormed } from './audit-record.ts';
import { type AuditRow, auditColumns, toEntry } from './audit-rows.ts';
import { decodeCursor, encodeCursor } from './cursor.ts';
import type { Sql } from './session.ts';

const LIMIT_DEFAULT = 50;
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
  const rows = await sql<AuditRow[]>`
    select ${auditColumns(sql)}
    from postern.audit_entries
    where organization_id = ${organizationId} ${conditions(sql, filters)}
    order by seq desc
    limit ${limit + 1}`;
  const data = rows.slice(0, limit).map(toEntry);
  const last = data.at(-1);
  const hasMore = rows.length > limit;
  return { data, hasMore, nextCursor: hasMore && last !== undefined ? encodeCursor(last.seq) : null };
}

function conditions(sql: Sql, { after, action, outcome, since, until, requestId }: AuditFilters) {
  return [
    after === undefined ? sql`` : sql`and seq < ${decodeCursor(after)}`,
    action === undefined ? sql`` : sql`and action = ${wellFormed(action)}`,
    outcome === undefined ? sql`` : sql`and outcome ->> 'status' = ${outcome}`,
    since === undefined ? sql`` : sql`and occurred_at >= ${since}`,
    until === undefined ? sql`` : sql`and occurred_at < ${until}`,
    requestId === undefined ? sql`` : sql`and request_id = ${wellFormed(requestId)}`,
  ];
}
