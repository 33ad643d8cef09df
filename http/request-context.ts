import { ServiceError } from '../src/errors.ts';
import type { ObservedStatement, Origin, Traffic } from '../src/observation.ts';
import { DisconnectSignal, type Tenant } from '../src/router/lease.ts';
import { timeOrderedUuid } from '../src/runtime/bytes.ts';
import type { Indexed } from '../src/runtime/indexed-set.ts';
import type { MemoryReservation } from '../src/runtime/memory-budget.ts';
import type { StatementOutcome } from '../src/sql/result-budget.ts';

/** What is left of a limit for requests in a second. */
export interface RateLeft {
  readonly perSecond: number;
  readonly left: number;
}

/** What is known of a call while it runs: the caller, the request and its outcome. */
export interface RequestContext extends Indexed {
  /** Authentication may complete it. */
  origin: Origin;
  /** The header of that name, if it was read. */
  readonly traceparent: string | undefined;
  readonly startedAt: number;
  /** Triggered when the client disconnects before it has the whole reply, or the call is to end. */
  readonly disconnect: DisconnectSignal;
  /** The whole reply has been written to the socket. */
  isReplySent: boolean;
  /** Set by authentication. */
  tenant: Tenant | undefined;
  /** How many requests its organization may send yet; set by admission, if there is a limit. */
  rate: RateLeft | undefined;
  /** Ends what admission has granted. */
  leave: (() => void) | undefined;
  /** Where its body counts; set by admission, for a large one. */
  body: MemoryReservation | undefined;
  /** The reservation for its results in memory; set by admission. */
  results: MemoryReservation | undefined;
  /** The reservation for the memory of a compressor. */
  compressor: MemoryReservation | undefined;
  /** What it moves. */
  readonly traffic: Traffic;
  /** Set by routes that run SQL. */
  statement: ObservedStatement | undefined;
  /** SHA-256 of the whole request, if it has an Idempotency-Key. */
  fingerprint: string | undefined;
  /** It has an Idempotency-Key, so it is carried out at most once. */
  isRepeatable: boolean;
  /** The whole call runs in one transaction. */
  atomic: boolean | undefined;
  /** The running operation. */
  work: Promise<unknown> | undefined;
  /** The statement's outcome, when the whole reply is in memory. */
  outcome: StatementOutcome | undefined;
  /** The statement's outcome for a streamed reply, which is known after the first bytes are sent. */
  ended: Promise<StatementOutcome> | undefined;
  /** The SQLSTATE of the error in the reply. */
  sqlstate: string | undefined;
  /** The reply has failed on its way; its connection ends behind the last bytes. */
  isBroken: boolean;
  /** Names it in the list of sessions; undefined until it is first listed. */
  sessionNumber: number | undefined;
}

/** All properties are set from the beginning, because V8 is slow with objects that get more later. */
export function openContext(origin: Origin, traceparent?: string): RequestContext {
  return {
    origin,
    traceparent,
    startedAt: performance.now(),
    disconnect: new DisconnectSignal(),
    isReplySent: false,
    tenant: undefined,
    rate: undefined,
    leave: undefined,
    body: undefined,
    results: undefined,
    compressor: undefined,
    traffic: { statements: 1, bytesIn: 0, bytesOut: 0 },
    statement: undefined,
    fingerprint: undefined,
    isRepeatable: false,
    atomic: undefined,
    work: undefined,
    outcome: undefined,
    ended: undefined,
    sqlstate: undefined,
    isBroken: false,
    sessionNumber: undefined,
    index: -1,
  };
}

/** The authenticated caller of an operation that needs a key. */
export function tenantOf({ call }: { readonly call: RequestContext }): Tenant {
  if (call.tenant === undefined) throw new ServiceError('internal', 'an operation that needs a key ran without authentication');
  return call.tenant;
}

const MAX_USER_AGENT = 500;

export function originOf(sourceIp: string, requestId: string, userAgent: string | undefined): Origin {
  return { surface: 'http', sourceIp, requestId, userAgent: userAgent?.slice(0, MAX_USER_AGENT) };
}

/** @param given an X-Request-Id, which is used if it is safe in logs and headers */
export function requestIdOf(given: unknown): string {
  return typeof given === 'string' && /^[A-Za-z0-9._-]{1,128}$/.test(given) ? given : timeOrderedUuid();
}
