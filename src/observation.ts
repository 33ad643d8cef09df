/** Where a call comes from, for audit entries and login throttling. */
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

/** What an HTTP call has moved: bytes of the bodies, as they were sent. */
export interface Traffic {
  /** Statements that it was to run. */
  statements: number;
  bytesIn: number;
  bytesOut: number;
}

/** A statement as it may be recorded: never with parameters. The audit log masks literals that set passwords. */
export interface ObservedStatement {
  readonly sql: string;
  /** SHA-256 of the whole statement with secrets masked; present if `sql` is already in the recorded form. */
  readonly sqlHash?: string | undefined;
  /** The command tag without numbers, e.g. `SELECT`, `CREATE TABLE`; several are separated by commas; undefined if unknown. */
  readonly command?: string | undefined;
  readonly paramCount?: number | undefined;
}

/**
 * All events for log, metrics and audit, as one union. The core and both doors emit them; observers/ reads them.
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
  /** With what it waits for: transactions at the wire door, requests over HTTP. */
  | {
      readonly name: 'service.stopping';
      readonly reason: string;
      readonly transactions: number;
      readonly requests: number;
      readonly message: string;
    }
  | { readonly name: 'service.warning'; readonly message: string; readonly cause?: unknown }
  | { readonly name: 'service.failure'; readonly message: string; readonly cause: unknown; readonly requestId?: string }
  /** Every HTTP call that reached a route. `actor` is set if it was authenticated. `action` is e.g. `query`, `auth.me`. */
  | {
      readonly name: 'http.request';
      readonly action: string;
      readonly origin: Origin;
      readonly actor?: Actor | undefined;
      readonly statement?: ObservedStatement | undefined;
      readonly outcome: Outcome;
      /** If it was authenticated. */
      readonly traffic?: Traffic | undefined;
    }
  | { readonly name: 'login.succeeded'; readonly origin: Origin; readonly actor: Actor }
  | { readonly name: 'login.failed'; readonly origin: Origin; readonly actor?: Actor; readonly kind: string; readonly sqlstate: string }
  /** An operator has logged in at the console of the wire door. */
  | { readonly name: 'operator.opened'; readonly origin: Origin; readonly message: string }
  /** What an operator has changed there. */
  | { readonly name: 'operator.command'; readonly origin: Origin; readonly message: string }
  | { readonly name: 'http.connected' }
  | { readonly name: 'http.disconnected' }
  | { readonly name: 'wire.connected' }
  | { readonly name: 'wire.disconnected' }
  /** A connection from a proxy was closed, because it did not begin with a PROXY header. */
  | { readonly name: 'proxy_header.refused'; readonly door: 'http' | 'wire'; readonly reason: string }
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
  /** A DDL or role statement at the wire door, with its outcome. */
  | {
      readonly name: 'wire.statement';
      readonly origin: Origin;
      readonly actor: Actor;
      readonly statement: ObservedStatement;
      readonly outcome: Outcome;
    }
  /** A statement has taken longer than POSTERN_SLOW_STATEMENT_MS. */
  | {
      readonly name: 'statement.slow';
      readonly organizationId: string;
      readonly door: 'http' | 'wire';
      readonly durationMs: number;
      /** As in the audit log; undefined if the text is long, or not known. */
      readonly sqlHash?: string;
      readonly message: string;
    }
  /** A request at the wire door has been answered without an error. One object stands for all: it is read at once, and not kept. */
  | { readonly name: 'wire.query'; readonly durationMs: number }
  /** A request at the wire door has failed. */
  | { readonly name: 'wire.query.failed'; readonly organizationId: string; readonly sqlstate: string; readonly durationMs: number }
  /** A wire session has been pinned to its backend for this reason, or is no longer. */
  | { readonly name: 'wire.pinned'; readonly reason: string }
  | { readonly name: 'wire.unpinned'; readonly reason: string }
  /** A request has been sent into a backend's pipeline behind those of other clients. */
  | { readonly name: 'request.shared' }
  /** A request in a shared pipeline is run again elsewhere: it delayed others, or was hit by a cancel request for another. */
  | { readonly name: 'request.requeued' }
  | { readonly name: 'lease.granted'; readonly door: 'http' | 'wire'; readonly waitMs: number }
  | { readonly name: 'lease.refused'; readonly door: 'http' | 'wire'; readonly organizationId: string; readonly kind: string }
  | { readonly name: 'lease.released'; readonly door: 'http' | 'wire'; readonly heldMs: number }
  | { readonly name: 'backend.opened'; readonly durationMs: number }
  | { readonly name: 'backend.closed'; readonly reason: string }
  /** A session has been given up, and its process does not end when it is terminated. */
  | { readonly name: 'backend.stuck'; readonly organizationId: string; readonly processId: number; readonly message: string }
  | { readonly name: 'backend.unstuck'; readonly organizationId: string; readonly processId: number }
  | { readonly name: 'backend.login_healed'; readonly organizationId: string }
  /** The size of an organization's data has come near its limit, over it, or is within it again. A limit of undefined: there is none any more. */
  | {
      readonly name: 'organization.disk';
      readonly organizationId: string;
      readonly state: 'within' | 'near' | 'over' | 'read_only';
      readonly bytes: number;
      readonly limit: number | undefined;
      readonly message: string;
    }
  /** A base backup of the embedded server. `backup` is its name, the time when it was begun. */
  | { readonly name: 'backup.begun'; readonly message: string }
  | { readonly name: 'backup.done'; readonly backup: string; readonly bytes: number; readonly durationMs: number; readonly message: string }
  | { readonly name: 'backup.failed'; readonly message: string }
  /** WAL is archived after it could not be. */
  | { readonly name: 'backup.resumed'; readonly message: string }
  | {
      readonly name: 'backup.verified';
      readonly backup: string;
      readonly organizations: number;
      readonly durationMs: number;
      readonly message: string;
    }
  | { readonly name: 'audit.written'; readonly entries: number; readonly lagMs: number }
  | { readonly name: 'audit.dropped'; readonly entries: number; readonly cause: unknown };

export type Observe = (observation: Observation) => void;

/** Handles some observations, by their names. */
export type ObservationHandlers = {
  readonly [Name in Observation['name']]?: (observation: Extract<Observation, { name: Name }>) => void;
};

/** Handles all observations, or some by their names. It must not throw. */
export type Observer = Observe | ObservationHandlers;

/** One `Observe` for several observers. */
export function fanOut(...observers: readonly Observer[]): Observe {
  const byName = new Map<Observation['name'], readonly Observe[]>();
  const handlersOf = (name: Observation['name']): readonly Observe[] => {
    const handlers = observers.flatMap((observer) => (typeof observer === 'function' ? observer : ((observer[name] as Observe) ?? [])));
    byName.set(name, handlers);
    return handlers;
  };
  return (observation) => {
    for (const observe of byName.get(observation.name) ?? handlersOf(observation.name)) observe(observation);
  };
}
