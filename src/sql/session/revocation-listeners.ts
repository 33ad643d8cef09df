import { type Indexed, IndexedSet } from '../../runtime/indexed-set.ts';

/** A session that must be notified when its key is revoked. */
export interface Revocable extends Indexed {
  /** The reason is that of the aborted signal. */
  revoke(revoked: AbortSignal): void;
}

const OPEN = new WeakMap<AbortSignal, IndexedSet<Revocable>>();

/**
 * The sessions that are notified when a signal is aborted. The signal has a single listener, which notifies them all:
 * adding and removing a listener takes longer the more there are.
 */
export function toldWhenAborted(signal: AbortSignal): IndexedSet<Revocable> {
  const known = OPEN.get(signal);
  if (known !== undefined) return known;
  const open = new IndexedSet<Revocable>();
  OPEN.set(signal, open);
  const revokeAll = () => {
    for (const one of open.all()) one.revoke(signal);
  };
  signal.addEventListener('abort', revokeAll, { once: true });
  return open;
}
