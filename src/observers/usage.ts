import type { UsageCounters } from '../catalog/usage.ts';
import type { ObservationHandlers } from '../observation.ts';
import { QUERY_ACTIONS } from './request-metrics.ts';

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
