import type { BackendConnection } from '../../backend/connection.ts';
import { type Multiplexers, type ShareableRequest, SharedPipeline } from '../../multiplex/multiplexer.ts';
import type { Observe } from '../../observation.ts';
import type { Tenant } from '../../router/lease.ts';
import type { Router } from '../../router/router.ts';
import { optionsSetFirst } from '../../syntax/side-effects.ts';
import { withHint } from './error-hint-and-detail.ts';
import { findStatement, forgetIfStale, type KnownStatement } from './known-statements.ts';
import type { QueryReply, QueryRequest } from './query-request-and-reply.ts';
import { QuerySlot } from './query-slot.ts';
import { PreparedRun } from './run-prepared.ts';
import { runQuery } from './run-query.ts';

const SHARED = { name: 'request.shared' } as const;
const REQUEUED = { name: 'request.requeued' } as const;

/** A statement with a shorter timeout does not wait behind others. */
const TIMEOUT_MIN_MS = 1_000;

/** Runs organizations' statements: a quick one in a shared pipeline, any other on a backend of its own. */
export class QueryScheduler {
  readonly #router: Pick<Router, 'lease' | 'mayKeepBusy'>;
  readonly #multiplexers: Multiplexers;
  readonly #observe: Observe;

  constructor(router: Pick<Router, 'lease' | 'mayKeepBusy'>, multiplexers: Multiplexers, observe: Observe) {
    this.#router = router;
    this.#multiplexers = multiplexers;
    this.#observe = observe;
  }

  /** @throws as {@link Router.lease} and {@link runQuery} */
  run(tenant: Tenant, request: QueryRequest): Promise<QueryReply> {
    const known = this.#findQuick(tenant, request);
    if (known === undefined) return this.#runExclusively(tenant, request);
    const shared = this.#findPipeline(tenant, request, known);
    if (shared === undefined) return this.#startPipeline(tenant, request, known);
    this.#observe(SHARED);
    return this.#enter(tenant, shared, request, known);
  }

  /** @returns the statement, if it may share a backend with others */
  #findQuick(tenant: Tenant, { sql, readOnly, timeoutMs }: QueryRequest): KnownStatement | undefined {
    if (readOnly || !this.#multiplexers.mayShare || (timeoutMs > 0 && timeoutMs < TIMEOUT_MIN_MS)) return undefined;
    const known = findStatement(tenant, sql);
    return known?.latency?.isQuick ? known : undefined;
  }

  #findPipeline(tenant: Tenant, request: QueryRequest, known: KnownStatement): SharedPipeline | undefined {
    if (isAbandoned(tenant, request)) return undefined;
    const multiplexer = this.#multiplexers.of(tenant.organization);
    const isAwaited = !this.#router.mayKeepBusy(tenant, true);
    if (!isAwaited && !multiplexer.isSpread) return undefined;
    return multiplexer.find(new ShareableQuery(request, known), performance.now(), 'quick', isAwaited);
  }

  async #runExclusively(tenant: Tenant, request: QueryRequest, isFresh = false): Promise<QueryReply> {
    const customOptions = optionsSetFirst([request]);
    return runQuery(await this.#router.lease(tenant, { door: 'http', customOptions, ...disconnectOf(request) }), request, isFresh);
  }

  /** Runs a quick statement on a backend whose pipeline others may enter. */
  async #startPipeline(tenant: Tenant, request: QueryRequest, known: KnownStatement): Promise<QueryReply> {
    const lease = await this.#router.lease(tenant, { door: 'http', ...disconnectOf(request) });
    if (isAbandoned(tenant, request) || !PreparedRun.isPossible(lease.backend, request, known)) return runQuery(lease, request);
    const shared = new SharedPipeline(lease, this.#multiplexers.of(tenant.organization));
    const reply = this.#enter(tenant, shared, request, known);
    shared.endIfUnused();
    return reply;
  }

  #enter(tenant: Tenant, shared: SharedPipeline, request: QueryRequest, known: KnownStatement): Promise<QueryReply> {
    return new Promise((resolve, reject) => {
      const runExclusively = (isFresh: boolean) => this.#runExclusively(tenant, request, isFresh).then(resolve, reject);
      const slot = new QuerySlot(tenant, shared, this.#multiplexers.of(tenant.organization), request, () => {
        this.#observe(REQUEUED);
        void runExclusively(false);
      });
      new PreparedRun(slot, request, known, {
        replied: resolve,
        failed: (error) => reject(withHint(error)),
        stale: (staleness) => {
          forgetIfStale(slot, known, staleness);
          void slot.end();
          void runExclusively(true);
        },
      }).start();
    });
  }
}

/** A quick statement on its way to a backend. */
class ShareableQuery implements ShareableRequest {
  readonly #request: QueryRequest;
  readonly #known: KnownStatement;

  constructor(request: QueryRequest, known: KnownStatement) {
    this.#request = request;
    this.#known = known;
  }

  get latency() {
    return this.#known.latency;
  }

  fits(backend: BackendConnection): boolean {
    const { settings, customOptions } = backend.session;
    return settings.size === 0 && customOptions.size === 0 && PreparedRun.isPossible(backend, this.#request, this.#known);
  }
}

/** A statement that nobody waits for enters no pipeline; a session of its own then reports the reason. */
function isAbandoned({ revoked }: Tenant, { disconnect }: QueryRequest): boolean {
  return revoked.aborted || disconnect?.hasHappened === true;
}

function disconnectOf({ disconnect }: QueryRequest) {
  return disconnect === undefined ? {} : { disconnect };
}
