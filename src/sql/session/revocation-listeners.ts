import { type Indexed, IndexedSet } from '../../runtime/indexed-set.ts';

/** Who is to be told that a key is good no more. */
export interface Revocable extends Indexed {
  /** Takes the reason from the signal that was aborted. */
  revoke(revoked: AbortSignal): void;
}

const OPEN = new WeakMap<AbortSignal, IndexedSet<Revocable>>();

/**
 * Who is to be told when a signal is aborted that may have many listeners, coming and going: one listener of its own tells
 * them all, as adding and removing one takes longer the more there are.
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
