/** Who is calling from where: what audit entries and login throttling go by. */
export interface Origin {
  readonly surface: 'http' | 'wire' | 'admin';
  readonly sourceIp: string;
  readonly userAgent?: string | undefined;
  readonly applicationName?: string;
  readonly requestId?: string;
}

/** The organization and key that an observation is about. */
export interface Actor {
  readonly organizationId: string;
  readonly keyId?: string;
  readonly keyPrefix?: string;
}

/** How a call or statement ended. */
export interface Outcome {
  readonly status: 'ok' | 'error';
  readonly httpStatus?: number;
  readonly sqlstate?: string | undefined;
  readonly rowCount?: number | undefined;
  readonly durationMs?: number;
}

/** A statement as it may be recorded: never with parameters; literals that set passwords are cut out by the audit. */
export interface ObservedStatement {
  readonly sql: string;
  /** Where `sql` is what the audit log keeps of it, secrets masked: SHA-256 of the whole. */
  readonly sqlHash?: string | undefined;
  /** First word or words of the command tag, e.g. `SELECT`, `CREATE TABLE`, or of each of several, with commas; where known. */
  readonly command?: string | undefined;
  readonly paramCount?: number | undefined;
}

/**
 * Everything worth telling, as one union. The core and both doors emit; observers/{log,metrics,audit}.ts read.
 * No key, password or parameter is ever part of an observation.
 */
export type Observation =
  | {
      readonly name: 'service.started';
      readonly httpPort: number;
      readonly wirePort: number;
      readonly opsPort: number;
      readonly startupMs: number;
    }
  | { readonly name: 'service.stopping'; readonly reason: string }
  | { readonly name: 'service.warning'; readonly message: string; readonly cause?: unknown }
  | { readonly name: 'service.failure'; readonly message: string; readonly cause: unknown; readonly requestId?: string }
  /** Every HTTP call that reached a route; `actor` only when it was authenticated. `action` is e.g. `query`, `auth.me`. */
  | {
      readonly name: 'http.request';
      readonly action: string;
      readonly origin: Origin;
      readonly actor?: Actor | undefined;
      readonly statement?: ObservedStatement | undefined;
      readonly outcome: Outcome;
    }
  | { readonly name: 'login.succeeded'; readonly origin: Origin; readonly actor: Actor }
  | { readonly name: 'login.failed'; readonly origin: Origin; readonly actor?: Actor; readonly kind: string; readonly sqlstate: string }
  | { readonly name: 'http.connected' }
  | { readonly name: 'http.disconnected' }
  | { readonly name: 'wire.connected' }
  | { readonly name: 'wire.disconnected' }
  | { readonly name: 'wire.session.opened'; readonly origin: Origin; readonly actor: Actor }
  | {
      readonly name: 'wire.session.closed';
      readonly origin: Origin;
      readonly actor: Actor;
      readonly durationMs: number;
      readonly statements: number;
      readonly bytesIn: number;
      readonly bytesOut: number;
      readonly reason: string;
    }
  /** A DDL or role statement that came through the wire door and succeeded or failed. */
  | {
      readonly name: 'wire.statement';
      readonly origin: Origin;
      readonly actor: Actor;
      readonly statement: ObservedStatement;
      readonly outcome: Outcome;
    }
  /** Any request that came through the wire door; with the SQLSTATE of its first error. */
  | { readonly name: 'wire.query'; readonly sqlstate?: string }
  /** A wire session has come to hold, or holds no longer, state of a kind that keeps it on its backend. */
  | { readonly name: 'wire.pinned'; readonly reason: string }
  | { readonly name: 'wire.unpinned'; readonly reason: string }
  /** A request has been sent ahead into a backend's pipeline, behind those of other clients. */
  | { readonly name: 'request.shared' }
  /** A request that shared a backend has to be run again: it held up others, or met a cancel request that was meant for one. */
  | { readonly name: 'request.requeued' }
  | { readonly name: 'lease.granted'; readonly door: 'http' | 'wire'; readonly waitMs: number }
  | { readonly name: 'lease.refused'; readonly door: 'http' | 'wire'; readonly kind: string }
  | { readonly name: 'lease.released'; readonly door: 'http' | 'wire'; readonly heldMs: number }
  | { readonly name: 'backend.opened'; readonly durationMs: number }
  | { readonly name: 'backend.closed'; readonly reason: string }
  /** A session has been given up, and its process does not end when it is told to. */
  | { readonly name: 'backend.stuck'; readonly organizationId: string; readonly processId: number; readonly message: string }
  | { readonly name: 'backend.unstuck'; readonly organizationId: string; readonly processId: number }
  | { readonly name: 'backend.login_healed'; readonly organizationId: string }
  | { readonly name: 'audit.written'; readonly entries: number; readonly lagMs: number }
  | { readonly name: 'audit.dropped'; readonly entries: number; readonly cause: unknown };

export type Observe = (observation: Observation) => void;

/** One `Observe` that tells each of several. An observer that throws is a bug in it and must not break what it observes. */
export function fanOut(observers: readonly Observe[]): Observe {
  return (observation) => {
    for (const observe of observers) observe(observation);
  };
}
