import type { Organization } from '../../catalog/organizations/organization.ts';
import type { SharingLimits } from '../../multiplex/shareable-sql.ts';
import { registryOf } from '../../multiplex/statement-registry.ts';
import type { Observe } from '../../observation.ts';
import type { Router } from '../../router/router.ts';
import type { Tenant } from '../../router/tenant.ts';
import { IndexedSet } from '../../runtime/indexed-set.ts';
import { findStatement, type KnownStatement } from './known-statements.ts';
import { runQuery, withHint } from './query.ts';
import type { QueryReply, QueryRequest } from './query-request.ts';
import { PreparedRun } from './run-prepared.ts';
import { SharedPipeline, Slot } from './shared-pipeline.ts';

const SHARED = { name: 'request.shared' } as const;
const REQUEUED = { name: 'request.requeued' } as const;

/** So many of an organization's backends are looked at, the latest first, however many it may have. */
const ASKED = 16;

/** With less time than this a statement waits for nobody. */
const TIMEOUT_MIN_MS = 1_000;

/**
 * Runs statements for organizations, each on a backend of its own or, where as many backends are at work as is good for
 * anybody, a quick one behind others of its kind.
 */
export class QueryScheduler {
  readonly #router: Pick<Router, 'lease' | 'mayKeepBusy'>;
  readonly #limits: SharingLimits;
  readonly #observe: Observe;
  /** Those of each organization that one might get on with. */
  readonly #pipelines = new WeakMap<Organization, IndexedSet<SharedPipeline>>();

  constructor(router: Pick<Router, 'lease' | 'mayKeepBusy'>, limits: SharingLimits, observe: Observe) {
    this.#router = router;
    this.#limits = limits;
    this.#observe = observe;
  }

  /** @throws as {@link Router.lease} and {@link runQuery} */
  run(tenant: Tenant, request: QueryRequest): Promise<QueryReply> {
    const known = this.#quick(tenant, request);
    if (known === undefined) return this.#runExclusively(tenant, request);
    const pipeline = this.#find(tenant, request, known);
    if (pipeline === undefined) return this.#startPipeline(tenant, request, known);
    this.#observe(SHARED);
    return this.#join(pipeline, request, known);
  }

  /** @returns the statement, if it may share a backend with others */
  #quick(tenant: Tenant, { sql, readOnly, timeoutMs }: QueryRequest): KnownStatement | undefined {
    if (readOnly || this.#limits.depth <= 1 || (timeoutMs > 0 && timeoutMs < TIMEOUT_MIN_MS)) return undefined;
    const known = findStatement(tenant, sql);
    return known?.latency?.isQuick ? known : undefined;
  }

  /** @returns where to get on; where there are several, with the fewest others */
  #find(tenant: Tenant, request: QueryRequest, known: KnownStatement): SharedPipeline | undefined {
    const pipelines = this.#pipelinesOf(tenant);
    const { spread, depth } = this.#limits;
    const isAwaited = !this.#router.mayKeepBusy(tenant, true);
    if ((pipelines.size < spread && !isAwaited) || isCalledOff(tenant, request)) return undefined;
    const now = performance.now();
    let best: SharedPipeline | undefined;
    for (let i = pipelines.size - 1; i >= Math.max(0, pipelines.size - ASKED); i -= 1) {
      const pipeline = pipelines.at(i);
      if (pipeline === undefined || pipeline.load >= (best?.load ?? depth) || !pipeline.isOpen(now)) continue;
      // Whoever waits for a backend has this one next, however many there are who could get on.
      if (isAwaited && pipeline.entered >= depth) continue;
      if (known.latency?.mayFollow(pipeline.load) && PreparedRun.isPossible(pipeline.lease.backend, request, known)) best = pipeline;
    }
    return best;
  }

  async #runExclusively(tenant: Tenant, request: QueryRequest): Promise<QueryReply> {
    return runQuery(await this.#router.lease(tenant, { door: 'http', ...disconnectOf(request) }), request);
  }

  /** Goes ahead on a backend that others may come along on. */
  async #startPipeline(tenant: Tenant, request: QueryRequest, known: KnownStatement): Promise<QueryReply> {
    const lease = await this.#router.lease(tenant, { door: 'http', ...disconnectOf(request) });
    if (isCalledOff(tenant, request) || !PreparedRun.isPossible(lease.backend, request, known)) return runQuery(lease, request);
    const pipelines = this.#pipelinesOf(tenant);
    const pipeline = new SharedPipeline(lease, known.baseline, (closed) => pipelines.delete(closed));
    pipelines.add(pipeline);
    return this.#join(pipeline, request, known);
  }

  #join(pipeline: SharedPipeline, request: QueryRequest, known: KnownStatement): Promise<QueryReply> {
    const { backend, tenant } = pipeline.lease;
    return new Promise((resolve, reject) => {
      const alone = () => this.#runExclusively(tenant, request).then(resolve, reject);
      const slot = new Slot(pipeline, request, () => {
        this.#observe(REQUEUED);
        void alone();
      });
      new PreparedRun(slot, request, known, {
        replied: resolve,
        failed: (error) => reject(withHint(error)),
        stale: () => {
          backend.session.unprepare(known.server);
          registryOf(tenant.organization).forget(known.server);
          void slot.end();
          void alone();
        },
      }).start();
    });
  }

  #pipelinesOf({ organization }: Tenant): IndexedSet<SharedPipeline> {
    let pipelines = this.#pipelines.get(organization);
    if (pipelines === undefined) {
      pipelines = new IndexedSet<SharedPipeline>();
      this.#pipelines.set(organization, pipelines);
    }
    return pipelines;
  }
}

/** A session of its own tells why it is not run. */
function isCalledOff({ revoked }: Tenant, { disconnect }: QueryRequest): boolean {
  return revoked.aborted || disconnect?.hasHappened === true;
}

function disconnectOf({ disconnect }: QueryRequest) {
  return disconnect === undefined ? {} : { disconnect };
}
