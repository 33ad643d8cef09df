import type { Bench } from './bench.ts';
import type { Mechanism } from './mechanisms.ts';
import { startPostern } from './postern.ts';
import { POSTERN } from './reach.ts';
import type { Series } from './series.ts';
import { ratioOf } from './statistics.ts';
import { figure, table } from './table.ts';
import { CPU } from './wire.ts';

/** What a mechanism brings: figures of Postern, and of one that does without it. */
interface Ablation {
  readonly mechanism: Mechanism;
  readonly series: readonly Series[];
}

/**
 * Both are started anew for each mechanism: a process that has run other loads before is slower.
 * @param measure runs the scenarios with both
 */
export async function measureWithout(bench: Bench, measure: (bench: Bench) => Promise<Series[]>): Promise<Ablation[]> {
  const found: Ablation[] = [];
  for (const mechanism of bench.options.without) {
    const { pool } = bench.options;
    const [postern, ablated] = await Promise.all([startPostern({ ...bench, pool }), startPostern({ ...bench, pool, without: mechanism })]);
    try {
      const series = await measure({ ...bench, postern, ablated });
      found.push({ mechanism, series });
      process.stdout.write(`${ablationTable([{ mechanism, series }])}\n`);
    } finally {
      await Promise.all([postern.child.end(), ablated.child.end()]);
    }
  }
  return found;
}

/** For each mechanism and case: throughput with it to that without it, and processor time without it to that with it. */
export function ablationTable(ablations: readonly Ablation[]): string {
  const titles = [...new Set(ablations.flatMap(({ series }) => series.map(titleOf)))];
  const rows = ablations.map(({ mechanism, series }) => [
    mechanism.name,
    ...titles.map((title) => {
      const gains = series.filter((one) => titleOf(one) === title).map(gainOf);
      return gains.map((gain) => (gain === undefined ? 'n/a' : figure(gain))).join(' / ');
    }),
  ]);
  return table(['without', ...titles], rows);
}

function titleOf({ scenario, case: label }: Series): string {
  return `${scenario}, ${label}`;
}

/** Greater than 1: it pays. */
function gainOf({ unit, figures }: Series): number | undefined {
  const [whole, ablated] = [figures.get(POSTERN) ?? [], figures.get('Ablated') ?? []];
  return (unit === CPU ? ratioOf(ablated, whole) : ratioOf(whole, ablated))?.median;
}
