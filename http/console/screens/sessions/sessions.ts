import { call } from '../../api/client.ts';
import { browserName } from '../../session/browser-name.ts';

export type SessionState = 'idle' | 'active' | 'idle in transaction' | 'idle in failed transaction' | 'waiting for a backend';

/** A connection to the wire door, or a request over HTTP that is being served. */
export interface Session {
  readonly sessionId: string;
  readonly door: 'wire' | 'http';
  readonly keyId: string;
  readonly keyPrefix: string;
  readonly sourceIp: string;
  readonly applicationName: string | null;
  readonly userAgent: string | null;
  readonly isEncrypted: boolean;
  readonly processId: number | null;
  readonly connectedAt: string;
  readonly state: SessionState;
  readonly stateSince: string;
  readonly pins: readonly { readonly reason: string; readonly explanation: string }[];
  readonly statement: { readonly sql: string; readonly startedAt: string; readonly runningMs: number } | null;
  /** It is the request that asks. */
  readonly isOwn: boolean;
}

/** `GET /api/sessions` */
export interface SessionList {
  readonly sessions: readonly Session[];
  readonly isComplete: boolean;
  readonly processes: { readonly asked: number; readonly answered: number };
}

/** `cancel` stops what it runs, `end` the session. */
export type SessionSignal = 'cancel' | 'end';

export function listSessions(signal: AbortSignal): Promise<SessionList> {
  return call('GET', 'api/sessions', { signal });
}

/** @throws ApiError `not_found`: the session has ended */
export async function signalSession({ sessionId }: Session, kind: SessionSignal): Promise<void> {
  const path = `api/sessions/${encodeURIComponent(sessionId)}`;
  if (kind === 'cancel') await call('POST', `${path}/cancel`);
  else await call('DELETE', path);
}

/** A session without a statement at the moment has nothing to cancel. */
export function canCancel({ state, isOwn }: Session): boolean {
  return !isOwn && (state === 'active' || state === 'waiting for a backend');
}

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
