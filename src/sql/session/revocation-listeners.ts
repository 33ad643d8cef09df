import { type Indexed, IndexedSet } from '../../runtime/indexed-set.ts';

/** A session that must be notified when its key is revoked. */
export interface Revocable extends Indexed {
  /** @param revoked the aborted signal, which has the reason */
  revoke(revoked: AbortSignal): void;
}

const LISTENERS = new WeakMap<AbortSignal, IndexedSet<Revocable>>();

/**
 * The sessions that are notified when a signal is aborted. The signal has a single listener, which notifies them all:
 * adding and removing a listener takes longer the more there are.
 */
export function revocationListeners(signal: AbortSignal): IndexedSet<Revocable> {
  const known = LISTENERS.get(signal);
  if (known !== undefined) return known;
  const listeners = new IndexedSet<Revocable>();
  LISTENERS.set(signal, listeners);
  const revokeAll = () => {
    for (const listener of listeners.all()) listener.revoke(signal);
  };
  signal.addEventListener('abort', revokeAll, { once: true });
  return listeners;
}
