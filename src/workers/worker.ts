import { type BackendPermits, reservedOf } from '../backend/organization-pool.ts';
import type { Config } from '../config.ts';
import { BothLimits, SharedLimit } from '../runtime/count-limit.ts';
import { REPLACED, type Service, startService } from '../service.ts';
import { createLog, type Greet, lineOf } from '../service-process.ts';
import { LentLimit, type LentLimitOptions } from './lent-limit.ts';
import { LentRate } from './lent-rate.ts';
import { backendsOf, type LentLimits, type ToWorker } from './messages.ts';
import { OPERATORS_MAX, type SharedParts, tellSupervisor } from './shared-parts.ts';
import { Questions } from './supervisor.ts';

type Start = Extract<ToWorker, { kind: 'start' }>;

/**
 * Runs one of several processes that serve the same ports. It does what its supervisor says, and ends when that ends: Node ends
 * a worker whose supervisor is gone.
 * @see https://nodejs.org/api/cluster.html
 */
export function runWorker(greet: Greet): void {
  const worker = new Worker(greet);
  // A terminal sends the signal to all processes. The supervisor tells the workers what to do.
  process.on('SIGINT', () => {});
  process.on('SIGHUP', () => {});
  process.on('SIGUSR2', () => {});
  process.on('SIGTERM', () => void worker.stop('SIGTERM'));
  process.on('message', (message: ToWorker) => worker.received(message));
  tellSupervisor({ kind: 'loaded' });
}

class Worker {
  readonly #greet: Greet;
  /** By the names of their allocators. */
  readonly #permits = new Map<string, WorkerPermits>();
  readonly #lent = new Map<string, LentLimit>();
  #rates: LentRate | undefined;
  readonly #metrics = new Questions<string>();
  #service: Service | undefined;
  #isStopping = false;

  constructor(greet: Greet) {
    this.#greet = greet;
  }

  received(message: ToWorker): void {
    switch (message.kind) {
      case 'start':
        void this.#start(message);
        break;
      case 'reload':
        this.#service?.reload();
        break;
      case 'stop':
        void this.stop(message.reason);
        break;
      case 'retire':
        void this.#retire();
        break;
      case 'granted':
        this.#permits.get(message.limit)?.granted(message.organizationId);
        this.#lent.get(message.limit)?.granted(message.organizationId, message.count);
        break;
      case 'taken':
        this.#rates?.taken(message.organizationId, message.count, message.left);
        break;
      case 'reclaim':
        if (!this.#giveUp(message)) tellSupervisor({ kind: 'kept', limit: message.limit, request: message.request });
        break;
      case 'owe':
        this.#poolOf(message)?.giveUpNext(message.organizationId);
        break;
      case 'settled':
        this.#poolOf(message)?.settle(message.organizationId);
        break;
      case 'metrics':
        this.#metrics.answered(message.request, message.text);
        break;
      case 'own metrics':
        void this.#tellMetrics(message.request);
        break;
    }
  }

  #poolOf({ limit }: { readonly limit: string }) {
    const cluster = this.#permits.get(limit)?.cluster;
    return cluster === undefined ? undefined : this.#service?.pool(cluster);
  }

  #giveUp(message: Extract<ToWorker, { kind: 'reclaim' }>): boolean {
    const { limit, organizationId, mayEvict } = message;
    return this.#lent.get(limit)?.giveUp(organizationId ?? '', mayEvict) ?? this.#poolOf(message)?.giveUpUnused(organizationId) ?? false;
  }

  async stop(reason: string): Promise<void> {
    if (this.#isStopping) return;
    this.#isStopping = true;
    try {
      await this.#service?.close(reason);
      process.exit(0);
    } catch (error) {
      this.#fail(error);
    }
  }

  async #tellMetrics(request: number): Promise<void> {
    tellSupervisor({ kind: 'own metrics', request, metrics: (await this.#service?.metrics.getMetricsAsJSON()) ?? [] });
  }

  async #retire(): Promise<void> {
    await this.#service?.retire();
    await this.stop(REPLACED);
  }

  async #start(start: Start): Promise<void> {
    const { number, config, greets } = start;
    try {
      const service = await startService(config, createLog(config, number), { shared: this.#shared(start) });
      service.metrics.setDefaultLabels({ worker: String(number) });
      this.#service = service;
      tellSupervisor({ kind: 'started' });
      if (greets) process.stdout.write(await this.#greet(config, service));
    } catch (error) {
      this.#fail(error);
    }
  }

  #shared({ config, changes, postgres, greets }: Start): SharedParts {
    return {
      workers: config.POSTERN_WORKERS,
      isSpeaker: greets,
      changes,
      postgres,
      permits: (cluster, { max, maxPerTenant }) => {
        const limit = backendsOf(cluster);
        tellSupervisor({ kind: 'limits', limit, max, maxPerTenant, reserved: reservedOf(max) });
        const permits = new WorkerPermits(cluster);
        this.#permits.set(limit, permits);
        return permits;
      },
      limits: {
        clients: (ownMax) => this.#lend('clients', config.POSTERN_CLIENTS_MAX, config, { ownMax }),
        unauthenticated: (ownMax) => (evict) =>
          this.#lend('unauthenticated connections', config.POSTERN_CLIENTS_MAX, config, { ownMax, evict }),
        httpConnections: (ownMax) => (evict) =>
          this.#lend('HTTP connections', config.POSTERN_HTTP_CONNECTIONS_MAX, config, { ownMax, evict }),
        authenticatedHttpConnections: (ownMax) =>
          new BothLimits(
            new SharedLimit(ownMax),
            this.#lend('authenticated HTTP connections', config.POSTERN_HTTP_CONNECTIONS_MAX, config, { block: 0 }),
          ),
        operators: this.#lend('operators', OPERATORS_MAX, config, { block: 0 }),
        clientsOfOrganization: this.#lend('clients of an organization', config.POSTERN_CLIENTS_PER_TENANT, config),
        requestsOfOrganization: this.#lend('requests of an organization', config.POSTERN_HTTP_REQUESTS_PER_TENANT, config),
        requestRates: this.#lendRates(config),
      },
      set: (setting, value) => tellSupervisor({ kind: 'set', setting, value }),
      metrics: () => this.#metrics.ask((request) => tellSupervisor({ kind: 'metrics', request })),
    };
  }

  #lend(
    limit: LentLimits,
    max: number,
    { POSTERN_WORKERS: workers }: Config,
    own: Pick<LentLimitOptions, 'ownMax' | 'block' | 'evict'> = {},
  ): LentLimit {
    const lent = new LentLimit({ limit, max, workers, ...own });
    this.#lent.set(limit, lent);
    return lent;
  }

  #lendRates({ POSTERN_WORKERS: workers }: Config): LentRate {
    this.#rates = new LentRate({ workers });
    return this.#rates;
  }

  #fail(error: unknown): void {
    process.stderr.write(lineOf(error));
    process.exit(1);
  }
}

interface Waiting {
  readonly isWanted: () => boolean;
  readonly settle: (isGranted: boolean) => void;
}

/** How often those that wait are looked through for some that need no session any more. */
const CHECK_EVERY_MS = 20;

/** Asks the supervisor, which counts the backend sessions of all workers on a cluster, before one is opened. */
class WorkerPermits implements BackendPermits {
  readonly cluster: string;
  readonly #limit: string;
  /** Those that wait, by organization, in their order. */
  readonly #waiting = new Map<string, Waiting[]>();
  #timer: NodeJS.Timeout | undefined;

  constructor(cluster: string) {
    this.cluster = cluster;
    this.#limit = backendsOf(cluster);
  }

  acquire(organizationId: string, isWanted: () => boolean): Promise<boolean> {
    return new Promise((settle) => {
      const waiting = this.#waiting.get(organizationId) ?? [];
      waiting.push({ isWanted, settle });
      this.#waiting.set(organizationId, waiting);
      this.#timer ??= setTimeout(() => this.#withdraw(), CHECK_EVERY_MS).unref();
      tellSupervisor({ kind: 'acquire', limit: this.#limit, organizationId, count: 1, mayEvict: false });
    });
  }

  release(organizationId: string): void {
    tellSupervisor({ kind: 'release', limit: this.#limit, organizationId, count: 1 });
  }

  granted(organizationId: string): void {
    const first = this.#waiting.get(organizationId)?.shift();
    this.#forgetIfEmpty(organizationId);
    if (first?.isWanted()) first.settle(true);
    else {
      first?.settle(false);
      this.release(organizationId);
    }
  }

  #withdraw(): void {
    this.#timer = undefined;
    for (const [organizationId, waiting] of this.#waiting) {
      const left = waiting.filter(({ isWanted }) => isWanted());
      for (const one of waiting) {
        if (left.includes(one)) continue;
        one.settle(false);
        tellSupervisor({ kind: 'withdraw', limit: this.#limit, organizationId });
      }
      this.#waiting.set(organizationId, left);
      this.#forgetIfEmpty(organizationId);
    }
    if (this.#waiting.size > 0) this.#timer = setTimeout(() => this.#withdraw(), CHECK_EVERY_MS).unref();
  }

  #forgetIfEmpty(organizationId: string): void {
    if (this.#waiting.get(organizationId)?.length === 0) this.#waiting.delete(organizationId);
  }
}
