import { ServiceError } from '../../errors.ts';
import type { OrganizationPool } from './organization-pool.ts';

/** The pools whose waiters may wait too long. */
export interface TimedQueues {
  all(): Iterable<OrganizationPool>;
  /** Fails the first waiter. */
  fail(own: OrganizationPool, error: ServiceError): void;
}

/** Ends waits for a backend that last too long. One timer, for who has waited longest, is set while anybody waits. */
export class QueueTimeout {
  readonly #timeoutMs: number;
  readonly #queues: TimedQueues;
  #timer: NodeJS.Timeout | undefined;

  constructor(timeoutMs: number, queues: TimedQueues) {
    this.#timeoutMs = timeoutMs;
    this.#queues = queues;
  }

  /** Called when somebody has begun to wait. */
  start(): void {
    this.#timer ??= setTimeout(() => this.#passed(), this.#timeoutMs).unref();
  }

  close(): void {
    clearTimeout(this.#timer);
  }

  #passed(): void {
    this.#timer = undefined;
    const oldest = performance.now() - this.#timeoutMs;
    let next = Number.POSITIVE_INFINITY;
    for (const own of [...this.#queues.all()]) {
      while (own.waitingSince <= oldest) this.#queues.fail(own, timedOut(own, this.#timeoutMs));
      next = Math.min(next, own.waitingSince);
    }
    if (next === Number.POSITIVE_INFINITY) return;
    // A client that began to wait meanwhile may have set the timer, for a later time. A timer may fire slightly early.
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#passed(), Math.max(1, next - oldest)).unref();
  }
}

/** The error of a client that has waited too long for a backend. It says what keeps the organization's backends busy. */
function timedOut(own: OrganizationPool, waitedMs: number): ServiceError {
  const pinned = pinsOf(own);
  const refused = own.refusedAt === undefined ? '' : ' The server has no connection slots free.';
  const leaving = own.leaving.size === 0 ? '' : ` Sessions that were given up and have not ended: ${own.leaving.size}.`;
  return new ServiceError('pool_timeout', 'no backend became free in time', {
    detail: `Waited ${waitedMs} ms.${refused}${leaving}${pinned === undefined ? '' : ` ${pinned}`}`,
    hint: `Keep transactions short, or run fewer at a time.${pinned === undefined ? '' : ' A pinned session keeps its backend until what it holds is gone.'}`,
    retryAfterS: 1,
  });
}

/** How many backends are pinned to sessions, and why; undefined if none is. */
function pinsOf({ leased, size }: OrganizationPool): string | undefined {
  const counts = new Map<string, number>();
  const pinned = [...leased].flatMap(({ session: { pinnedFor } }) => (pinnedFor === undefined || pinnedFor.size === 0 ? [] : [pinnedFor]));
  for (const reason of pinned.flatMap((reasons) => [...reasons])) counts.set(reason, (counts.get(reason) ?? 0) + 1);
  const reasons = [...counts].sort(([, some], [, others]) => others - some).map(([reason, count]) => `${reason} ${count}`);
  return pinned.length === 0 ? undefined : `${pinned.length} of ${size} backends are pinned to sessions: ${reasons.join(', ')}.`;
}
