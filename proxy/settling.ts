import { queryMessage } from './messages.ts';
import type { Relay } from './relay.ts';
import { settingsChange } from './session-settings.ts';
import { StateProbe } from './state-probe.ts';

type Session = Pick<Relay, 'tenure' | 'host' | 'pins' | 'replies' | 'settleAgain'>;

/** Finds out what is left of a session on its backend when that is idle, and restores the session's settings there. */
export class Settling {
  readonly #session: Session;

  constructor(session: Session) {
    this.#session = session;
  }

  /** @returns whether all is known and as it should be; if not, the answer to a question or request of ours is under way */
  isDone(): boolean {
    const { tenure, pins, replies } = this.#session;
    if (pins.suspected || replies.queue.doubtful) {
      pins.suspected = false;
      const probe = new StateProbe(pins.customSettings);
      tenure.ask(probe.message, { own: 'probe', probe });
    } else if (pins.lockCheckDue) {
      this.#checkLocks();
      return false;
    } else {
      const change = this.#settingsToRestore();
      if (change === undefined) return true;
      const { cancels, backend } = tenure;
      // It was meant for the client's request, and would hit ours.
      if (cancels.underWay !== undefined) {
        this.#askAgainAfter(cancels.underWay);
        return false;
      }
      if (backend !== undefined) backend.session.settings = pins.settings;
      tenure.ask(queryMessage(change), { own: 'settings' });
    }
    tenure.out.flush();
    return false;
  }

  /** RESET and DISCARD go back to what the session started with, which is more than the server knows. */
  #settingsToRestore(): string | undefined {
    const { pins, tenure } = this.#session;
    const state = tenure.backend?.session;
    return state === undefined ? undefined : settingsChange(state.settings, pins.settings);
  }

  #checkLocks(): void {
    const { tenure, host, pins } = this.#session;
    pins.lockCheckDue = false;
    this.#askAgainAfter(host.holdsAdvisoryLocks(tenure.backend?.processId ?? 0).then((held) => pins.locksHeld(held)));
  }

  #askAgainAfter(event: Promise<void>): void {
    const { tenure, replies } = this.#session;
    const { lease } = tenure;
    void event.then(
      () => {
        if (tenure.lease === lease && replies.queue.length === 0) this.#session.settleAgain();
      },
      () => {},
    );
  }
}
