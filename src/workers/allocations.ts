/** How much each worker has of what belongs to organizations, by the workers' numbers. */
export class Allocations {
  total = 0;
  readonly #counts = new Map<string, Map<number, number>>();
  /** The sums of {@link #counts}. */
  readonly #sizes = new Map<string, number>();

  add(worker: number, organizationId: string, change: number): void {
    const workers = this.#counts.get(organizationId) ?? new Map<number, number>();
    const count = Math.max(0, (workers.get(worker) ?? 0) + change);
    const difference = count - (workers.get(worker) ?? 0);
    this.total += difference;
    this.#sizes.set(organizationId, this.sizeOf(organizationId) + difference);
    if (count > 0) workers.set(worker, count);
    else workers.delete(worker);
    if (workers.size > 0) {
      this.#counts.set(organizationId, workers);
      return;
    }
    this.#counts.delete(organizationId);
    this.#sizes.delete(organizationId);
  }

  /** The worker has ended. */
  forget(worker: number): void {
    for (const [organizationId, workers] of [...this.#counts]) this.add(worker, organizationId, -(workers.get(worker) ?? 0));
  }

  has(worker: number, organizationId: string): boolean {
    return this.#counts.get(organizationId)?.has(worker) === true;
  }

  sizeOf(organizationId: string): number {
    return this.#sizes.get(organizationId) ?? 0;
  }

  /** The organization that has the most. */
  largest(): readonly [organizationId: string | undefined, size: number] {
    let largest: readonly [string | undefined, number] = [undefined, 0];
    for (const entry of this.#sizes) if (entry[1] > largest[1]) largest = entry;
    return largest;
  }

  /** The workers that have something of this organization, or of any, with their numbers; the largest number first. */
  holdersOf(organizationId: string | undefined): (readonly [worker: number, count: number])[] {
    const sums = new Map<number, number>();
    const all = organizationId === undefined ? this.#counts.values() : [this.#counts.get(organizationId) ?? new Map<number, number>()];
    for (const workers of all) for (const [worker, count] of workers) sums.set(worker, (sums.get(worker) ?? 0) + count);
    return [...sums].sort(([, one], [, other]) => other - one);
  }
}
