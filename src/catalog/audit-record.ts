import { randomUUID } from 'node:crypto';
import type { Origin } from '../observation.ts';
import type { AuditRecord } from './audit-chain.ts';
import type { RecordedOutcome, RecordedSession, RecordedStatement } from './audit-entry.ts';

/** What is known of an event when it happens. */
export interface AuditEvent {
  readonly organizationId: string;
  readonly action: string;
  readonly origin: Origin;
  readonly actor?: { readonly keyId?: string; readonly keyPrefix?: string } | undefined;
  readonly statement?: RecordedStatement;
  readonly session?: RecordedSession;
  readonly outcome: RecordedOutcome;
}

/** For the entries of what has been done and is committed together with them. */
export const DONE: RecordedOutcome = { status: 'ok', httpStatus: null, sqlstate: null, rowCount: null, durationMs: null };

const TEXT_CHARACTERS_MAX = 500;

/** The event as it can be stored: whatever a client has sent, it must not keep the others of its batch from being written. */
export function recordOf(event: AuditEvent, occurredAt: Date): AuditRecord {
  const { origin, actor, statement, session, outcome } = event;
  return {
    organizationId: event.organizationId,
    id: newEntryId(occurredAt),
    occurredAt,
    action: storable(event.action),
    surface: origin.surface,
    actor: { keyId: orNull(actor?.keyId), keyPrefix: orNull(actor?.keyPrefix) },
    sourceIp: orNull(origin.sourceIp),
    userAgent: orNull(origin.userAgent),
    applicationName: orNull(origin.applicationName),
    requestId: orNull(origin.requestId),
    ...(statement === undefined ? {} : { statement: { ...statement, sql: wellFormed(statement.sql), command: orNull(statement.command) } }),
    ...(session === undefined ? {} : { session: { ...session, reason: storable(session.reason) } }),
    outcome: { ...outcome, durationMs: outcome.durationMs === null ? null : Math.round(outcome.durationMs * 1_000) / 1_000 },
  };
}

/** `aud_`, nine characters of time, twelve of chance: new ids go to the end of their index. */
function newEntryId(at: Date): string {
  const chance = randomUUID().replace('-', '').slice(0, 12);
  return `aud_${at.getTime().toString(36).padStart(9, '0')}${chance}`;
}

function orNull(text: string | null | undefined): string | null {
  return text == null ? null : storable(text);
}

function storable(text: string): string {
  return wellFormed(text.slice(0, TEXT_CHARACTERS_MAX));
}

/** Postgres stores neither NUL nor half a surrogate pair, which a cut can leave. */
export function wellFormed(text: string): string {
  return /[\0\ud800-\udfff]/.test(text) ? Buffer.from(text).toString().replaceAll('\0', '\ufffd') : text;
}
