import { setTimeout as delay } from 'node:timers/promises';
import type { BackendConnection } from '../connection.ts';

/** A backend that has been idle ends in milliseconds, unless the server does not answer. */
const LONGEST_MS = 1_000;

/** Backends that have been told to end. Until their processes have, the server counts them, and may refuse others. */
export class EndingBackends {
  readonly #backends = new Set<BackendConnection>();

  add(backend: BackendConnection): void {
    if (backend.isGone) return;
    this.#backends.add(backend);
    void backend.gone.then(() => this.#backends.delete(backend));
  }

  /** @returns what resolves when one has ended, or hangs; undefined if there is none */
  next(): Promise<unknown> | undefined {
    if (this.#backends.size === 0) return undefined;
    return Promise.race([...[...this.#backends].map(({ gone }) => gone), delay(LONGEST_MS, undefined, { ref: false })]);
  }
}
