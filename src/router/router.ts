import { digestApiKey, isWellFormedApiKey } from '../auth/api-key.ts';
import { inNetworks, parseAddress } from '../auth/networks.ts';
import { channelSecret, channelsOf } from '../auth/notify-channel-prefix.ts';
import { mockVerifiers, type ScramOffer } from '../auth/scram.ts';
import type { BackendConnection } from '../backend/connection.ts';
import { READERS } from '../backend/pool/pool-fairness.ts';
import { discardState } from '../backend/reset.ts';
import type { Catalog } from '../catalog/catalog.ts';
import type { FormerKey, Credential as KnownCredential } from '../catalog/keys/credential.ts';
import type { Organization } from '../catalog/organizations/organization.ts';
import { abortReason, ServiceError } from '../errors.ts';
import type { Actor, Observe, Origin } from '../observation.ts';
import type { InputScheduler } from '../runtime/input-scheduler.ts';
import type { MemoryBudget } from '../runtime/memory-budget.ts';
import type { DisconnectSignal } from './client-disconnect.ts';
import type { Clusters } from './clusters/clusters.ts';
import { ClusterDownError, type ServedCluster } from './clusters/served-cluster.ts';
import { type Door, Lease } from './lease.ts';
import { FormerKeyError } from './limits/former-key-error.ts';
import { LoginThrottle } from './limits/login-throttle.ts';
import { LeaseRequest, type LeaseRequestHost } from './moves/lease-request.ts';
import { Pauses } from './moves/pauses.ts';
import { asReader } from './placement/roles/reader-role.ts';
import { CancelKeys } from './sessions/cancel-keys.ts';
import type { Tenant } from './tenant.ts';

/** What a client authenticates with. */
export type Credential =
  /** The API key alone, as HTTP's bearer token. */
  | { readonly kind: 'bearer'; readonly apiKey: string }
  /** Organization and API key in clear text, as a wire client sends them inside TLS or on a WebSocket. */
  | { readonly kind: 'password'; readonly user: string; readonly apiKey: string }
  /** A SCRAM exchange, which the caller runs. */
  | { readonly kind: 'scram'; readonly user: string; readonly exchange: ScramExchange };

/**
 * @param former stored keys of former passwords, as in {@link ScramOffer}
 * @returns the stored key of the key, or of the former one, that the client proved to know
 */
export type ScramExchange = (verifiers: ScramOffer['verifiers'], former: readonly Buffer[]) => Promise<Buffer | undefined>;

export interface RouterOptions {
  readonly catalog: Catalog;
  readonly clusters: Clusters;
  readonly secret: Buffer;
  /** For results in memory that their callers have not received yet. */
  readonly results: MemoryBudget;
  readonly observe: Observe;
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

/** A wait that has ended, or has not begun. */
export const NO_WAIT: Wait = { giveUp() {}, leave: () => false };

/**
 * The tenant router: the only way to Postgres for both doors. It finds the tenant of a credential and the tenant's
 * placement, and leases a backend session there.
 */
export class Router {
  readonly catalog: Catalog;
  readonly results: MemoryBudget;
  readonly cancelKeys: CancelKeys;
  /** Divides the event loop's time among organizations, for both doors together. */
  readonly inputs: InputScheduler;
  readonly #clusters: Clusters;
  readonly #secret: Buffer;
  /** The secret that channel prefixes are derived from. */
  readonly #channels: Buffer;
  readonly #observe: Observe;
  readonly #pauses = new Pauses();
  readonly #requests: Omit<LeaseRequestHost, 'settle'> = {
    queue: (request) => this.#queue(request),
    leave: (request) =>
      this.#pauses.delete(request.tenant.organization.id, request) || request.cluster?.pool.leave(request.tenant.pool, request) === true,
    renew: (tenant) => this.#renew(tenant),
  };
  readonly #throttle = new LoginThrottle();
  /** Counts failures with former keys. These do not lock out the right key; the count limits how many the audit log records. */
  readonly #formerKeyUse = new LoginThrottle();
  /** The organizations as their readers see them. */
  readonly #asReaders = new WeakMap<Organization, Organization>();
  /** One tenant for all clients with the same key. */
  readonly #tenants = new WeakMap<KnownCredential, Tenant>();

  constructor(options: RouterOptions) {
    this.catalog = options.catalog;
    this.cancelKeys = new CancelKeys(options.catalog.cancels);
    this.catalog.failures.listen('login', (key, count) => this.#throttle.failedElsewhere(key, count));
    this.catalog.onPause((...paused) => this.#paused(...paused));
    this.results = options.results;
    this.#clusters = options.clusters;
    this.inputs = options.clusters.inputs;
    this.#secret = options.secret;
    this.#channels = channelSecret(options.secret.toString());
    this.#observe = options.observe;
  }

  /**
   * @throws ServiceError `unauthorized` (also for an organization that does not exist), `too_many_login_failures`,
   * `organization_suspended`, `not_allowed` from a network that the key may not be used from
   */
  async authenticate(credential: Credential, origin: Origin): Promise<Tenant> {
    const user = credential.kind === 'bearer' ? undefined : credential.user;
    try {
      if (user !== undefined) this.#throttle.check(origin.sourceIp, user);
      const known = await this.#prove(credential);
      if (known === undefined || (user !== undefined && organizationIdOf(known) !== user)) throw unproven(user);
      if ('endedAt' in known) throw new FormerKeyError(known);
      const tenant = this.#admit(known, origin);
      this.catalog.touchKey(known.key.id);
      return tenant;
    } catch (error) {
      if (error instanceof ServiceError) this.#loginFailed(error, user, origin);
      throw error;
    }
  }

  #loginFailed(error: ServiceError, user: string | undefined, origin: Origin): void {
    const { kind, sqlstate } = error;
    let actor: Actor | undefined;
    if (error instanceof FormerKeyError) actor = this.#formerKeyUsed(error.key, origin);
    else if (user !== undefined) {
      actor = { organizationId: user };
      if (kind === 'unauthorized') this.catalog.failures.happened('login', this.#throttle.failed(origin.sourceIp, user));
    }
    this.#observe({ name: 'login.failed', origin, kind, sqlstate, ...(actor === undefined ? {} : { actor }) });
  }

  /** @returns the actor for the audit log; undefined when it already has many such failures from that address */
  #formerKeyUsed({ id, organizationId, prefix }: FormerKey, { sourceIp }: Origin): Actor | undefined {
    if (this.#formerKeyUse.isFull(sourceIp, organizationId)) return undefined;
    this.#formerKeyUse.failed(sourceIp, organizationId);
    return { organizationId, keyId: id, keyPrefix: prefix };
  }

  /**
   * The tenant of a key, if it is in memory and may be used from there; otherwise undefined, and {@link authenticate} has to be called.
   * @param digest as of `digestText`
   * @param sourceIp called if the key may not be used from everywhere
   */
  recognize(digest: string, sourceIp: () => string): Tenant | undefined {
    const known = this.catalog.knownByDigest(digest);
    if (known === undefined || known.organization.status !== 'active' || known.revoked.aborted) return undefined;
    const tenant = this.#tenantOf(known);
    if (tenant.mayComeFrom !== undefined && !tenant.mayComeFrom(sourceIp())) return undefined;
    this.catalog.touchKey(known.key.id);
    return tenant;
  }

  /** Whether it is known from memory that there is no such key. @param digest of the key, as of `digestText` */
  isInvalid(apiKey: string, digest: string): boolean {
    return !isWellFormedApiKey(apiKey) || this.catalog.isUnknownDigest(digest);
  }

  /**
   * Leases a backend session of the tenant, and waits for one if need be. For the HTTP door its state is that after login; for
   * the wire door it may have settings, which the caller replaces by its own.
   * @param options.disconnect ends the wait when the client disconnects
   * @throws ServiceError when the key has been revoked, the pool is exhausted, or Postgres cannot be reached
   */
  async lease(tenant: Tenant, { door, disconnect }: { readonly door: Door; readonly disconnect?: DisconnectSignal }): Promise<Lease> {
    const lease = this.tryLease(tenant, door) ?? (await this.#waitForLease(tenant, door, disconnect));
    if (door === 'wire' || lease.backend.session.settings.size === 0 || (await discardState(lease.backend))) return lease;
    lease.destroy();
    throw new ServiceError('not_ready', 'the database session could not be made ready', { retryAfterS: 1 });
  }

  #waitForLease(tenant: Tenant, door: Door, disconnect: DisconnectSignal | undefined): Promise<Lease> {
    return new Promise((resolve, reject) => {
      if (disconnect !== undefined) disconnect.waitsSince = performance.now();
      const wait = this.enqueue(tenant, door, (result) => {
        if (disconnect !== undefined) waitOver(disconnect);
        if (result instanceof Lease) resolve(result);
        else reject(disconnect?.reason ?? result);
      });
      if (disconnect?.hasHappened) wait.giveUp();
      else if (disconnect?.waitsSince !== undefined) disconnect.listener = () => wait.giveUp();
    });
  }

  /**
   * As {@link lease}, with a callback instead of a promise: `settle` is called in the same turn in which a
   * backend becomes available or the wait fails, perhaps before this returns.
   */
  enqueue(tenant: Tenant, door: Door, settle: (result: Lease | ServiceError) => void): Wait {
    const startedAt = performance.now();
    const request = new LeaseRequest(
      tenant,
      {
        ...this.#requests,
        settle: ({ tenant: current, cluster }, result) => {
          if (result instanceof ServiceError || cluster === undefined) {
            const error = result instanceof ServiceError ? result : new ClusterDownError(undefined);
            this.#observe({ name: 'lease.refused', door, kind: error.kind });
            settle(error);
            return;
          }
          this.#observe({ name: 'lease.granted', door, waitMs: performance.now() - startedAt });
          settle(this.#lend(result, current, door, cluster));
        },
      },
      door === 'http',
    );
    this.#queue(request);
    return request;
  }

  /** Puts a request into the queue for a backend, or into that of the paused. */
  #queue(request: LeaseRequest): void {
    const { revoked, organization, pool } = request.tenant;
    if (this.#pauses.add(organization.id, request)) return;
    request.cluster = this.#clusterOf(request.tenant);
    if (revoked.aborted) request.settle(abortReason(revoked));
    else if (request.cluster === undefined) request.settle(new ClusterDownError(undefined));
    else request.cluster.pool.enqueue(pool, request);
  }

  /** Called when an organization is paused for that time, or no longer. */
  #paused(organizationId: string, forMs: number | null): void {
    if (forMs === null) this.#pauses.end(organizationId);
    else if (this.#pauses.set(organizationId, forMs)) {
      for (const name of [organizationId, `${organizationId}:${READERS}`])
        for (const { pool } of this.#clusters.opened()) pool.suspend(name);
    }
  }

  /** The tenant of the same key, after the organization has been moved. */
  async #renew({ organization, key }: Tenant): Promise<Tenant | undefined> {
    const known = await this.catalog.findByOrganization(organization.id);
    const same = known?.live.find(({ key: { id } }) => id === key.id);
    return same && this.#tenantOf(same);
  }

  /** Leases an idle backend if there is one, preferably `preferred`. Its session may have settings of the former client. */
  tryLease(tenant: Tenant, door: Door, preferred?: BackendConnection): Lease | undefined {
    if (tenant.revoked.aborted || (this.#pauses.count > 0 && this.#pauses.isPaused(tenant.organization.id))) return undefined;
    const cluster = this.#clusterOf(tenant);
    const backend = cluster?.pool.tryAcquire(tenant.pool, preferred);
    if (backend === undefined || cluster === undefined) return undefined;
    this.#observe(AT_ONCE[door]);
    return this.#lend(backend, tenant, door, cluster);
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

  #lend(backend: BackendConnection, tenant: Tenant, door: Door, { pool }: ServedCluster): Lease {
    return new Lease(backend, tenant, door, pool, this.results, this.#observe);
  }

  #prove(credential: Credential): Promise<KnownCredential | FormerKey | undefined> {
    return credential.kind === 'scram' ? this.#proveByScram(credential) : this.#findByKey(credential.apiKey);
  }

  /** Finds a key by its SHA-256 digest. A key has too many random bits to be guessed, so no slower hash is needed. */
  async #findByKey(apiKey: string): Promise<KnownCredential | FormerKey | undefined> {
    // A text without the form of a key needs no look-up.
    return isWellFormedApiKey(apiKey)
      ? this.#clusters.default.locks.retryWhenFull(() => this.catalog.findByDigest(digestApiKey(apiKey)))
      : undefined;
  }

  async #proveByScram({ user, exchange }: Extract<Credential, { kind: 'scram' }>): Promise<KnownCredential | FormerKey | undefined> {
    const known = await this.#clusters.default.locks.retryWhenFull(() => this.catalog.findByOrganization(user));
    // For users who exist too, so that the time does not tell who does.
    const mocks = mockVerifiers(user, this.#secret);
    const { live = [], former = [], salt = {} } = known ?? {};
    const [first, ...others] = live.map(({ key }) => key.verifier);
    const proven = await exchange(
      first === undefined ? [{ ...mocks[0], ...salt }, ...mocks.slice(1)] : [first, ...others],
      former.map(({ storedKey }) => storedKey),
    );
    if (proven === undefined) return undefined;
    return live.find(({ key }) => key.verifier.storedKey === proven) ?? former.find(({ storedKey }) => storedKey === proven);
  }

  #admit(known: KnownCredential, { sourceIp }: Origin): Tenant {
    const { organization, revoked } = known;
    if (organization.status === 'suspended') {
      throw new ServiceError('organization_suspended', `organization "${organization.id}" is suspended`);
    }
    if (organization.status !== 'active') throw new ServiceError('unauthorized', 'the API key is not valid');
    revoked.throwIfAborted();
    const tenant = this.#tenantOf(known);
    if (tenant.mayComeFrom?.(sourceIp) === false) throw new ServiceError('not_allowed', `this API key may not be used from ${sourceIp}`);
    return tenant;
  }

  #asReader(organization: Organization): Organization {
    const known = this.#asReaders.get(organization);
    if (known !== undefined) return known;
    const seen: Organization = {
      ...organization,
      // It may be moved.
      get placement() {
        return asReader(organization.placement);
      },
    };
    this.#asReaders.set(organization, seen);
    return seen;
  }

  #tenantOf(known: KnownCredential): Tenant {
    let tenant = this.#tenants.get(known);
    if (tenant === undefined) {
      const { key, revoked } = known;
      const isReader = key.scope === 'read';
      const organization = isReader ? this.#asReader(known.organization) : known.organization;
      const pool = isReader ? `${organization.id}:${READERS}` : organization.id;
      const channels = channelsOf(this.#channels, known.organization.placement.role);
      const clusters = this.#clusters;
      tenant = {
        organization,
        pool,
        key,
        mayComeFrom: addressCheck(key.networks),
        channels,
        revoked,
        get pgNotify() {
          return clusters.up.get(organization.placement.cluster)?.pgNotify;
        },
        get hasPreparedTransactions() {
          return clusters.up.get(organization.placement.cluster)?.hasPreparedTransactions ?? true;
        },
      };
      this.#tenants.set(known, tenant);
    }
    return tenant;
  }
}

function waitOver(disconnect: DisconnectSignal): void {
  disconnect.listener = undefined;
  disconnect.waitsSince = undefined;
  disconnect.waitedUntil = performance.now();
}

function addressCheck(networks: readonly string[] | null): Tenant['mayComeFrom'] {
  if (networks === null) return undefined;
  const isInside = inNetworks(networks);
  return (text) => {
    const address = parseAddress(text);
    return address !== undefined && isInside(address);
  };
}

function organizationIdOf(known: KnownCredential | FormerKey): string {
  return 'endedAt' in known ? known.organizationId : known.organization.id;
}

function unproven(user: string | undefined): ServiceError {
  return new ServiceError(
    'unauthorized',
    user === undefined ? 'the API key is not valid' : `password authentication failed for user "${user}"`,
  );
}
