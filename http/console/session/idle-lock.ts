import { isSignedIn, lock, lockedBecause } from './session.ts';

const IDLE_MAX_MS = 30 * 60_000;
const CHECK_EVERY_MS = 15_000;

/** Locks the page when nobody has touched it for half an hour. */
export function lockWhenIdle(): void {
  let touchedAt = Date.now();
  for (const event of ['pointerdown', 'pointermove', 'keydown', 'wheel', 'touchstart']) {
    addEventListener(event, () => (touchedAt = Date.now()), { passive: true, capture: true });
  }
  // A suspended machine has no timers: the clock is compared.
  setInterval(() => {
    if (Date.now() - touchedAt < IDLE_MAX_MS || !isSignedIn.value || lockedBecause.value !== undefined) return;
    lock('Nobody has used this page for 30 minutes.');
  }, CHECK_EVERY_MS);
}
