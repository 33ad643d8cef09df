import type { PinnedFor } from '../../src/router/sessions.ts';
import type { WireSession } from '../relay/wire-session.ts';
import type { PinReason } from './pins.ts';

/** What each pin is, for those who look at their sessions; proxy/README.md describes them. */
const EXPLANATIONS: Readonly<Record<PinReason | 'transaction', string>> = {
  transaction: 'It is in a transaction, or has sent requests without a Sync, and keeps its backend until that ends.',
  session: 'It has asked for a backend of its own with postern.pool=session, and keeps it until it ends.',
  listen: 'It listens to notifications (LISTEN), and keeps its backend until it stops (UNLISTEN).',
  prepared: 'It has prepared a statement in SQL (PREPARE), and keeps its backend until that is deallocated.',
  cursor: 'It has a cursor WITH HOLD, and keeps its backend until that is closed.',
  temp: 'It has a temporary table, or pg_temp in its search_path, and keeps its backend until that is dropped or removed.',
  advisory_lock: 'It holds an advisory lock of the session, and keeps its backend until that is released.',
  sequence: 'It asks for currval or lastval, and keeps its backend until another session would have to wait for one.',
  seed: 'It has set the seed of random(), and keeps its backend until DISCARD ALL or its end.',
  setting:
    'It has set temp_buffers, a setting whose name its text does not show, or more than 100 of its own, and keeps its backend until DISCARD ALL or its end.',
  oversized: 'It has prepared a statement of more than 1 MiB under a name, and keeps its backend until DISCARD ALL or its end.',
  constant: "It has prepared a statement with a constant such as 'now' under a name, and keeps its backend until DISCARD ALL or its end.",
  unknown: 'What it holds could not be found out, so it keeps its backend until that is known.',
};

/** Why a session keeps its backend. */
export function pinsOf({ pins, status, isUnsynced, link }: WireSession): PinnedFor[] {
  const isInTransaction = link.lease !== undefined && (status !== 'I' || isUnsynced);
  const reasons = [
    ...(isInTransaction ? (['transaction'] as const) : []),
    ...pins.reasons,
    ...(pins.sequences?.isLasting ? (['sequence'] as const) : []),
  ];
  return reasons.map((reason) => ({ reason, explanation: EXPLANATIONS[reason] }));
}
