import { randomInt } from 'node:crypto';
import { organizationOfPool } from '../src/backend/organization-pool.ts';
import { ServiceError } from '../src/errors.ts';
import type { Tenant } from '../src/router/lease.ts';
import type { ListedSession, SessionDescription, SessionSource } from '../src/router/sessions.ts';
import { IndexedSet } from '../src/runtime/indexed-set.ts';
import type { RequestContext } from './request-context.ts';

/** A part of the door that keeps its own list of requests. */
interface RequestHolder {
  calls(): Iterable<RequestContext>;
}

/** Wire sessions have lower numbers. */
const FIRST_NUMBER = 2 ** 31;
const LAST_NUMBER = 2 ** 32;

/** The requests that are being served, for the list of sessions. */
export class RequestsInProgress implements SessionSource {
  readonly #isEncrypted: boolean;
  readonly #calls = new IndexedSet<RequestContext>();
  readonly #holders: RequestHolder[] = [];

  /** @param isEncrypted the door uses TLS */
  constructor(isEncrypted = false) {
    this.#isEncrypted = isEncrypted;
  }

  add(call: RequestContext): void {
    this.#calls.add(call);
  }

  delete(call: RequestContext): void {
    this.#calls.delete(call);
  }

  /** The holder's requests are looked up when they are asked for. */
  include(holder: RequestHolder): void {
    this.#holders.push(holder);
  }

  *sessionsOf(organizationId: string): Iterable<ListedSession> {
    for (const [pool, session] of this.all()) if (organizationOfPool(pool) === organizationId) yield session;
  }

  *all(): Iterable<readonly [pool: string, session: ListedSession]> {
    for (const calls of [this.#calls.all(), ...this.#holders.map((holder) => holder.calls())]) {
      for (const call of calls) {
        const { tenant } = call;
        if (tenant !== undefined) yield [tenant.pool, new ListedRequest(call, tenant, this.#isEncrypted)] as const;
      }
    }
  }
}

/** The number of a request among the sessions of this process. Few requests are ever asked for theirs. */
export function sessionNumberOf(call: RequestContext): number {
  call.sessionNumber ??= randomInt(FIRST_NUMBER, LAST_NUMBER);
  return call.sessionNumber;
}

class ListedRequest implements ListedSession {
  readonly #call: RequestContext;
  readonly #tenant: Tenant;
  readonly #isEncrypted: boolean;

  constructor(call: RequestContext, tenant: Tenant, isEncrypted: boolean) {
    this.#call = call;
    this.#tenant = tenant;
    this.#isEncrypted = isEncrypted;
  }

  get number(): number {
    return sessionNumberOf(this.#call);
  }

  get keyId(): string {
    return this.#tenant.key.id;
  }

  get backendProcessId(): number {
    return this.#call.disconnect.backend?.processId ?? 0;
  }

  describe(): SessionDescription {
    const { origin, startedAt, statement, outcome, disconnect } = this.#call;
    const { waitsSince, waitedUntil = startedAt } = disconnect;
    const isWaiting = waitsSince !== undefined;
    return {
      door: 'http',
      keyPrefix: this.#tenant.key.prefix,
      sourceIp: origin.sourceIp,
      applicationName: undefined,
      userAgent: origin.userAgent,
      isEncrypted: this.#isEncrypted,
      processId: undefined,
      connectedAt: startedAt,
      state: isWaiting ? 'waiting for a backend' : 'active',
      stateSince: waitsSince ?? waitedUntil,
      pins: [],
      statement:
        statement === undefined || isWaiting || outcome !== undefined
          ? undefined
          : { text: statement.sql, isWhole: true, since: waitedUntil },
    };
  }

  cancel(): void {
    this.#call.disconnect.happen(new ServiceError('statement_canceled', 'canceling statement due to user request'));
  }

  terminate(): void {
    this.#call.disconnect.happen(new ServiceError('database_unavailable', 'terminating connection due to administrator command'));
  }
}
