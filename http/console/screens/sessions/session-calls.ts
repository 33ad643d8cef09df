import { call } from '../../api/client.ts';

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
