import type { BackendPermits } from '../backend/pool/pool.ts';
import { tellSupervisor } from './channel.ts';

/** Asks the supervisor, which counts the backend sessions of all workers, before one is opened. */
export class WorkerPermits implements BackendPermits {
  /** Those that wait, by organization, in their order. */
  readonly #waiting = new Map<string, (() => void)[]>();

  acquire(organizationId: string): Promise<void> {
    return new Promise((resolve) => {
      const waiting = this.#waiting.get(organizationId) ?? [];
      waiting.push(resolve);
      this.#waiting.set(organizationId, waiting);
      tellSupervisor({ kind: 'acquire', organizationId });
    });
  }

  release(organizationId: string): void {
    tellSupervisor({ kind: 'release', organizationId });
  }

  granted(organizationId: string): void {
    const waiting = this.#waiting.get(organizationId);
    waiting?.shift()?.();
    if (waiting?.length === 0) this.#waiting.delete(organizationId);
  }
}
