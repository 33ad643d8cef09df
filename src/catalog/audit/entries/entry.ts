/** One line of an organization's audit log, as `GET /api/audit` shows it. Hashes are hex. */
export interface AuditEntry {
  /** `aud_` and 21 of `[a-z0-9]`, in the order of time. */
  readonly id: string;
  /** Position in the organization's chain, from 1, without gaps. */
  readonly seq: number;
  /** RFC 3339, UTC, milliseconds. */
  readonly occurredAt: string;
  readonly action: string;
  readonly surface: string;
  readonly actor: { readonly keyId: string | null; readonly keyPrefix: string | null };
  readonly sourceIp: string | null;
  readonly userAgent: string | null;
  readonly applicationName: string | null;
  readonly requestId: string | null;
  readonly statement?: RecordedStatement;
  readonly session?: RecordedSession;
  readonly outcome: RecordedOutcome;
  /** Hash of the entry before this one; of the first entry: SHA-256 of the organization's id. */
  readonly prevHash: string;
  /** SHA-256 over the canonical JSON of the entry without `hash`. */
  readonly hash: string;
}

export interface RecordedStatement {
  /** At most 2,000 characters from its first token on, secrets masked. */
  readonly sql: string;
  /** SHA-256 of the whole statement, secrets masked. */
  readonly sqlHash: string;
  readonly command: string | null;
  readonly paramCount: number | null;
}

/** Totals of a wire session, in its closing entry. */
export interface RecordedSession {
  readonly statements: number;
  readonly bytesIn: number;
  readonly bytesOut: number;
  readonly reason: string;
}

export interface RecordedOutcome {
  readonly status: 'ok' | 'error';
  readonly httpStatus: number | null;
  readonly sqlstate: string | null;
  readonly rowCount: number | null;
  readonly durationMs: number | null;
}
