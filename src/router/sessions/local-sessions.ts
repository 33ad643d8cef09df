import { TimeSlices } from '../../runtime/event-loop.ts';
import type { ListedSession, PinnedFor, SessionDescription, SessionSource, SessionState } from './listed-session.ts';
import { shownSql, WHOLE_CHARACTERS_MAX } from './shown-sql.ts';

/** A session as it is listed. Times are ISO strings. */
export interface SessionRecord {
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
  readonly pins: readonly PinnedFor[];
  readonly statement: { readonly sql: string; readonly startedAt: string; readonly runningMs: number } | null;
}

export interface SessionList {
  readonly sessions: readonly SessionRecord[];
  /** False where there are more than may be listed. */
  readonly isComplete: boolean;
}

/** Which sessions are meant: those of an organization, or of one of its keys. */
export interface SessionsOf {
  readonly organizationId: string;
  readonly keyId?: string | undefined;
}

/** What can be done to a session. */
export type SessionSignal = 'cancel' | 'terminate';

export const SESSIONS_MAX = 1_000;
/** Few statements run at the same time. Of more than these, none is shown. */
const READ_CHARACTERS_MAX = 262_144;
const TEXT_CHARACTERS_MAX = 500;

/** The sessions of organizations at both doors of this process. Nothing is noted of a session before it is asked for. */
export class LocalSessions {
  readonly #sources: SessionSource[] = [];
  readonly #idOf: (number: number) => string;

  /** @param idOf names a session of this process among those of all */
  constructor(idOf: (number: number) => string) {
    this.#idOf = idOf;
  }

  /** Adds a door. */
  register(source: SessionSource): void {
    this.#sources.push(source);
  }

  /** Takes several turns of the event loop where many statements have to be shown. */
  async list(whose: SessionsOf): Promise<SessionList> {
    const found: ListedSession[] = [];
    for (const session of this.#sessionsOf(whose)) if (found.push(session) > SESSIONS_MAX) break;
    const sessions: SessionRecord[] = [];
    const slices = new TimeSlices();
    let readCharacters = 0;
    for (const session of found.slice(0, SESSIONS_MAX)) {
      const described = session.describe();
      if (described === undefined) continue;
      readCharacters += Math.min(described.statement?.text.length ?? 0, WHOLE_CHARACTERS_MAX);
      const statement = readCharacters > READ_CHARACTERS_MAX ? undefined : described.statement;
      sessions.push(recordOf(this.#idOf(session.number), session.keyId, { ...described, statement }));
      await slices.pause();
    }
    return { sessions, isComplete: found.length <= SESSIONS_MAX };
  }

  /** @returns whether there is such a session */
  signal(whose: SessionsOf, number: number, signal: SessionSignal): boolean {
    for (const session of this.#sessionsOf(whose)) {
      if (session.number !== number) continue;
      if (signal === 'terminate') session.terminate();
      else void session.cancel();
      return true;
    }
    return false;
  }

  *#sessionsOf({ organizationId, keyId }: SessionsOf): Iterable<ListedSession> {
    for (const source of this.#sources) {
      for (const session of source.sessionsOf(organizationId)) if (keyId === undefined || session.keyId === keyId) yield session;
    }
  }
}

function recordOf(sessionId: string, keyId: string, described: SessionDescription): SessionRecord {
  const { statement } = described;
  const now = performance.now();
  const timeOf = (at: number) => new Date(Date.now() - (now - at)).toISOString();
  return {
    sessionId,
    door: described.door,
    keyId,
    keyPrefix: described.keyPrefix,
    sourceIp: described.sourceIp,
    applicationName: cut(described.applicationName),
    userAgent: cut(described.userAgent),
    isEncrypted: described.isEncrypted,
    processId: described.processId ?? null,
    connectedAt: timeOf(described.connectedAt),
    state: described.state,
    stateSince: timeOf(described.stateSince),
    pins: described.pins,
    statement:
      statement === undefined
        ? null
        : { sql: shownSql(statement), startedAt: timeOf(statement.since), runningMs: Math.max(0, Math.round(now - statement.since)) },
  };
}

function cut(text: string | undefined): string | null {
  return text === undefined || text === '' ? null : text.slice(0, TEXT_CHARACTERS_MAX);
}
