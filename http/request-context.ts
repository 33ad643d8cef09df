import type { Observe, ObservedStatement, Origin, Outcome } from '../src/observation.ts';
import { DisconnectSignal } from '../src/router/client-disconnect.ts';
import type { Tenant } from '../src/router/tenant.ts';
import type { MemoryReservation } from '../src/runtime/memory-budget.ts';
import { timeOrderedUuid } from '../src/runtime/random.ts';
import type { StatementOutcome } from '../src/sql/result/result-format.ts';
import { renderError } from './errors.ts';

/** What is known of a call while it runs: who, what, and how it ends. */
export interface RequestContext {
  /** Authentication may learn more of it. */
  origin: Origin;
  readonly startedAt: number;
  /** Happens when the client goes before its reply is whole. */
  readonly disconnect: DisconnectSignal;
  /** The whole reply has been handed to the network. */
  whole: boolean;
  /** Set by authentication. */
  tenant: Tenant | undefined;
  /** Gives back the place that admission has given. */
  leave: (() => void) | undefined;
  /** Where its body counts; set by admission, for a large one. */
  body: MemoryReservation | undefined;
  /** Where its results count that are kept whole; set by admission. */
  results: MemoryReservation | undefined;
  /** Set by routes that run SQL. */
  statement: ObservedStatement | undefined;
  /** SHA-256 of everything that it asks for, where it has an Idempotency-Key. */
  fingerprint: string | undefined;
  /** It is carried out once, however often it is sent. */
  isRepeatable: boolean;
  /** All of it runs in one transaction. */
  atomic: boolean | undefined;
  /** The operation at work. */
  work: Promise<unknown> | undefined;
  /** How the statement has ended, once its reply is there as a whole. */
  outcome: StatementOutcome | undefined;
  /** How the statement ends where the reply is streamed, which is after its first bytes. */
  ended: Promise<StatementOutcome> | undefined;
  /** SQLSTATE of the error that was answered. */
  sqlstate: string | undefined;
}

/** With all that it may ever have from the beginning: the engine deals slowly with objects that grow. */
export function openContext(origin: Origin): RequestContext {
  return {
    origin,
    startedAt: performance.now(),
    disconnect: new DisconnectSignal(),
    whole: false,
    tenant: undefined,
    leave: undefined,
    body: undefined,
    results: undefined,
    statement: undefined,
    fingerprint: undefined,
    isRepeatable: false,
    atomic: undefined,
    work: undefined,
    outcome: undefined,
    ended: undefined,
    sqlstate: undefined,
  };
}

const MAX_USER_AGENT = 500;

export function originOf(sourceIp: string, requestId: string, userAgent: string | undefined): Origin {
  return { surface: 'http', sourceIp, requestId, userAgent: userAgent?.slice(0, MAX_USER_AGENT) };
}

/** @param given an X-Request-Id, which is kept when it can do no harm in logs and headers */
export function requestIdOf(given: unknown): string {
  return typeof given === 'string' && /^[A-Za-z0-9._-]{1,128}$/.test(given) ? given : timeOrderedUuid();
}

/** For a client that went before its reply began: nginx's status. */
const CLIENT_GONE = 499;

/** Tells what became of the calls that reached an operation. */
export class CallEnds {
  readonly #observe: Observe;
  readonly #untold = new Set<Promise<void>>();

  constructor(observe: Observe) {
    this.#observe = observe;
  }

  /**
   * The reply to a call is whole, or will never be.
   * @param httpStatus undefined where no reply had begun
   */
  add(action: string, call: RequestContext, httpStatus: number = CLIENT_GONE): void {
    if (call.outcome !== undefined) {
      this.#tell(action, call, httpStatus, call.outcome);
      return;
    }
    const telling = this.#tellLater(action, call, httpStatus).finally(() => this.#untold.delete(telling));
    this.#untold.add(telling);
  }

  /** A statement may end after its reply; resolves when all that have been added are told. */
  async told(): Promise<void> {
    await Promise.all(this.#untold);
  }

  async #tellLater(action: string, call: RequestContext, httpStatus: number): Promise<void> {
    this.#tell(action, call, httpStatus, await endOf(call));
  }

  #tell(action: string, call: RequestContext, httpStatus: number, ended: StatementOutcome | undefined): void {
    const { tenant, statement, origin } = call;
    try {
      this.#observe({
        name: 'http.request',
        action,
        origin,
        actor: tenant && actorOf(tenant),
        statement: statement && observed(statement, ended),
        outcome: outcomeOf(call, httpStatus, ended),
      });
    } catch (cause) {
      this.#observe({ name: 'service.failure', message: `the end of ${action} could not be told`, cause });
    }
  }
}

/** The statement's outcome; a failure that was too late for the reply leaves its SQLSTATE in the call. */
async function endOf(call: RequestContext): Promise<StatementOutcome | undefined> {
  try {
    await call.work;
    return await call.ended;
  } catch (error) {
    const { sqlstate } = renderError(error, { requestId: '', path: '', withCredentials: true }).problem;
    if (sqlstate !== undefined) call.sqlstate = sqlstate;
    return undefined;
  }
}

function actorOf({ organization, key }: Tenant) {
  return { organizationId: organization.id, keyId: key.id, keyPrefix: key.prefix };
}

function observed({ sql, command, paramCount }: ObservedStatement, ended: StatementOutcome | undefined): ObservedStatement {
  return { sql, command: ended?.command || command, paramCount };
}

function outcomeOf(call: RequestContext, httpStatus: number, ended: StatementOutcome | undefined): Outcome {
  const ok = call.whole && httpStatus < 400 && call.sqlstate === undefined;
  return {
    status: ok ? 'ok' : 'error',
    httpStatus,
    durationMs: Math.round((performance.now() - call.startedAt) * 1_000) / 1_000,
    sqlstate: call.sqlstate,
    rowCount: ended?.rowCount ?? undefined,
  };
}
