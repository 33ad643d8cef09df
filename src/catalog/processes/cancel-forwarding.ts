import { createHash } from 'node:crypto';
import type { Observe } from '../../observation.ts';
import type { ControlPool } from '../database/control-pool.ts';
import { notifyOthers } from './notify-others.ts';

/** The channel on which processes pass on cancel requests. */
export const CANCELS_CHANNEL = 'postern_cancels';

/** A cancel request for whichever process has the session. Its secret is not passed on, only a digest that proves it. */
export interface ForwardedCancel {
  readonly processId: number;
  /** SHA-256 of the secret, in base64. */
  readonly secretDigest: string;
}

export type CancelHandler = (cancel: ForwardedCancel) => void;

/** A notification may have 8,000 bytes; a cancel request takes up to 64 of them. */
const CANCELS_PER_NOTIFICATION = 100;
/** Anybody may send cancel requests: while so many wait, further ones are dropped, as if they had come too late. */
const WAITING_MAX = 1_000;

/**
 * Passes on cancel requests to the other processes that share a control database: a client's cancel request comes on a connection of
 * its own, which a load balancer may send to another process than the session's.
 */
export class CancelForwarding {
  readonly #own: number;
  readonly #database: ControlPool;
  readonly #observe: Observe;
  #waiting: ForwardedCancel[] = [];
  /** The notification that is sent now. */
  #sending: Promise<void> | undefined;
  #handler: CancelHandler = () => {};

  /** @param own this process's number */
  constructor(own: number, database: ControlPool, observe: Observe) {
    this.#own = own;
    this.#database = database;
    this.#observe = observe;
  }

  /** @param handler is called with the cancel requests of other processes, most of which are for none of this one's sessions */
  serve(handler: CancelHandler): void {
    this.#handler = handler;
  }

  /** Resolves when the other processes have been notified, if there are any. An error is observed. */
  async forward(processId: number, secret: Buffer): Promise<void> {
    if (this.#waiting.length >= WAITING_MAX) return;
    this.#waiting.push({ processId, secretDigest: secretDigest(secret) });
    // Those that come while one notification is sent go with the next.
    await this.#sending;
    while (this.#waiting.length > 0) {
      this.#sending ??= this.#sendNext();
      await this.#sending;
    }
  }

  notified(payload: string): void {
    const cancels = parseCancels(payload);
    for (const cancel of cancels) this.#handler(cancel);
  }

  async #sendNext(): Promise<void> {
    const payload = JSON.stringify(this.#waiting.splice(0, CANCELS_PER_NOTIFICATION).map((one) => [one.processId, one.secretDigest]));
    try {
      await notifyOthers(this.#database, this.#own, CANCELS_CHANNEL, payload);
    } catch (cause) {
      this.#observe({ name: 'service.warning', message: 'cancel requests could not be passed on to other processes', cause });
    } finally {
      this.#sending = undefined;
    }
  }
}

/** @param secret as it is in BackendKeyData */
export function secretDigest(secret: Buffer): string {
  return createHash('sha256').update(secret).digest('base64');
}

/** @returns none for a payload of another version */
function parseCancels(payload: string): ForwardedCancel[] {
  try {
    const entries: unknown = JSON.parse(payload);
    if (!Array.isArray(entries)) return [];
    return entries.flatMap((entry) => {
      const [processId, digest] = Array.isArray(entry) ? entry : [];
      return typeof processId === 'number' && typeof digest === 'string' ? [{ processId, secretDigest: digest }] : [];
    });
  } catch {
    return [];
  }
}
