import { queryMessage } from '../../src/protocol/frontend-encoder.ts';
import type { Pins } from '../pinning/pins.ts';
import { StateProbe } from '../pinning/state-probe.ts';
import type { BackendMessages } from '../relay/backend-messages.ts';
import type { SessionServices } from '../sessions/session-services.ts';
import type { BackendLink } from './backend-link.ts';
import { settingsChange } from './settings-sync.ts';

/** What a check-in needs of the session. */
interface CheckinSession {
  readonly link: BackendLink;
  readonly services: SessionServices;
  readonly pins: Pins;
  readonly replies: BackendMessages;
  checkInAgain(): void;
}

/** Finds out what is left of a session on its backend when that is idle, and restores the session's settings there. */
export class Checkin {
  readonly #session: CheckinSession;

  constructor(session: CheckinSession) {
    this.#session = session;
  }

  /** @returns whether all is known and as it should be; if not, the answer to a question or request of ours is under way */
  isDone(): boolean {
    const { link, pins, replies } = this.#session;
    if (pins.suspected || replies.queue.copyAmbiguous) {
      pins.suspected = false;
      const probe = new StateProbe(pins.customSettings);
      link.ask(probe.message, { own: 'probe', probe });
    } else if (pins.lockCheckDue) {
      this.#checkLocks();
      return false;
    } else {
      const change = this.#settingsToRestore();
      if (change === undefined) return true;
      const { cancels, backend } = link;
      // It was meant for the client's request, and would hit ours.
      if (cancels.underWay !== undefined) {
        this.#askAgainAfter(cancels.underWay);
        return false;
      }
      if (backend !== undefined) backend.session.settings = pins.settings;
      link.ask(queryMessage(change), { own: 'settings' });
    }
    link.out.flush();
    return false;
  }

  /** RESET and DISCARD go back to what the session started with, which is more than the server knows. */
  #settingsToRestore(): string | undefined {
    const { pins, link } = this.#session;
    const state = link.backend?.session;
    return state === undefined ? undefined : settingsChange(state.settings, pins.settings);
  }

  #checkLocks(): void {
    const { link, services, pins } = this.#session;
    pins.lockCheckDue = false;
    this.#askAgainAfter(services.holdsAdvisoryLocks(link.backend?.processId ?? 0).then((held) => pins.locksHeld(held)));
  }

  #askAgainAfter(event: Promise<void>): void {
    const { link, replies } = this.#session;
    const { lease } = link;
    void event.then(
      () => {
        if (link.lease === lease && replies.queue.length === 0) this.#session.checkInAgain();
      },
      () => {},
    );
  }
}
