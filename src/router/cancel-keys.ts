import { randomInt, timingSafeEqual } from 'node:crypto';
import { type CancelForwarding, type ForwardedCancel, secretDigest } from '../catalog/processes.ts';

/** The key in BackendKeyData and in a CancelRequest. */
interface CancelKey {
  /** Identifies the client's session and not a backend, because a session's backends change. */
  readonly processId: number;
  readonly secret: Buffer;
}

/** A session whose running query can be canceled. */
interface Cancelable {
  cancel(): Promise<void>;
}

interface CancelableSession {
  /** One character for each byte. A short Buffer would keep the whole pool block in memory that it was cut from. */
  readonly secret: string;
  /** Undefined when the session has ended: old tables of a Map that has grown refer to their entries until a full garbage collection. */
  target: Cancelable | undefined;
}

/** Above the process ids of operating systems (Linux: below 2^22), so that none is the id of a backend. */
const FIRST_PROCESS_ID = 2 ** 24;
const LAST_PROCESS_ID = 2 ** 31 - 1;

/** The cancel keys of the wire sessions that are open in this process. They are random, and never those of a backend. */
export class CancelKeys {
  readonly #sessions = new Map<number, CancelableSession>();
  readonly #others: CancelForwarding;

  constructor(others: CancelForwarding) {
    this.#others = others;
    others.serve((cancel) => this.#cancelForwarded(cancel));
  }

  /** @returns the process id that belongs to the secret */
  issue(secret: Buffer, target: Cancelable): number {
    let processId = randomInt(FIRST_PROCESS_ID, LAST_PROCESS_ID);
    while (this.#sessions.has(processId)) processId = randomInt(FIRST_PROCESS_ID, LAST_PROCESS_ID);
    this.#sessions.set(processId, { secret: secret.toString('latin1'), target });
    return processId;
  }

  forget(processId: number): void {
    const session = this.#sessions.get(processId);
    if (session !== undefined) session.target = undefined;
    this.#sessions.delete(processId);
  }

  /**
   * Cancels the running query of the key's session, which another process may have. An unknown key does nothing, as in Postgres.
   * Resolves when the request has been sent on.
   */
  async cancel({ processId, secret }: CancelKey): Promise<void> {
    const session = this.#sessions.get(processId);
    if (session === undefined) return this.#others.forward(processId, secret);
    if (session.secret.length !== secret.length) return;
    if (timingSafeEqual(Buffer.from(session.secret, 'latin1'), secret)) await session.target?.cancel();
  }

  #cancelForwarded({ processId, secretDigest: digest }: ForwardedCancel): void {
    const session = this.#sessions.get(processId);
    if (session === undefined) return;
    const own = secretDigest(Buffer.from(session.secret, 'latin1'));
    if (own.length === digest.length && timingSafeEqual(Buffer.from(own), Buffer.from(digest))) void session.target?.cancel();
  }
}
