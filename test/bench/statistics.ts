/** A figure over some rounds. */
export interface Spread {
  readonly median: number;
  readonly min: number;
  readonly max: number;
}

/** Of those that could be measured. @returns undefined where none could */
export function spreadOf(values: readonly number[]): Spread | undefined {
  const sorted = values.filter((value) => Number.isFinite(value)).toSorted((a, b) => a - b);
  const [min, max] = [sorted.at(0), sorted.at(-1)];
  if (min === undefined || max === undefined) return undefined;
  const middle = sorted.length / 2;
  const median = ((sorted[Math.ceil(middle) - 1] ?? min) + (sorted[Math.floor(middle)] ?? max)) / 2;
  return { median, min, max };
}

/**
 * How one compares with the other, round by round: what the machine does meanwhile hits both of a round alike, and their
 * ratio hardly. A round in which either is missing or nought does not count.
 */
export function ratioOf(values: readonly number[], others: readonly number[]): Spread | undefined {
  return spreadOf(values.map((value, round) => value / (others[round] ?? 0)));
}
