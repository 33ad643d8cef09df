/** How much each worker has of what belongs to organizations, by the workers' numbers. */
export class WorkerCounts {
  total = 0;
  readonly #counts = new Map<string, Map<number, number>>();

  add(worker: number, organizationId: string, change: number): void {
    const workers = this.#counts.get(organizationId) ?? new Map<number, number>();
    const count = Math.max(0, (workers.get(worker) ?? 0) + change);
    this.total += count - (workers.get(worker) ?? 0);
    if (count > 0) workers.set(worker, count);
    else workers.delete(worker);
    if (workers.size > 0) this.#counts.set(organizationId, workers);
    else this.#counts.delete(organizationId);
  }

  /** The worker has ended. */
  forget(worker: number): void {
    for (const [organizationId, workers] of [...this.#counts]) this.add(worker, organizationId, -(workers.get(worker) ?? 0));
  }

  has(worker: number, organizationId: string): boolean {
    return this.#counts.get(organizationId)?.has(worker) === true;
  }

  sizeOf(organizationId: string): number {
    let size = 0;
    for (const count of this.#counts.get(organizationId)?.values() ?? []) size += count;
    return size;
  }

  /** The workers that have something of this organization, or of any, with their numbers; the largest number first. */
  holdersOf(organizationId: string | undefined): (readonly [worker: number, count: number])[] {
    const sums = new Map<number, number>();
    const all = organizationId === undefined ? this.#counts.values() : [this.#counts.get(organizationId) ?? new Map<number, number>()];
    for (const workers of all) for (const [worker, count] of workers) sums.set(worker, (sums.get(worker) ?? 0) + count);
    return [...sums].sort(([, one], [, other]) => other - one);
  }
}
