/** Takes the reason from the signal that was aborted. */
export type Revoke = (revoked: AbortSignal) => void;

const OPEN = new WeakMap<AbortSignal, Set<Revoke>>();

/**
 * What is to be called when a signal is aborted that may have many listeners, coming and going: one listener of its own calls
 * them all, as adding and removing one takes longer the more there are.
 */
export function calledWhenAborted(signal: AbortSignal): Set<Revoke> {
  const known = OPEN.get(signal);
  if (known !== undefined) return known;
  const open = new Set<Revoke>();
  OPEN.set(signal, open);
  const revokeAll = () => {
    for (const revoke of open) revoke(signal);
  };
  signal.addEventListener('abort', revokeAll, { once: true });
  return open;
}
