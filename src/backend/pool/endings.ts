import { setTimeout as delay } from 'node:timers/promises';
import type { BackendConnection } from '../connection.ts';

/** A session that has been idle ends in milliseconds, unless the server does not answer. */
const LONGEST_MS = 1_000;

/** Sessions that have been told to end. Until their processes have, the server counts them, and may refuse others. */
export class Endings {
  readonly #sessions = new Set<BackendConnection>();

  add(session: BackendConnection): void {
    if (session.isGone) return;
    this.#sessions.add(session);
    void session.gone.then(() => this.#sessions.delete(session));
  }

  /** @returns what resolves when one has ended, or hangs; undefined if there is none */
  next(): Promise<unknown> | undefined {
    if (this.#sessions.size === 0) return undefined;
    return Promise.race([...[...this.#sessions].map(({ gone }) => gone), delay(LONGEST_MS, undefined, { ref: false })]);
  }
}
