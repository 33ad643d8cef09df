import { randomInt, timingSafeEqual } from 'node:crypto';

/** What BackendKeyData gives out and a CancelRequest carries. */
export interface CancelKey {
  /** Stands for the session, not for a backend: a session's backends change. */
  readonly processId: number;
  readonly secret: Buffer;
}

/** Who is to be canceled. */
export interface Cancelable {
  cancel(): Promise<void>;
}

interface Session {
  /** Byte by character: a short buffer would keep the whole block that it was cut from. */
  readonly secret: string;
  /** None once it is over: tables that the map has outgrown keep what was in them until memory is cleared up in full. */
  target: Cancelable | undefined;
}

/** Above any process id that an operating system gives out (Linux: below 2^22), so that none is ever a backend's. */
const FIRST_PROCESS_ID = 2 ** 24;
const LAST_PROCESS_ID = 2 ** 31 - 1;

/** The cancel keys of the wire sessions that are open in this process: random, and never a backend's own. */
export class CancelKeys {
  readonly #sessions = new Map<number, Session>();

  /** @returns the process id that the secret goes with */
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

  /** Cancels what the key's session is waiting for; a key that is not known does nothing, as in Postgres. */
  async cancel({ processId, secret }: CancelKey): Promise<void> {
    const session = this.#sessions.get(processId);
    if (session === undefined || session.secret.length !== secret.length) return;
    if (timingSafeEqual(Buffer.from(session.secret, 'latin1'), secret)) await session.target?.cancel();
  }
}
