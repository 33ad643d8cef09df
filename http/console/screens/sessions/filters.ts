import { signal } from '@preact/signals';
import { hasWords } from '../../has-words.ts';
import type { Session } from './session-calls.ts';
import { programOf } from './session-labels.tsx';

export type Shown = 'all' | 'active' | 'transaction' | 'pinned' | 'http';

export const SHOWN: readonly (readonly [Shown, string])[] = [
  ['all', 'all'],
  ['active', 'running or waiting'],
  ['transaction', 'in a transaction'],
  ['pinned', 'keeping a backend'],
  ['http', 'requests over HTTP'],
];

export const shown = signal<Shown>('all');
export const searched = signal('');

const TESTS: Readonly<Record<Shown, (session: Session) => boolean>> = {
  all: () => true,
  active: ({ state }) => state === 'active' || state === 'waiting for a backend',
  transaction: ({ state, pins }) => state.includes('transaction') || pins.some(({ reason }) => reason === 'transaction'),
  pinned: ({ pins }) => pins.length > 0,
  http: ({ door }) => door === 'http',
};

/** @param keyNames by key id */
export function findSessions(sessions: readonly Session[], keyNames: ReadonlyMap<string, string>): readonly Session[] {
  return sessions.filter((session) => {
    if (!TESTS[shown.value](session)) return false;
    const { sessionId, processId, sourceIp, keyId, keyPrefix, statement } = session;
    const text = [programOf(session), sessionId, processId, sourceIp, keyId, keyPrefix, keyNames.get(keyId), statement?.sql].join(' ');
    return hasWords(text, searched.value);
  });
}
