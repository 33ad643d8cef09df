import type { BackendConnection } from '../backend/connection.ts';
import { poolsOf, type Waiter } from '../backend/organization-pool.ts';
import { discardState } from '../backend/own-request.ts';
import type { Catalog } from '../catalog/catalog.ts';
import { abortReason, ServiceError } from '../errors.ts';
import type { Observe } from '../observation.ts';
import type { InputScheduler } from '../runtime/input-scheduler.ts';
import type { MemoryBudget } from '../runtime/memory-budget.ts';
import { type CustomOptions, NO_OPTIONS } from '../syntax/session-traits.ts';
import type { Authenticator } from './authenticator.ts';
import { CancelKeys } from './cancel-keys.ts';
import type { Clusters } from './clusters.ts';
import { type DisconnectSignal, type Door, Lease, type Tenant } from './lease.ts';
import { type PausedRequest, Pauses } from './pauses.ts';
import { ClusterDownError, type ServedCluster } from './served-cluster.ts';
import type { Sessions } from './sessions.ts';

interface RouterOptions {
  readonly catalog: Catalog;
  readonly clusters: Clusters;
  readonly authenticator: Authenticator;
  /** For results in memory that their callers have not received yet. */
  readonly results: MemoryBudget;
  readonly observe: Observe;
  /** Says which sessions hold backends, to a client that has waited too long for one. */
  readonly sessions: Pick<Sessions, 'describeHolders'>;
}

const AT_ONCE = {
  http: { name: 'lease.granted', door: 'http', waitMs: 0 },
  wire: { name: 'lease.granted', door: 'wire', waitMs: 0 },
} as const;

/** A wait for a backend. */
export interface Wait {
  /** Ends the wait; `settle` is called with `query_canceled`. */
  giveUp(): void;
  /** Ends the wait without calling `settle`, because the caller has got a backend another way. @returns whether it was waiting */
  leave(): boolean;
}

/** Who takes a lease, and for what. */
export interface LeaseOptions {
  readonly door: Door;
  /** Ends the wait when the client disconnects. */
  readonly disconnect?: DisconnectSignal;
  /** The customized options that may exist in the backend's session, because whoever takes it has set them, or sets them first. Default: none. */
  readonly customOptions?: CustomOptions;
}

/** A wait that has ended, or has not begun. */
export const NO_WAIT: Wait = { giveUp() {}, leave: () => false };

/**
 * The tenant router: the only way to Postgres for both doors. It finds the placement of a tenant, whom the {@link Authenticator}
 * knows, and leases a backend session there.
 */
export class Router {
  readonly catalog: Catalog;
  readonly results: MemoryBudget;
  readonly cancelKeys: CancelKeys;
  /** Divides the event loop's time among organizations, for both doors together. */
  readonly inputs: InputScheduler;
  readonly #authenticator: Authenticator;
  readonly #clusters: Clusters;
  readonly #observe: Observe;
  readonly #sessions: RouterOptions['sessions'];
  readonly #pauses = new Pauses();
  readonly #requests: Omit<LeaseRequestHost, 'settle'> = {
    queue: (request) => this.#queue(request),
    leave: (request) =>
      this.#pauses.delete(request.tenant.organization.id, request) || request.cluster?.pool.leave(request.tenant.pool, request) === true,
    renew: (tenant) => this.#authenticator.renew(tenant),
  };

  constructor(options: RouterOptions) {
    this.catalog = options.catalog;
    this.cancelKeys = new CancelKeys(options.catalog.cancels);
    this.catalog.onPause((...paused) => this.#paused(...paused));
    this.results = options.results;
    this.#authenticator = options.authenticator;
    this.#clusters = options.clusters;
    this.inputs = options.clusters.inputs;
    this.#observe = options.observe;
    this.#sessions = options.sessions;
  }

  /**
   * Leases a backend session of the tenant, and waits for one if need be. For the HTTP door its state is that after login; for
   * the wire door it may have settings, which the caller replaces by its own.
   * @throws ServiceError when the key has been revoked, the pool is exhausted, or Postgres cannot be reached
   */
  async lease(tenant: Tenant, options: LeaseOptions): Promise<Lease> {
    const { door, customOptions } = options;
    const lease = this.tryLease(tenant, door, undefined, customOptions) ?? (await this.#waitForLease(tenant, options));
    if (door === 'wire' || lease.backend.session.settings.size === 0 || (await discardState(lease.backend))) return lease;
    lease.destroy();
    throw new ServiceError('not_ready', 'the database session could not be made ready', { retryAfterS: 1 });
  }

  #waitForLease(tenant: Tenant, { door, disconnect, customOptions }: LeaseOptions): Promise<Lease> {
    return new Promise((resolve, reject) => {
      if (disconnect !== undefined) disconnect.waitsSince = performance.now();
      const settle = (result: Lease | ServiceError) => {
        if (disconnect !== undefined) waitOver(disconnect);
        if (result instanceof Lease) resolve(result);
        else reject(disconnect?.reason ?? result);
      };
      const wait = this.enqueue(tenant, door, settle, customOptions);
      if (disconnect?.hasHappened) wait.giveUp();
      else if (disconnect?.waitsSince !== undefined) disconnect.listener = () => wait.giveUp();
    });
  }

  /**
   * As {@link lease}, with a callback instead of a promise: `settle` is called in the same turn in which a
   * backend becomes available or the wait fails, perhaps before this returns.
   */
  enqueue(tenant: Tenant, door: Door, settle: (result: Lease | ServiceError) => void, customOptions = NO_OPTIONS): Wait {
    const startedAt = performance.now();
    const request = new LeaseRequest(
      tenant,
      {
        ...this.#requests,
        settle: ({ tenant: current, cluster }, result) => {
          if (result instanceof ServiceError || cluster === undefined) {
            const error = result instanceof ServiceError ? result : new ClusterDownError(undefined);
            this.#observe({ name: 'lease.refused', door, organizationId: tenant.organization.id, kind: error.kind });
            settle(this.#withHolders(error, current, cluster));
            return;
          }
          const waitMs = performance.now() - startedAt;
          current.totals?.leased(waitMs);
          this.#observe({ name: 'lease.granted', door, waitMs });
          settle(new Lease(result, current, door, cluster.pool, this.results, this.#observe));
        },
      },
      door === 'http',
      customOptions,
    );
    this.#queue(request);
    return request;
  }

  /** A client that has waited too long is told for whom. */
  #withHolders(error: ServiceError, { organization, pool }: Tenant, cluster: ServedCluster | undefined): ServiceError {
    if (error.kind !== 'pool_timeout' || cluster === undefined) return error;
    const holders = this.#sessions.describeHolders(organization.id, cluster.pool.leasedWithin(pool));
    return holders === undefined ? error : error.with({ detail: `${error.detail ?? ''} ${holders}`.trimStart() });
  }

  /** Puts a request into the queue for a backend, or into that of the paused. */
  #queue(request: LeaseRequest): void {
    const { revoked, organization, pool, limitsId } = request.tenant;
    if (this.#pauses.add(organization.id, request)) return;
    request.cluster = this.#clusterOf(request.tenant);
    if (revoked.aborted) request.settle(abortReason(revoked));
    else if (request.cluster === undefined) request.settle(new ClusterDownError(undefined));
    else request.cluster.pool.enqueue(pool, request, limitsId);
  }

  /** Called when an organization is paused for that time, or no longer. */
  #paused(organizationId: string, forMs: number | null): void {
    if (forMs === null) this.#pauses.end(organizationId);
    else if (this.#pauses.set(organizationId, forMs)) {
      for (const name of poolsOf(organizationId)) for (const { pool } of this.#clusters.opened()) pool.suspend(name);
    }
  }

  /** Leases an idle backend if there is one, preferably `preferred`. Its session may have settings of the former client. */
  tryLease(tenant: Tenant, door: Door, preferred?: BackendConnection, options?: CustomOptions): Lease | undefined {
    if (tenant.revoked.aborted || (this.#pauses.count > 0 && this.#pauses.isPaused(tenant.organization.id))) return undefined;
    const cluster = this.#clusterOf(tenant);
    const backend = cluster?.pool.tryAcquire(tenant.pool, preferred, options);
    if (backend === undefined || cluster === undefined) return undefined;
    tenant.totals?.leased(0);
    this.#observe(AT_ONCE[door]);
    return new Lease(backend, tenant, door, cluster.pool, this.results, this.#observe);
  }

  /**
   * Whether a backend of the tenant may be kept for more than one request, because no one is waiting for it.
   * @param mayGrow whether it may be kept even if the tenant could open another
   */
  mayKeepBusy(tenant: Tenant, mayGrow: boolean): boolean {
    if (tenant.revoked.aborted || (this.#pauses.count > 0 && this.#pauses.isPaused(tenant.organization.id))) return false;
    return this.#clusterOf(tenant)?.pool.mayKeepBusy(tenant.pool, mayGrow) === true;
  }

  /** Called when the defaults for new sessions of the organization have changed. Existing sessions are not leased again. */
  retireBackends(tenant: Tenant): void {
    this.#clusterOf(tenant)?.pool.retire(tenant.pool);
  }

  /** Whether a backend holds session-level advisory locks. Tenants themselves cannot read pg_locks. */
  async holdsAdvisoryLocks({ organization }: Tenant, processId: number): Promise<boolean> {
    return this.#clusters.of(organization.placement).holdsAdvisoryLocks(processId);
  }

  /** Resolves when the backing Postgres answers. */
  async ping(): Promise<void> {
    await this.catalog.ping();
  }

  #clusterOf({ organization }: Tenant): ServedCluster | undefined {
    return this.#clusters.up.get(organization.placement.cluster);
  }
}

function waitOver(disconnect: DisconnectSignal): void {
  disconnect.listener = undefined;
  disconnect.waitsSince = undefined;
  disconnect.waitedUntil = performance.now();
}

/** What a request for a backend needs of the router. */
interface LeaseRequestHost {
  settle(request: LeaseRequest, result: BackendConnection | ServiceError): void;
  /** Puts the request into its queue: the one for a backend, or that of the paused. */
  queue(request: LeaseRequest): void;
  /** Takes it out of its queue. @returns whether it was in one */
  leave(request: LeaseRequest): boolean;
  /** The tenant as it is now, if the organization has been moved; undefined: the key is not valid any more. */
  renew(tenant: Tenant): Promise<Tenant | undefined>;
}

/** A request for a backend. While the organization is paused, it waits for the end of the pause, and then for a backend at its new place. */
class LeaseRequest implements Waiter, PausedRequest {
  tenant: Tenant;
  /** In whose queue it is; undefined while it is in that of the paused. */
  cluster: ServedCluster | undefined;
  readonly customOptions: CustomOptions;
  readonly #host: LeaseRequestHost;
  /** A session over the wire belongs to one place; a request over HTTP runs wherever the organization is. */
  readonly #mayMove: boolean;
  #isOver = false;

  constructor(tenant: Tenant, host: LeaseRequestHost, mayMove: boolean, customOptions: CustomOptions) {
    this.tenant = tenant;
    this.customOptions = customOptions;
    this.#host = host;
    this.#mayMove = mayMove;
  }

  async open(signal: AbortSignal): Promise<BackendConnection> {
    if (this.cluster === undefined) throw new ClusterDownError(undefined);
    return this.cluster.open(this.tenant.organization.placement, signal);
  }

  settle(result: BackendConnection | ServiceError): void {
    this.#isOver = true;
    this.#host.settle(this, result);
  }

  suspended(): void {
    this.#host.queue(this);
  }

  resume(): void {
    if (!this.#mayMove || !this.tenant.revoked.aborted) this.#host.queue(this);
    else void this.#renew();
  }

  async #renew(): Promise<void> {
    const renewed = await this.#host.renew(this.tenant).catch(() => undefined);
    if (this.#isOver) return;
    this.tenant = renewed ?? this.tenant;
    this.#host.queue(this);
  }

  /** Ends the wait; `settle` is called with `query_canceled`. */
  giveUp(): void {
    if (this.leave()) this.#host.settle(this, new ServiceError('query_canceled', 'canceling statement due to user request'));
  }

  /** Ends the wait without calling `settle`. @returns whether it was waiting */
  leave(): boolean {
    if (this.#isOver) return false;
    this.#isOver = true;
    this.#host.leave(this);
    return true;
  }
}
