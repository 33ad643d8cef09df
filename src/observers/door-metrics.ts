import { Counter, Gauge, Histogram, type Registry } from 'prom-client';

/** The doors, as label values. */
const DOORS = ['http', 'wire'] as const;
export type DoorLabel = (typeof DOORS)[number];

type Both<T> = Record<DoorLabel, T>;

/** Counts by upper bound, the last one without. */
class Buckets {
  readonly counts: Float64Array;
  sum = 0;

  constructor(size: number) {
    this.counts = new Float64Array(size + 1);
  }
}

/** Numbers on the path of every request, by one label: counted in place, and made into values when Prometheus asks. */
export class QuickHistogram<Label extends string> extends Histogram<Label> {
  readonly #bounds: readonly number[];
  readonly #buckets = new Map<string, Buckets>();
  readonly #label: Label;
  readonly #about: { readonly name: string; readonly help: string };

  constructor(name: string, help: string, label: Label, bounds: readonly number[], registry: Registry) {
    super({ name, help, labelNames: [label], buckets: [...bounds], registers: [registry] });
    this.#bounds = bounds;
    this.#label = label;
    this.#about = { name, help };
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

  /** What prom-client makes both its text and its JSON from. */
  async getForPromString(): Promise<object> {
    const values = [...this.#buckets].flatMap(([of, buckets]) => this.#valuesOf(of, buckets));
    return { ...this.#about, type: 'histogram', aggregator: 'sum', values };
  }

  #valuesOf(of: string, { counts, sum }: Buckets): object[] {
    const { name } = this.#about;
    const sharedLabels = { [this.#label]: of };
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

/** HTTP calls by action and status, counted in the same way. */
export class CallCounter {
  readonly #counts = new Map<string, Map<number, number>>();

  constructor(name: string, help: string, registry: Registry) {
    const counts = this.#counts;
    new Counter({
      name,
      help,
      labelNames: ['action', 'status'],
      registers: [registry],
      collect() {
        this.reset();
        for (const [action, byStatus] of counts)
          for (const [status, count] of byStatus) this.inc({ action, status: String(status) }, count);
      },
    });
  }

  count(action: string, status: number): void {
    const byStatus = this.#counts.get(action) ?? new Map<number, number>();
    if (byStatus.size === 0) this.#counts.set(action, byStatus);
    byStatus.set(status, (byStatus.get(status) ?? 0) + 1);
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

/** How many there are of something at each door. */
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
