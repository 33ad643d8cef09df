import { browserName } from '../../session/browser-name.ts';
import type { Session, SessionState } from './session-calls.ts';

/** What a client calls itself: `psql`, `curl/8.5.0`, `Chromium`. */
export function programOf({ applicationName, userAgent, door }: Session): string {
  if (applicationName !== null && applicationName !== '') return applicationName;
  if (userAgent === null || userAgent === '') return door === 'wire' ? 'connection' : 'request';
  return userAgent.startsWith('Mozilla/') ? browserName(userAgent) : (userAgent.split(' ')[0] ?? userAgent);
}

export const STATE_MEANINGS: Readonly<Record<SessionState, string>> = {
  idle: 'It waits for its client, outside of a transaction.',
  active: 'It runs a statement or serves a request.',
  'idle in transaction': 'A transaction is open, and it waits for its client. The transaction keeps its locks meanwhile.',
  'idle in failed transaction': 'A statement has failed in a transaction, and the client has not rolled it back yet.',
  'waiting for a backend': 'All backends that the organization may use are busy. It runs when one is free.',
};

const TONES: Readonly<Record<SessionState, string>> = {
  idle: '',
  active: 'accent',
  'idle in transaction': 'warning',
  'idle in failed transaction': 'bad',
  'waiting for a backend': 'warning',
};

export function StateTag({ state }: Pick<Session, 'state'>) {
  return (
    <span class={`tag ${TONES[state]}`} title={STATE_MEANINGS[state]}>
      {state}
    </span>
  );
}
