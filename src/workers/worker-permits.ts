import type { BackendPermits } from '../backend/organization-pool.ts';
import { backendsOf } from './messages.ts';
import { tellSupervisor } from './tell-supervisor.ts';

interface Waiting {
  readonly isWanted: () => boolean;
  readonly settle: (isGranted: boolean) => void;
}

/** How often those that wait are looked through for some that need no session any more. */
const CHECK_EVERY_MS = 20;

/** Asks the supervisor, which counts the backend sessions of all workers on a cluster, before one is opened. */
export class WorkerPermits implements BackendPermits {
  readonly cluster: string;
  readonly #limit: string;
  /** Those that wait, by organization, in their order. */
  readonly #waiting = new Map<string, Waiting[]>();
  #timer: NodeJS.Timeout | undefined;

  constructor(cluster: string) {
    this.cluster = cluster;
    this.#limit = backendsOf(cluster);
  }

  acquire(organizationId: string, isWanted: () => boolean): Promise<boolean> {
    return new Promise((settle) => {
      const waiting = this.#waiting.get(organizationId) ?? [];
      waiting.push({ isWanted, settle });
      this.#waiting.set(organizationId, waiting);
      this.#timer ??= setTimeout(() => this.#withdraw(), CHECK_EVERY_MS).unref();
      tellSupervisor({ kind: 'acquire', limit: this.#limit, organizationId, count: 1, mayEvict: false });
    });
  }

  release(organizationId: string): void {
    tellSupervisor({ kind: 'release', limit: this.#limit, organizationId, count: 1 });
  }

  granted(organizationId: string): void {
    const first = this.#waiting.get(organizationId)?.shift();
    this.#forgetIfEmpty(organizationId);
    if (first?.isWanted()) first.settle(true);
    else {
      first?.settle(false);
      this.release(organizationId);
    }
  }

  #withdraw(): void {
    this.#timer = undefined;
    for (const [organizationId, waiting] of this.#waiting) {
      const left = waiting.filter(({ isWanted }) => isWanted());
      for (const one of waiting) {
        if (left.includes(one)) continue;
        one.settle(false);
        tellSupervisor({ kind: 'withdraw', limit: this.#limit, organizationId });
      }
      this.#waiting.set(organizationId, left);
      this.#forgetIfEmpty(organizationId);
    }
    if (this.#waiting.size > 0) this.#timer = setTimeout(() => this.#withdraw(), CHECK_EVERY_MS).unref();
  }

  #forgetIfEmpty(organizationId: string): void {
    if (this.#waiting.get(organizationId)?.length === 0) this.#waiting.delete(organizationId);
  }
}
