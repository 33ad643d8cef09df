import type { BackendConnection } from '../../backend/connection.ts';
import type { Waiter } from '../../backend/organization-pool.ts';
import { ServiceError } from '../../errors.ts';
import type { CustomOptions } from '../../syntax/session-traits.ts';
import { ClusterDownError, type ServedCluster } from '../clusters/served-cluster.ts';
import type { PausedRequest } from '../moves/pauses.ts';
import type { Tenant } from '../tenant.ts';

/** What a request for a backend needs of the router. */
export interface LeaseRequestHost {
  settle(request: LeaseRequest, result: BackendConnection | ServiceError): void;
  /** Puts the request into its queue: the one for a backend, or that of the paused. */
  queue(request: LeaseRequest): void;
  /** Takes it out of its queue. @returns whether it was in one */
  leave(request: LeaseRequest): boolean;
  /** The tenant as it is now, if the organization has been moved; undefined: the key is not valid any more. */
  renew(tenant: Tenant): Promise<Tenant | undefined>;
}

/** A request for a backend. While the organization is paused, it waits for the end of the pause, and then for a backend at its new place. */
export class LeaseRequest implements Waiter, PausedRequest {
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
