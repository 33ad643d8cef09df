import type { ObservedStatement, Origin } from '../../../observation.ts';
import { BoundedMap } from '../../../runtime/bounded-map.ts';
import { randomDigits } from '../../../runtime/bytes.ts';
import { mayHoldSecret } from '../../../syntax/redaction.ts';
import type { AuditRecord, PartyJson } from '../chain.ts';
import type { RecordedOutcome, RecordedSession } from './entry.ts';
import { isLongText, recordInParts, recordStatement } from './statement-record.ts';
import { StatementTextCache } from './statement-text-cache.ts';

/** An event to be recorded in the audit log. */
export interface AuditEvent {
  readonly organizationId: string;
  readonly action: string;
  readonly origin: Origin;
  readonly actor?: { readonly keyId?: string; readonly keyPrefix?: string } | undefined;
  readonly statement?: ObservedStatement;
  readonly session?: RecordedSession;
  readonly outcome: RecordedOutcome;
}

/** The outcome of events that are committed together with their entries. */
export const DONE: RecordedOutcome = { status: 'ok', httpStatus: null, sqlstate: null, rowCount: null, durationMs: null };

const TEXT_CHARACTERS_MAX = 500;

/** The event in a form that can always be stored: no text from a client may keep the other events of a batch from being written. */
export function recordOf(event: AuditEvent, at: Date): AuditRecord {
  const { statement, session, outcome } = event;
  const request = orNull(event.origin.requestId);
  if (at.getTime() !== lastMoment.ms) lastMoment = momentOf(at);
  return {
    organizationId: event.organizationId,
    party: partyOf(event),
    id: lastMoment.idStart + randomDigits(12),
    occurredAt: lastMoment.text,
    action: actionJson(event.action),
    requestId: request === null ? 'null' : JSON.stringify(request),
    request,
    statement: statement === undefined ? null : statements.textOf(statement),
    session: session === undefined ? null : sessionJson(session),
    outcome: outcomeJson(outcome),
  };
}

/** Whether the event's statement is so long that {@link withRecordedText} must be called before {@link recordOf}. */
export function hasLongText({ statement }: AuditEvent): boolean {
  return statement !== undefined && statement.sqlHash === undefined && isLongText(statement.sql);
}

/** The event with the recorded form of its statement. For a long one this takes several turns of the event loop. */
export async function withRecordedText(event: AuditEvent): Promise<AuditEvent> {
  const { statement } = event;
  if (statement === undefined || !hasLongText(event)) return event;
  return { ...event, statement: { ...statement, ...(await recordInParts(statement.sql)) } };
}

/** The origin and actor of an organization's last entry, which the next entry mostly shares. */
interface KnownParty {
  readonly origin: Origin;
  readonly actor: AuditEvent['actor'];
  readonly party: PartyJson;
}

const KNOWN_ACTIONS_MAX = 100;
const KNOWN_PARTIES_MAX = 1_000;
const knownParties = new BoundedMap<string, KnownParty>({ maxEntries: KNOWN_PARTIES_MAX });

function partyOf({ organizationId, origin, actor }: AuditEvent): PartyJson {
  const known = knownParties.get(organizationId);
  if (known !== undefined && isSameOrigin(known.origin, origin) && isSameActor(known.actor, actor)) return known.party;
  const party = newParty(origin, actor);
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

// Canonical JSON: the names in each object are sorted.

/** There are a few dozen different actions. */
const knownActions = new BoundedMap<string, string>({ maxEntries: KNOWN_ACTIONS_MAX });

function actionJson(action: string): string {
  const known = knownActions.get(action);
  if (known !== undefined) return known;
  const text = JSON.stringify(storable(action));
  knownActions.set(action, text);
  return text;
}

/** A statement that may hold a secret is not kept in memory. */
const statements = new StatementTextCache(newStatementJson, ({ sql }) => !mayHoldSecret(sql));

function newStatementJson(statement: ObservedStatement): string {
  const { sql, sqlHash, command, paramCount } = recordStatement(statement);
  return JSON.stringify({ command: orNull(command), paramCount, sql: wellFormed(sql), sqlHash });
}

function sessionJson({ statements, bytesIn, bytesOut, reason }: RecordedSession): string {
  return `{"bytesIn":${bytesIn},"bytesOut":${bytesOut},"reason":${JSON.stringify(storable(reason))},"statements":${statements}}`;
}

function outcomeJson(outcome: RecordedOutcome): string {
  const { durationMs } = outcome;
  if (!isAsLast(outcome)) lastOutcome = knownOutcome(outcome);
  return durationMs === null ? lastOutcome.untimed : `{"durationMs":${Math.round(durationMs * 1_000) / 1_000}${lastOutcome.rest}`;
}

/** An outcome's JSON: the part after its duration, and the whole if it has none. */
interface KnownOutcome {
  readonly outcome: RecordedOutcome;
  readonly rest: string;
  readonly untimed: string;
}

function knownOutcome(outcome: RecordedOutcome): KnownOutcome {
  const { status, httpStatus, sqlstate, rowCount } = outcome;
  const rest = `,${JSON.stringify({ httpStatus, rowCount, sqlstate, status }).slice(1)}`;
  return { outcome, rest, untimed: `{"durationMs":null${rest}` };
}

/** Kept because most outcomes are the same as the previous one. */
let lastOutcome = knownOutcome(DONE);

function isAsLast({ status, httpStatus, sqlstate, rowCount }: RecordedOutcome): boolean {
  const last = lastOutcome.outcome;
  return last.rowCount === rowCount && last.httpStatus === httpStatus && last.status === status && last.sqlstate === sqlstate;
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

/** Kept because many events have the same millisecond. */
let lastMoment = momentOf(new Date(0));

function orNull(text: string | null | undefined): string | null {
  return text == null ? null : storable(text);
}

function storable(text: string): string {
  return wellFormed(text.slice(0, TEXT_CHARACTERS_MAX));
}

/** Postgres stores neither NUL nor unpaired surrogates, which cutting a text can leave. */
function wellFormed(text: string): string {
  return /[\0\ud800-\udfff]/.test(text) ? Buffer.from(text).toString().replaceAll('\0', '\ufffd') : text;
}
