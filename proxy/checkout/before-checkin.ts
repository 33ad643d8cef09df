import { queryMessage } from '../../src/protocol/frontend.ts';
import { StateProbe } from '../pinning/state-probe.ts';
import type { WireSession } from '../relay/wire-session.ts';
import { settingsChange } from './settings-sql.ts';

/**
 * Asks what the session has left on its idle backend, and restores the session's settings there.
 * @returns true when nothing remains to be done; false when a reply to one of Postern's own requests has to arrive first
 */
export function isCheckinDone(session: WireSession): boolean {
  const { link, pins, replies } = session;
  if (pins.suspected || replies.syncInCopy === 'ambiguous') {
    pins.suspected = false;
    const probe = new StateProbe(pins.customSettings, pins.unconfirmedOptions);
    link.ask(probe.message, { own: 'probe', probe });
  } else if (pins.locks?.checkDue === true) {
    pins.locks.checkDue = false;
    checkLocks(session);
    return false;
  } else {
    const change = settingsToRestore(session);
    if (change === undefined) return true;
    const { cancels, backend } = link;
    // The cancel request was meant for the client's request and could hit Postern's own.
    if (cancels?.underWay !== undefined) {
      checkInAgainAfter(session, cancels.underWay);
      return false;
    }
    backend?.session.settingsMade(pins.settings);
    link.ask(queryMessage(change), { own: 'settings' });
  }
  link.out.flush();
  return false;
}

/** RESET and DISCARD go back to the server's defaults, and not to the settings with which the client started. */
function settingsToRestore({ pins, link }: WireSession): string | undefined {
  const backend = link.lease?.backend;
  if (backend === undefined || backend.session.settings === pins.settings) return undefined;
  return settingsChange(backend.session.settings, pins.settings);
}

function checkLocks(session: WireSession): void {
  const { backend, services, pins } = session;
  checkInAgainAfter(
    session,
    services.holdsAdvisoryLocks(backend?.processId ?? 0).then((held) => pins.locksHeld(held)),
  );
}

function checkInAgainAfter(session: WireSession, event: Promise<void>): void {
  const { link, replies, events } = session;
  const { lease } = link;
  void event.then(
    () => {
      if (link.lease === lease && replies.length === 0) events.checkInAgain();
    },
    () => {},
  );
}
