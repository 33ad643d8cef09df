import type { UsageCounters } from '../catalog/usage/counters.ts';
import type { Observe } from '../observation.ts';
import { QUERY_ACTIONS } from './metrics.ts';

/** Counts calls over HTTP that ran SQL, and wire sessions. The wire door itself counts what its sessions do. */
export function usageObserver(counters: UsageCounters): Observe {
  return (observation) => {
    switch (observation.name) {
      case 'http.request': {
        const { actor, action, outcome, traffic } = observation;
        if (actor === undefined || traffic === undefined || !QUERY_ACTIONS.has(action)) return;
        const { statements, bytesIn, bytesOut } = traffic;
        const { rowCount = 0, durationMs = 0, status } = outcome;
        const usage = counters.of(actor.organizationId);
        usage.statements += statements;
        usage.rows += rowCount;
        usage.bytesIn += bytesIn;
        usage.bytesOut += bytesOut;
        usage.answered(durationMs, status === 'error');
        return;
      }
      case 'wire.session.opened':
        counters.of(observation.actor.organizationId).sessionOpened();
        return;
      case 'wire.session.closed':
        counters.of(observation.actor.organizationId).sessionClosed();
        return;
      default:
    }
  };
}
