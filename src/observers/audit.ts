import type { AuditLog } from '../catalog/audit/log.ts';
import { type AuditEvent, OPERATORS, type RecordedOutcome } from '../catalog/audit/records.ts';
import type { UsageCounters } from '../catalog/usage.ts';
import type { Actor, ObservationHandlers, Origin, Outcome } from '../observation.ts';
import { QUERY_ACTIONS } from './metrics.ts';

/** The catalog commits the entries of these actions together with the changes that they record. */
const COMMITTED_ACTIONS: ReadonlySet<string> = new Set([
  'auth.signup',
  'auth.rotate_key',
  'keys.create',
  'keys.update',
  'keys.revoke',
  'keys.rotate',
  'queries.save',
  'queries.delete',
]);

/** They are repeated every few seconds by who watches, and change nothing. */
const WATCHING_ACTIONS: ReadonlySet<string> = new Set(['sessions.list']);

/**
 * Records in the audit logs what organizations do, and failed logins to them; what operators do at their console, in a log of their own.
 * Observations without an organization are not recorded.
 */
export function auditObserver(audit: Pick<AuditLog, 'append'>): ObservationHandlers {
  const record: Record = (observation, action, outcome, more) => {
    const { origin, actor } = observation;
    if (actor === undefined) return;
    audit.append({ organizationId: actor.organizationId, action, origin, actor, outcome: recorded(outcome), ...more });
  };
  return {
    'http.request'(observation) {
      const { action, statement, outcome } = observation;
      if ((COMMITTED_ACTIONS.has(action) || WATCHING_ACTIONS.has(action)) && outcome.status === 'ok') return;
      record(observation, action, outcome, statement && { statement });
    },
    'wire.statement'(observation) {
      const { statement, outcome } = observation;
      record(observation, 'statement', outcome, { statement });
    },
    'login.succeeded'(observation) {
      // Over HTTP every call authenticates, and the call itself is recorded.
      if (observation.origin.surface === 'wire') record(observation, 'login', { status: 'ok' });
    },
    'login.failed'(observation) {
      // The throttle refuses without checking the key, and a client may cause any number of these. The failures before are recorded.
      if (observation.kind === 'too_many_login_failures') return;
      record(observation, 'login.failed', { status: 'error', sqlstate: observation.sqlstate });
    },
    'operator.opened'({ origin }) {
      audit.append({ organizationId: OPERATORS, action: 'login', origin, outcome: recorded({ status: 'ok' }) });
    },
    'operator.command'({ origin, message: sql }) {
      audit.append({ organizationId: OPERATORS, action: 'statement', origin, outcome: recorded({ status: 'ok' }), statement: { sql } });
    },
    'wire.session.opened'(observation) {
      record(observation, 'session.opened', { status: 'ok' });
    },
    'wire.session.closed'(observation) {
      const { statements, bytesIn, bytesOut, reason, durationMs } = observation;
      record(observation, 'session.closed', { status: 'ok', durationMs }, { session: { statements, bytesIn, bytesOut, reason } });
    },
  };
}

type Record = (
  observation: { readonly origin: Origin; readonly actor?: Actor | undefined },
  action: string,
  outcome: Outcome,
  more?: Pick<AuditEvent, 'statement' | 'session'>,
) => void;

function recorded({ status, httpStatus, sqlstate, rowCount, durationMs }: Outcome): RecordedOutcome {
  return {
    status,
    httpStatus: httpStatus ?? null,
    sqlstate: sqlstate ?? null,
    rowCount: rowCount ?? null,
    durationMs: durationMs ?? null,
  };
}

/** Counts calls over HTTP that ran SQL, and wire sessions. The wire door itself counts what its sessions do. */
export function usageObserver(counters: UsageCounters): ObservationHandlers {
  return {
    'http.request'({ actor, action, outcome, traffic }) {
      if (actor === undefined || traffic === undefined || !QUERY_ACTIONS.has(action)) return;
      const { statements, bytesIn, bytesOut } = traffic;
      const { rowCount = 0, durationMs = 0, status } = outcome;
      const usage = counters.of(actor.organizationId);
      usage.statements += statements;
      usage.rows += rowCount;
      usage.bytesIn += bytesIn;
      usage.bytesOut += bytesOut;
      usage.answered(durationMs, status === 'error');
    },
    'wire.session.opened'({ actor }) {
      counters.of(actor.organizationId).sessionOpened();
    },
    'wire.session.closed'({ actor }) {
      counters.of(actor.organizationId).sessionClosed();
    },
  };
}
