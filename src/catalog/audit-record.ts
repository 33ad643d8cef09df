import type { ObservedStatement, Origin } from '../observation.ts';
import { randomDigits } from '../random.ts';
import type { AuditRecord, PartyJson } from './audit-chain.ts';
import type { RecordedOutcome, RecordedSession } from './audit-entry.ts';
import { mayHoldPassword, recordStatement } from './redaction.ts';
import { StatementMemory } from './statement-memory.ts';

/** What is known of an event when it happens. */
export interface AuditEvent {
  readonly organizationId: string;
  readonly action: string;
  readonly origin: Origin;
  readonly actor?: { readonly keyId?: string; readonly keyPrefix?: string } | undefined;
  readonly statement?: ObservedStatement;
  readonly session?: RecordedSession;
  readonly outcome: RecordedOutcome;
}

/** For the entries of what has been done and is committed together with them. */
export const DONE: RecordedOutcome = { status: 'ok', httpStatus: null, sqlstate: null, rowCount: null, durationMs: null };

const TEXT_CHARACTERS_MAX = 500;

/** The event as it can be stored: whatever a client has sent, it must not keep the others of its batch from being written. */
export function recordOf(event: AuditEvent, at: Date): AuditRecord {
  const { statement, session, outcome } = event;
  if (at.getTime() !== lastMoment.ms) lastMoment = momentOf(at);
  return {
    organizationId: event.organizationId,
    party: partyOf(event),
    id: lastMoment.idStart + randomDigits(12),
    occurredAt: lastMoment.text,
    action: storable(event.action),
    requestId: orNull(event.origin.requestId),
    statement: statement === undefined ? null : statementJson(statement),
    session: session === undefined ? null : sessionJson(session),
    outcome: outcomeJson(outcome),
  };
}

/** What an organization's last entry told of its party: the next one's is mostly the same. */
interface KnownParty {
  readonly origin: Origin;
  readonly actor: AuditEvent['actor'];
  readonly party: PartyJson;
}

const KNOWN_PARTIES_MAX = 1_000;
const knownParties = new Map<string, KnownParty>();

function partyOf({ organizationId, origin, actor }: AuditEvent): PartyJson {
  const known = knownParties.get(organizationId);
  if (known !== undefined && isSameOrigin(known.origin, origin) && isSameActor(known.actor, actor)) return known.party;
  const party = newParty(origin, actor);
  if (knownParties.size >= KNOWN_PARTIES_MAX) knownParties.clear();
  knownParties.set(organizationId, { origin, actor, party });
  return party;
}

function isSameOrigin(a: Origin, b: Origin): boolean {
  if (a === b) return true;
  return a.sourceIp === b.sourceIp && a.surface === b.surface && a.userAgent === b.userAgent && a.applicationName === b.applicationName;
}

function isSameActor(a: AuditEvent['actor'], b: AuditEvent['actor']): boolean {
  return a?.keyId === b?.keyId && a?.keyPrefix === b?.keyPrefix;
}

function newParty({ surface, sourceIp, userAgent, applicationName }: Origin, actor: AuditEvent['actor']): PartyJson {
  const json = (text: string | undefined) => JSON.stringify(orNull(text));
  const [keyId, keyPrefix] = [json(actor?.keyId), json(actor?.keyPrefix)];
  return {
    actor: `"actor":{"keyId":${keyId},"keyPrefix":${keyPrefix}},"applicationName":${json(applicationName)}`,
    source: `"sourceIp":${json(sourceIp)}`,
    surface: `"surface":"${surface}","userAgent":${json(userAgent)}`,
  };
}

// Canonical JSON: the names of each stand in their order.

/** A statement that may hold a password is not kept in memory either. */
function statementJson(statement: ObservedStatement): string {
  return mayHoldPassword(statement.sql) ? newStatementJson(statement) : statements.textOf(statement);
}

const statements = new StatementMemory(newStatementJson);

function newStatementJson(statement: ObservedStatement): string {
  const { sql, sqlHash, command, paramCount } = recordStatement(statement);
  return JSON.stringify({ command: orNull(command), paramCount, sql: wellFormed(sql), sqlHash });
}

function sessionJson({ statements, bytesIn, bytesOut, reason }: RecordedSession): string {
  return JSON.stringify({ bytesIn, bytesOut, reason: storable(reason), statements });
}

/** That of most entries is nothing but a status: they have one text. */
const BARE = { ok: newOutcomeJson(DONE), error: newOutcomeJson({ ...DONE, status: 'error' }) };

function outcomeJson(outcome: RecordedOutcome): string {
  const { status, httpStatus, sqlstate, rowCount, durationMs } = outcome;
  const isBare = durationMs === null && httpStatus === null && sqlstate === null && rowCount === null;
  return isBare ? BARE[status] : newOutcomeJson(outcome);
}

function newOutcomeJson({ status, httpStatus, sqlstate, rowCount, durationMs }: RecordedOutcome): string {
  const rounded = durationMs === null ? null : Math.round(durationMs * 1_000) / 1_000;
  // A text that is put together stays a tree of its pieces for as long as nobody reads it: records wait by the thousand.
  return JSON.stringify({ durationMs: rounded, httpStatus, rowCount, sqlstate, status });
}

interface Moment {
  readonly ms: number;
  readonly text: string;
  /** `aud_` and nine characters of time. */
  readonly idStart: string;
}

function momentOf(at: Date): Moment {
  const ms = at.getTime();
  return { ms, text: at.toISOString(), idStart: `aud_${ms.toString(36).padStart(9, '0')}` };
}

/** Many events fall into one millisecond. */
let lastMoment = momentOf(new Date(0));

function orNull(text: string | null | undefined): string | null {
  return text == null ? null : storable(text);
}

function storable(text: string): string {
  return wellFormed(text.slice(0, TEXT_CHARACTERS_MAX));
}

/** Postgres stores neither NUL nor half a surrogate pair, which a cut can leave. */
function wellFormed(text: string): string {
  return /[\0\ud800-\udfff]/.test(text) ? Buffer.from(text).toString().replaceAll('\0', '\ufffd') : text;
}
