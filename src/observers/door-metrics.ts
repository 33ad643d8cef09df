import { Counter, Gauge, Histogram, type Registry } from 'prom-client';

/** The doors, as label values. */
const DOORS = ['http', 'wire'] as const;
export type DoorLabel = (typeof DOORS)[number];

type Both<T> = Record<DoorLabel, T>;

/** Counts of one door by upper bound, the last one without. */
class Buckets {
  readonly counts: Float64Array;
  sum = 0;

  constructor(size: number) {
    this.counts = new Float64Array(size + 1);
  }
}

/** Numbers for each door on the path of every request: counted in place, and made into values when Prometheus asks. */
export class DoorHistogram extends Histogram<'door'> {
  readonly #bounds: readonly number[];
  readonly #buckets: Both<Buckets>;
  readonly #about: { readonly name: string; readonly help: string };

  constructor(name: string, help: string, bounds: readonly number[], registry: Registry) {
    super({ name, help, labelNames: ['door'], buckets: [...bounds], registers: [registry] });
    this.#bounds = bounds;
    this.#about = { name, help };
    this.#buckets = { http: new Buckets(bounds.length), wire: new Buckets(bounds.length) };
  }

  count(door: DoorLabel, value: number): void {
    const buckets = this.#buckets[door];
    const bounds = this.#bounds;
    let at = 0;
    while (at < bounds.length && value > (bounds[at] ?? 0)) at += 1;
    buckets.counts[at] = (buckets.counts[at] ?? 0) + 1;
    buckets.sum += value;
  }

  /** What prom-client makes both its text and its JSON from. */
  async getForPromString(): Promise<object> {
    return { ...this.#about, type: 'histogram', aggregator: 'sum', values: DOORS.flatMap((door) => this.#valuesOf(door)) };
  }

  #valuesOf(door: DoorLabel): object[] {
    const { name } = this.#about;
    const { counts, sum } = this.#buckets[door];
    let total = 0;
    const upTo = [...counts].map((count) => {
      total += count;
      return total;
    });
    if (total === 0) return [];
    const value = (suffix: string, amount: number, labels: object) => ({
      metricName: `${name}_${suffix}`,
      value: amount,
      labels,
      sharedLabels: { door },
    });
    return [
      ...upTo.map((amount, i) => value('bucket', amount, { le: this.#bounds[i] ?? '+Inf' })),
      value('sum', sum, {}),
      value('count', total, {}),
    ];
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
