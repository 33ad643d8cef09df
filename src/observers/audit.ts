import type { RecordedOutcome } from '../catalog/audit/entries/entry.ts';
import type { AuditEvent } from '../catalog/audit/entries/record.ts';
import type { AuditLog } from '../catalog/audit/log.ts';
import type { Actor, Observation, Observe, Origin, Outcome } from '../observation.ts';

/** Their entries are committed by the catalog together with what they record. */
const COMMITTED_ACTIONS: ReadonlySet<string> = new Set(['auth.signup', 'auth.rotate_key']);

/** Tells the audit logs what organizations do, and what is tried on them; what nobody did as an organization is in none. */
export function auditObserver(audit: Pick<AuditLog, 'append'>): Observe {
  return (observation) => {
    const event = eventOf(observation);
    if (event !== undefined) audit.append(event);
  };
}

function eventOf(observation: Observation): AuditEvent | undefined {
  switch (observation.name) {
    case 'http.request': {
      const { action, statement, outcome } = observation;
      if (COMMITTED_ACTIONS.has(action) && outcome.status === 'ok') return undefined;
      return event(observation, action, outcome, statement && { statement });
    }
    case 'wire.statement': {
      const { statement, outcome } = observation;
      return event(observation, 'statement', outcome, { statement });
    }
    // Over HTTP the login is part of every call, and that is recorded.
    case 'login.succeeded':
      return observation.origin.surface === 'wire' ? event(observation, 'login', { status: 'ok' }) : undefined;
    case 'login.failed':
      // What the throttle refuses was not looked at, and may come as fast as somebody can send; its cause is in the log.
      if (observation.kind === 'too_many_login_failures') return undefined;
      return event(observation, 'login.failed', { status: 'error', sqlstate: observation.sqlstate });
    case 'wire.session.opened':
      return event(observation, 'session.opened', { status: 'ok' });
    case 'wire.session.closed': {
      const { statements, bytesIn, bytesOut, reason, durationMs } = observation;
      return event(observation, 'session.closed', { status: 'ok', durationMs }, { session: { statements, bytesIn, bytesOut, reason } });
    }
    default:
      return undefined;
  }
}

function event(
  { origin, actor }: { readonly origin: Origin; readonly actor?: Actor | undefined },
  action: string,
  outcome: Outcome,
  more: Pick<AuditEvent, 'statement' | 'session'> = {},
): AuditEvent | undefined {
  return actor && { organizationId: actor.organizationId, action, origin, actor, outcome: recorded(outcome), ...more };
}

function recorded({ status, httpStatus, sqlstate, rowCount, durationMs }: Outcome): RecordedOutcome {
  return {
    status,
    httpStatus: httpStatus ?? null,
    sqlstate: sqlstate ?? null,
    rowCount: rowCount ?? null,
    durationMs: durationMs ?? null,
  };
}
