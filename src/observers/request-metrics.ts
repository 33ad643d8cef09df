import { Counter, Gauge, Histogram, type Registry } from 'prom-client';
import type { ObservationHandlers } from '../observation.ts';

/*
 * The metrics of every request. They only count; values are made when Prometheus scrapes.
 */

/** Upper bounds of the buckets of durations. */
export const SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];

/** Actions that are counted as queries. */
export const QUERY_ACTIONS: ReadonlySet<string> = new Set(['query', 'transaction', 'migrations.apply', 'neon.sql']);

/** Counts the requests at both doors, and the leases that they take. */
export function requestMetrics(registry: Registry): ObservationHandlers {
  const seconds = <Label extends string>(name: string, help: string, label: Label) =>
    new QuickHistogram(name, help, label, SECONDS, registry);
  const queries = new QueryCounter('postern_queries_total', 'Requests that ran SQL', registry);
  const httpRequests = new PairCounter('postern_http_requests_total', 'HTTP calls', ['action', 'status'], registry);
  const httpSeconds = seconds('postern_http_request_seconds', 'How long HTTP calls took', 'action');
  const leases = new DoorGauge('postern_leases', 'Backend sessions that are leased', registry);
  const waitSeconds = seconds('postern_lease_wait_seconds', 'How long callers waited for a backend session', 'door');
  const heldSeconds = seconds('postern_lease_held_seconds', 'How long backend sessions were leased', 'door');
  return {
    'http.request'({ action, outcome: { status, httpStatus = 0, durationMs = 0 } }) {
      httpRequests.count(action, httpStatus);
      httpSeconds.count(action, durationMs / 1_000);
      if (QUERY_ACTIONS.has(action)) queries.count('http', status);
    },
    'wire.query': () => queries.count('wire', 'ok'),
    'wire.query.failed': () => queries.count('wire', 'error'),
    'lease.granted'({ door, waitMs }) {
      leases.add(door, 1);
      waitSeconds.count(door, waitMs / 1_000);
    },
    'lease.released'({ door, heldMs }) {
      leases.add(door, -1);
      heldSeconds.count(door, heldMs / 1_000);
    },
  };
}

/** The doors, as label values. */
const DOORS = ['http', 'wire'] as const;
export type DoorLabel = (typeof DOORS)[number];

type Both<T> = Record<DoorLabel, T>;

/** A histogram's counts, one for each upper bound and one for larger values. */
class Buckets {
  readonly counts: Float64Array;
  sum = 0;

  constructor(size: number) {
    this.counts = new Float64Array(size + 1);
  }
}

/** A histogram for every request, with one label or none. It only counts; values are made when Prometheus scrapes. */
export class QuickHistogram<Label extends string> extends Histogram<Label> {
  readonly #bounds: readonly number[];
  readonly #buckets = new Map<string, Buckets>();
  readonly #label: Label | undefined;
  readonly #about: { readonly name: string; readonly help: string };

  constructor(name: string, help: string, label: Label | undefined, bounds: readonly number[], registry: Registry) {
    super({ name, help, labelNames: label === undefined ? [] : [label], buckets: [...bounds], registers: [registry] });
    this.#bounds = bounds;
    this.#label = label;
    this.#about = { name, help };
    // Without a label there is exactly one series.
    if (label === undefined) this.#bucketsOf('');
  }

  count(of: string, value: number): void {
    const buckets = this.#bucketsOf(of);
    const bounds = this.#bounds;
    let at = 0;
    while (at < bounds.length && value > (bounds[at] ?? 0)) at += 1;
    buckets.counts[at] = (buckets.counts[at] ?? 0) + 1;
    buckets.sum += value;
  }

  #bucketsOf(of: string): Buckets {
    let buckets = this.#buckets.get(of);
    if (buckets === undefined) {
      buckets = new Buckets(this.#bounds.length);
      this.#buckets.set(of, buckets);
    }
    return buckets;
  }

  /** prom-client makes both its text and its JSON of this. */
  async getForPromString(): Promise<object> {
    const values = [...this.#buckets].flatMap(([of, buckets]) => this.#valuesOf(of, buckets));
    return { ...this.#about, type: 'histogram', aggregator: 'sum', values };
  }

  #valuesOf(of: string, { counts, sum }: Buckets): object[] {
    const { name } = this.#about;
    const sharedLabels = this.#label === undefined ? {} : { [this.#label]: of };
    let total = 0;
    const upTo = [...counts].map((count) => {
      total += count;
      return total;
    });
    const value = (suffix: string, amount: number, labels: object) => ({
      metricName: `${name}_${suffix}`,
      value: amount,
      labels,
      sharedLabels,
    });
    return [
      ...upTo.map((amount, i) => value('bucket', amount, { le: this.#bounds[i] ?? '+Inf' })),
      value('sum', sum, {}),
      value('count', total, {}),
    ];
  }
}

/** A counter with two labels, which counts in the same way. */
export class PairCounter<Label extends string> {
  readonly #counts = new Map<string, Map<string | number, number>>();

  constructor(name: string, help: string, [first, second]: readonly [Label, Label], registry: Registry) {
    const counts = this.#counts;
    new Counter<string>({
      name,
      help,
      labelNames: [first, second],
      registers: [registry],
      collect() {
        this.reset();
        for (const [outer, bySecond] of counts)
          for (const [inner, count] of bySecond) this.inc({ [first]: outer, [second]: String(inner) }, count);
      },
    });
  }

  count(first: string, second: string | number): void {
    const bySecond = this.#counts.get(first) ?? new Map<string | number, number>();
    if (bySecond.size === 0) this.#counts.set(first, bySecond);
    bySecond.set(second, (bySecond.get(second) ?? 0) + 1);
  }
}

/** Bytes that came from clients and went to them. */
export class TrafficCounter {
  readonly #bytes = { in: 0, out: 0 };

  constructor(name: string, help: string, registry: Registry) {
    const bytes = this.#bytes;
    new Counter({
      name,
      help,
      labelNames: ['direction'],
      registers: [registry],
      collect() {
        this.reset();
        for (const direction of ['in', 'out'] as const) this.inc({ direction }, bytes[direction]);
      },
    });
  }

  count(bytesIn: number, bytesOut: number): void {
    this.#bytes.in += bytesIn;
    this.#bytes.out += bytesOut;
  }
}

/** Requests that ran SQL, by door and outcome. */
export class QueryCounter {
  readonly #counts: Both<{ ok: number; error: number }> = { http: { ok: 0, error: 0 }, wire: { ok: 0, error: 0 } };

  constructor(name: string, help: string, registry: Registry) {
    const counts = this.#counts;
    new Counter({
      name,
      help,
      labelNames: ['door', 'outcome'],
      registers: [registry],
      collect() {
        this.reset();
        for (const door of DOORS)
          for (const outcome of ['ok', 'error'] as const) if (counts[door][outcome] > 0) this.inc({ door, outcome }, counts[door][outcome]);
      },
    });
  }

  count(door: DoorLabel, outcome: 'ok' | 'error'): void {
    this.#counts[door][outcome] += 1;
  }
}

/** A gauge with one value for each door. */
export class DoorGauge {
  readonly #counts: Both<number | undefined> = { http: undefined, wire: undefined };

  constructor(name: string, help: string, registry: Registry) {
    const counts = this.#counts;
    new Gauge({
      name,
      help,
      labelNames: ['door'],
      registers: [registry],
      collect() {
        for (const door of DOORS) if (counts[door] !== undefined) this.set({ door }, counts[door]);
      },
    });
  }

  add(door: DoorLabel, change: number): void {
    this.#counts[door] = (this.#counts[door] ?? 0) + change;
  }
}
