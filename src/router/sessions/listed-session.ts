/** The state of a client's session, in the words of pg_stat_activity; or it waits for a backend, in which case it runs nothing yet. */
export const SESSION_STATES = ['idle', 'active', 'idle in transaction', 'idle in failed transaction', 'waiting for a backend'] as const;

export type SessionState = (typeof SESSION_STATES)[number];

/** Why a session keeps its backend. */
export interface PinnedFor {
  readonly reason: string;
  /** One sentence. */
  readonly explanation: string;
}

/** SQL as its client has sent it, which may hold secrets. */
export interface SentStatement {
  readonly text: string;
  /** The text is complete, and not only its beginning. */
  readonly isWhole: boolean;
  /** When it was sent to the backend. */
  readonly since: number;
}

/** A client's session at a door, at this moment. Its times are on performance.now()'s clock. */
export interface SessionDescription {
  readonly door: 'wire' | 'http';
  readonly keyPrefix: string;
  readonly sourceIp: string;
  readonly applicationName: string | undefined;
  readonly userAgent: string | undefined;
  readonly isEncrypted: boolean;
  /** What `pg_backend_pid()` returns to the client; undefined where it depends on the statement. */
  readonly processId: number | undefined;
  readonly connectedAt: number;
  readonly state: SessionState;
  readonly stateSince: number;
  readonly pins: readonly PinnedFor[];
  /** Undefined if none is running, or it is not known which. */
  readonly statement: SentStatement | undefined;
}

/** A client's session: a connection to the wire door, or a request over HTTP. */
export interface ListedSession {
  /** Below 2^32, and that of no other session of this process. */
  readonly number: number;
  readonly keyId: string;
  /** @returns undefined if the session has ended */
  describe(): SessionDescription | undefined;
  /** Cancels the running statement, if there is one. */
  cancel(): unknown;
  /** Ends the session with 57P01. */
  terminate(): void;
}

/** A door, as the list of sessions uses it. */
export interface SessionSource {
  /** Those of all the organization's keys. */
  sessionsOf(organizationId: string): Iterable<ListedSession>;
}
