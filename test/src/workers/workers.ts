import { expect } from 'vitest';
import { LentLimit } from '../../../src/workers/lent-limit.ts';
import { LimitAllocator } from '../../../src/workers/limits.ts';
import type { ToSupervisor } from '../../../src/workers/messages.ts';

/** Workers that share a limit, with an allocator that hears and answers in later turns, in order. */
export class Workers {
  readonly allocator: LimitAllocator;
  readonly limits = new Map<number, LentLimit>();
  /** Workers that do not answer. */
  readonly hanging = new Set<number>();
  messages = 0;
  readonly #max: number;
  readonly #count: number;
  readonly #block: { readonly block?: number };

  /** @param leavesAsMany no key may have more than are left for the others; otherwise each may have all */
  constructor(max: number, count: number, leavesAsMany = false) {
    this.#max = max;
    this.#count = count;
    this.#block = leavesAsMany ? { block: 0 } : {};
    this.allocator = new LimitAllocator(
      {
        granted: (worker, key, granted) => this.#later(worker, (limit) => limit.granted(key, granted)),
        reclaim: (worker, request, key = '', mayEvict) =>
          this.#later(worker, (limit) => {
            if (!limit.giveUp(key, mayEvict)) this.#tell(worker, () => this.allocator.kept(request));
          }),
        owe: () => expect.fail('nothing that is used is ever due'),
        settled: () => {},
      },
      { isPatient: false, mayReclaim: !leavesAsMany },
    );
    this.allocator.limit({ max: leavesAsMany ? max : Number.POSITIVE_INFINITY, maxPerTenant: max, reserved: 0, leavesAsMany });
    for (let worker = 1; worker <= count; worker += 1) this.start(worker);
  }

  /** @param evict closes one at this worker for another */
  start(worker: number, evict?: () => boolean): LentLimit {
    const tell = (message: ToSupervisor) => {
      if (this.limits.get(worker) !== limit) return;
      this.#tell(worker, () => {
        if (message.kind === 'acquire') {
          this.allocator.acquire(worker, message.organizationId, message.count, message.mayEvict, message.max);
        }
        if (message.kind === 'release') this.allocator.release(worker, message.organizationId, message.count);
      });
    };
    const limit = new LentLimit({ limit: 'clients', max: this.#max, workers: this.#count, tell, ...this.#block, ...(evict && { evict }) });
    this.limits.set(worker, limit);
    return limit;
  }

  kill(worker: number): void {
    this.limits.delete(worker);
    this.allocator.forget(worker);
  }

  of(worker: number): LentLimit {
    const limit = this.limits.get(worker);
    if (limit === undefined) throw new Error(`worker ${worker} has ended`);
    return limit;
  }

  #tell(worker: number, hear: () => void): void {
    this.messages += 1;
    const sender = this.limits.get(worker);
    queueMicrotask(() => {
      if (this.limits.get(worker) === sender) hear();
    });
  }

  #later(worker: number, hear: (limit: LentLimit) => void): void {
    this.messages += 1;
    const receiver = this.limits.get(worker);
    queueMicrotask(() => {
      if (receiver !== undefined && receiver === this.limits.get(worker) && !this.hanging.has(worker)) hear(receiver);
    });
  }
}
