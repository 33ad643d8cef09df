import type { Conversation } from './conversation.ts';
import { queryMessage } from './messages.ts';
import { settingsChange } from './session-settings.ts';
import { StateProbe } from './state-probe.ts';

type Session = Pick<Conversation, 'tenure' | 'host' | 'pins' | 'replies' | 'settle'>;

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
      tenure.ask(queryMessage(change), { own: 'settings' });
    }
    tenure.out.flush();
    return false;
  }

  /** RESET and DISCARD go back to what the session started with, which is more than the server knows. */
  #settingsToRestore(): string | undefined {
    const { settings } = this.#session.pins;
    const state = this.#session.tenure.backend?.session;
    if (state === undefined || state.settings === settings) return undefined;
    const change = settingsChange(state.settings, settings);
    state.settings = settings;
    return change;
  }

  #checkLocks(): void {
    const { tenure, host, pins, replies } = this.#session;
    const { lease } = tenure;
    pins.lockCheckDue = false;
    void host.holdsAdvisoryLocks(lease?.backend.processId ?? 0).then(
      (held) => {
        pins.locksHeld(held);
        if (tenure.lease === lease && replies.queue.length === 0) this.#session.settle();
      },
      () => {},
    );
  }
}
