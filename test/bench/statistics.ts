/** A figure over some rounds. */
export interface Spread {
  readonly median: number;
  readonly min: number;
  readonly max: number;
}

/** @returns undefined for no figures at all */
export function spreadOf(values: readonly number[]): Spread | undefined {
  const sorted = values.toSorted((a, b) => a - b);
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
  return spreadOf(
    values.flatMap((value, round) => {
      const ratio = value / (others[round] ?? 0);
      return Number.isFinite(ratio) ? [ratio] : [];
    }),
  );
}
