import type { RecordedOutcome } from '../catalog/audit/entries/entry.ts';
import type { AuditEvent } from '../catalog/audit/entries/record.ts';
import type { AuditLog } from '../catalog/audit/log.ts';
import type { Actor, Observation, Observe, Origin, Outcome } from '../observation.ts';

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

/** Records in the audit logs what organizations do, and failed logins to them. Observations without an organization are not recorded. */
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
      if ((COMMITTED_ACTIONS.has(action) || WATCHING_ACTIONS.has(action)) && outcome.status === 'ok') return undefined;
      return event(observation, action, outcome, statement && { statement });
    }
    case 'wire.statement': {
      const { statement, outcome } = observation;
      return event(observation, 'statement', outcome, { statement });
    }
    // Over HTTP every call authenticates, and the call itself is recorded.
    case 'login.succeeded':
      return observation.origin.surface === 'wire' ? event(observation, 'login', { status: 'ok' }) : undefined;
    case 'login.failed':
      // The throttle refuses without checking the key, and a client may cause any number of these. The failures before are recorded.
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
