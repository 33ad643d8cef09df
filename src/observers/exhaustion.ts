import type { ObservationHandlers, Observe } from '../observation.ts';

/** @see https://www.postgresql.org/docs/current/errcodes-appendix.html */
const EXHAUSTED: ReadonlyMap<string, string> = new Map([
  ['53100', 'disk_full'],
  ['53200', 'out_of_memory'],
]);
const WARN_EVERY_MS = 60_000;

/** Warns, at most once a minute for each SQLSTATE, that the server has no disk space or no memory left: the clients are told, and nobody else. */
export function exhaustionObserver(observe: Observe): ObservationHandlers {
  const warnedAt = new Map<string, number>();
  const failed = (sqlstate: string | undefined, organizationId: string | undefined) => {
    const condition = sqlstate && EXHAUSTED.get(sqlstate);
    if (!condition || performance.now() - (warnedAt.get(sqlstate) ?? Number.NEGATIVE_INFINITY) < WARN_EVERY_MS) return;
    warnedAt.set(sqlstate, performance.now());
    // Any client can RAISE these SQLSTATEs, so the message says whose request it was.
    const whose = organizationId === undefined ? 'a request' : `a request of ${organizationId}`;
    observe({ name: 'service.warning', message: `${whose} failed with ${sqlstate} (${condition}): see the log of the PostgreSQL server` });
  };
  return {
    'wire.query.failed': ({ sqlstate, organizationId }) => failed(sqlstate, organizationId),
    'http.request': ({ outcome, actor }) => failed(outcome.sqlstate, actor?.organizationId),
  };
}
