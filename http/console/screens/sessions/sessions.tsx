import { signal } from '@preact/signals';
import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import { type ApiError, asApiError, call, isAbort } from '../../api/client.ts';
import { formatTime, hasWords } from '../../format.ts';
import { browserName } from '../../session/session.ts';

type SessionState = 'idle' | 'active' | 'idle in transaction' | 'idle in failed transaction' | 'waiting for a backend';

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
  readonly waitsFor: {
    readonly lock: string;
    readonly mode: string;
    readonly relation: string | null;
    readonly since: string | null;
    readonly isHeldElsewhere: boolean;
  } | null;
  /** Ids of sessions, the nearest first, which may be of other keys. */
  readonly blockedBy: readonly string[];
  /** It is the request that asks. */
  readonly isOwn: boolean;
}

/** `GET /api/sessions` */
export interface SessionList {
  readonly sessions: readonly Session[];
  readonly isComplete: boolean;
  readonly areWaitsKnown: boolean;
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

type Shown = 'all' | 'active' | 'lock' | 'transaction' | 'pinned' | 'http';

export const SHOWN: readonly (readonly [Shown, string])[] = [
  ['all', 'all'],
  ['active', 'running or waiting'],
  ['lock', 'waiting for a lock'],
  ['transaction', 'in a transaction'],
  ['pinned', 'keeping a backend'],
  ['http', 'requests over HTTP'],
];

export const shown = signal<Shown>('all');
export const searched = signal('');

const TESTS: Readonly<Record<Shown, (session: Session) => boolean>> = {
  all: () => true,
  active: ({ state }) => state === 'active' || state === 'waiting for a backend',
  lock: ({ waitsFor }) => waitsFor !== null,
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

/** A session that others wait for, directly or not, and that waits for none. */
interface Root {
  readonly session: Session;
  /** Those that wait for it. The ones that wait for it directly come first. */
  readonly blocked: readonly Session[];
}

/** The roots of all chains among these sessions, the one that holds up most of them first. */
export function rootsOf(sessions: readonly Session[]): readonly Root[] {
  const waiting = sessions.filter(({ blockedBy }) => blockedBy.length > 0);
  waiting.sort((a, b) => a.blockedBy.length - b.blockedBy.length);
  return sessions
    .filter(({ blockedBy }) => blockedBy.length === 0)
    .map((session) => ({ session, blocked: waiting.filter(({ blockedBy }) => blockedBy.includes(session.sessionId)) }))
    .filter(({ blocked }) => blocked.length > 0)
    .sort((a, b) => b.blocked.length - a.blocked.length);
}

/** What a session waits for: `AccessExclusiveLock on public.orders`, `a row of public.orders`. */
export function describeLock({ lock, mode, relation }: NonNullable<Session['waitsFor']>): string {
  const isRow = lock === 'transactionid' || lock === 'tuple';
  if (relation === null) return isRow ? 'a row' : `${mode} (${lock})`;
  return isRow ? `a row of ${relation}` : `${mode} on ${relation}`;
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

/** What the server's clock shows, in ms. It stands still while the list does. */
const serverNow = signal(Date.now());
/** How far the server's clock is ahead of this browser's. */
let aheadMs = 0;

/** The request for the list is in the list, and has begun about now. */
export function setClock({ sessions }: SessionList): void {
  const own = sessions.find(({ isOwn }) => isOwn);
  aheadMs = own === undefined ? 0 : Date.parse(own.connectedAt) - Date.now();
  serverNow.value = Date.now() + aheadMs;
}

/** Lets the clock run, by seconds. */
export function useTicking(isRunning: boolean): void {
  useEffect(() => {
    if (!isRunning) return;
    const timer = setInterval(() => {
      serverNow.value = Date.now() + aheadMs;
    }, 1_000);
    return () => clearInterval(timer);
  }, [isRunning]);
}

/** How long ago something was, counted on. */
export function Elapsed({ since }: { readonly since: string }) {
  return <time title={formatTime(since)}>{formatElapsed(serverNow.value - Date.parse(since))}</time>;
}

/** `5 s`, `2 min 5 s`, `3 h 4 min`, `2 days 3 h` */
export function formatElapsed(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1_000));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3_600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  const hours = Math.floor(seconds / 3_600);
  if (hours < 48) return `${hours} h ${Math.floor((seconds % 3_600) / 60)} min`;
  return `${Math.floor(hours / 24)} days ${hours % 24} h`;
}

/** After each reply. An organization's processes are asked for their lists at most every 250 ms. */
const EVERY_MS = 3_000;
/** Where a call has failed, and the server does not say when to come again. */
const AFTER_FAILURE_MS = 10_000;

const isVisible = signal(document.visibilityState === 'visible');

document.addEventListener('visibilitychange', () => {
  isVisible.value = document.visibilityState === 'visible';
});

/** What is loaded again and again. A failure leaves the former data. */
interface Polling<T> {
  readonly data: T | undefined;
  readonly error: ApiError | undefined;
  readonly reload: () => void;
}

/** Loads something when the component appears, and every few seconds while the page can be seen and `isPaused` is false. */
export function usePolling<T>(load: (signal: AbortSignal) => Promise<T>, isPaused: boolean): Polling<T> {
  const [state, setState] = useState<Omit<Polling<T>, 'reload'>>({ data: undefined, error: undefined });
  const [attempt, setAttempt] = useState(0);
  const reload = useCallback(() => setAttempt((count) => count + 1), []);
  const lastAttempt = useRef<number | undefined>(undefined);
  const isRunning = isVisible.value && !isPaused;
  useEffect(() => {
    if (!isRunning && lastAttempt.current === attempt) return;
    lastAttempt.current = attempt;
    const abandoned = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const next = async () => {
      const waitMs = await load(abandoned.signal).then(
        (data) => {
          if (!abandoned.signal.aborted) setState({ data, error: undefined });
          return EVERY_MS;
        },
        (thrown) => {
          const error = asApiError(thrown);
          if (!isAbort(thrown)) setState(({ data }) => ({ data, error }));
          return error.retryAfterS === undefined ? AFTER_FAILURE_MS : error.retryAfterS * 1_000;
        },
      );
      if (isRunning && !abandoned.signal.aborted) timer = setTimeout(() => void next(), Math.max(waitMs, EVERY_MS));
    };
    void next();
    return () => {
      abandoned.abort();
      clearTimeout(timer);
    };
  }, [attempt, isRunning]);
  return { ...state, reload };
}
