/** Figures of one kind for one case, of each peer that took part: by its name, one for each round. */
export interface Series {
  /** Of the scenario that measured it: `wire-simple`. */
  readonly scenario: string;
  /** `32 clients` */
  readonly case: string;
  /** `tps`, `µs CPU` */
  readonly unit: string;
  readonly figures: ReadonlyMap<string, readonly number[]>;
}

interface Named {
  readonly name: string;
}

export interface Rounds {
  readonly scenario: string;
  readonly case: string;
  readonly rounds: number;
  /** With `--without` both are measured at the same time: what the machine does meanwhile hits both alike. */
  readonly without?: readonly unknown[];
  readonly signal: AbortSignal;
}

/**
 * Measures one peer after the other, and all of them again, A B A B…, so that a machine that gets slower gets slower for all.
 * @param one figures by unit; one that cannot be had is NaN
 * @returns a series for each unit
 */
export async function interleave<Peer extends Named>(
  { rounds, signal, without = [], ...labels }: Rounds,
  peers: readonly Peer[],
  one: (peer: Peer) => Promise<Readonly<Record<string, number>>>,
): Promise<Series[]> {
  const units = new Map<string, Map<string, number[]>>();
  for (let round = 0; round < rounds; round++) {
    const atOnce = without.length > 0 ? peers.map(one) : [];
    for (const [index, peer] of peers.entries()) {
      signal.throwIfAborted();
      for (const [unit, figure] of Object.entries(await (atOnce[index] ?? one(peer)))) {
        figuresOf(units, unit, peer.name).push(figure);
      }
    }
  }
  return [...units].map(([unit, figures]) => ({ ...labels, unit, figures }));
}

function figuresOf(units: Map<string, Map<string, number[]>>, unit: string, peer: string): number[] {
  const series = units.get(unit) ?? new Map<string, number[]>();
  units.set(unit, series);
  const figures = series.get(peer) ?? [];
  series.set(peer, figures);
  return figures;
}
