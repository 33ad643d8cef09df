import type { ReplyQueue } from '../src/backend/reply-queue.ts';
import { queryMessage } from './messages.ts';
import type { Pins } from './pins.ts';
import type { RelayHost } from './relay-host.ts';
import { settingsChange } from './session-settings.ts';
import { StateProbe } from './state-probe.ts';
import type { Tenure } from './tenure.ts';

/** Finds out what is left of a session on its backend when that is idle, and restores the session's settings there. */
export class Settling {
  readonly #tenure: Tenure;
  readonly #host: RelayHost;
  readonly #pins: Pins;
  readonly #queue: ReplyQueue;
  readonly #again: () => void;

  /** @param again called when it is worth asking again */
  constructor(tenure: Tenure, host: RelayHost, pins: Pins, queue: ReplyQueue, again: () => void) {
    this.#tenure = tenure;
    this.#host = host;
    this.#pins = pins;
    this.#queue = queue;
    this.#again = again;
  }

  /** @returns whether all is known and as it should be; if not, the answer to a question or request of ours is under way */
  isDone(): boolean {
    const pins = this.#pins;
    if (pins.suspected || this.#queue.doubtful) {
      pins.suspected = false;
      const probe = new StateProbe(pins.customSettings);
      this.#tenure.ask(probe.message, { own: 'probe', probe });
    } else if (pins.lockCheckDue) {
      this.#checkLocks();
      return false;
    } else {
      const change = this.#settingsToRestore();
      if (change === undefined) return true;
      const { canceling, backend } = this.#tenure;
      // It was meant for the client's request, and would hit ours.
      if (canceling !== undefined) {
        this.#askAgainAfter(canceling);
        return false;
      }
      if (backend !== undefined) backend.session.settings = pins.settings;
      this.#tenure.ask(queryMessage(change), { own: 'settings' });
    }
    this.#tenure.out.flush();
    return false;
  }

  /** RESET and DISCARD go back to what the session started with, which is more than the server knows. */
  #settingsToRestore(): string | undefined {
    const { settings } = this.#pins;
    const session = this.#tenure.backend?.session;
    return session === undefined ? undefined : settingsChange(session.settings, settings);
  }

  #checkLocks(): void {
    this.#pins.lockCheckDue = false;
    this.#askAgainAfter(this.#host.holdsAdvisoryLocks(this.#tenure.backend?.processId ?? 0).then((held) => this.#pins.locksHeld(held)));
  }

  #askAgainAfter(event: Promise<void>): void {
    const { lease } = this.#tenure;
    void event.then(
      () => {
        if (this.#tenure.lease === lease && this.#queue.length === 0) this.#again();
      },
      () => {},
    );
  }
}
