import type { AuditEntry, RecordedOutcome, RecordedSession, RecordedStatement } from './audit-entry.ts';
import type { Sql } from './session.ts';

/** A row of `postern.audit_entries` as {@link auditColumns} reads it. */
export interface AuditRow {
  readonly seq: string;
  readonly id: string;
  readonly occurred_at: Date;
  readonly action: string;
  readonly surface: string;
  readonly key_id: string | null;
  readonly key_prefix: string | null;
  readonly source_ip: string | null;
  readonly user_agent: string | null;
  readonly application_name: string | null;
  readonly request_id: string | null;
  readonly statement: RecordedStatement | null;
  readonly session: RecordedSession | null;
  readonly outcome: RecordedOutcome;
  readonly prev_hash: string;
  readonly hash: string;
}

export const auditColumns = (sql: Sql) => sql`
  seq, id, occurred_at, action, surface, key_id, key_prefix, source_ip, user_agent, application_name, request_id,
  statement, session, outcome, encode(prev_hash, 'hex') as prev_hash, encode(hash, 'hex') as hash`;

/** The entry is made of the columns alone: whatever of them is changed afterwards, the hash tells. */
export function toEntry(row: AuditRow): AuditEntry {
  return {
    id: row.id,
    seq: Number(row.seq),
    occurredAt: row.occurred_at.toISOString(),
    action: row.action,
    surface: row.surface,
    actor: { keyId: row.key_id, keyPrefix: row.key_prefix },
    sourceIp: row.source_ip,
    userAgent: row.user_agent,
    applicationName: row.application_name,
    requestId: row.request_id,
    ...(row.statement === null ? {} : { statement: row.statement }),
    ...(row.session === null ? {} : { session: row.session }),
    outcome: row.outcome,
    prevHash: row.prev_hash,
    hash: row.hash,
  };
}
