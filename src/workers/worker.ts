import type { Config } from '../config.ts';
import { type Service, type SharedParts, startService } from '../service.ts';
import { createLog, type Greet, lineOf } from '../service-process.ts';
import { tellSupervisor } from './channel.ts';
import type { ToWorker } from './messages.ts';
import { Questions } from './questions.ts';
import { WorkerPermits } from './worker-permits.ts';

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
  /** By cluster. */
  readonly #permits = new Map<string, WorkerPermits>();
  readonly #metrics = new Questions<string>();
  readonly #sessionCounts = new Questions<number>();
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
        this.#permits.get(message.cluster)?.granted(message.organizationId);
        break;
      case 'reclaim':
        if (this.#poolOf(message)?.giveUpUnused(message.organizationId) !== true) {
          const { cluster, request } = message;
          tellSupervisor({ kind: 'kept', cluster, request });
        }
        break;
      case 'owe':
        this.#poolOf(message)?.giveUpNext(message.organizationId);
        break;
      case 'settled':
        this.#poolOf(message)?.settle(message.organizationId);
        break;
      case 'sessions':
        this.#sessionCounts.answered(message.request, message.count);
        break;
      case 'metrics':
        this.#metrics.answered(message.request, message.text);
        break;
      case 'own metrics':
        void this.#tellMetrics(message.request);
        break;
    }
  }

  #poolOf({ cluster }: { readonly cluster: string }) {
    return this.#service?.pool(cluster);
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
    await this.stop('replaced');
  }

  async #start({ number, config, postgres, greets }: Start): Promise<void> {
    const own = shareOf(config);
    try {
      const service = await startService(own, createLog(own, number), { shared: this.#shared(config, postgres) });
      service.metrics.setDefaultLabels({ worker: String(number) });
      this.#service = service;
      tellSupervisor({ kind: 'started' });
      if (greets) process.stdout.write(await this.#greet(own, service));
    } catch (error) {
      this.#fail(error);
    }
  }

  #shared(config: Config, postgres: Start['postgres']): SharedParts {
    return {
      workers: config.POSTERN_WORKERS,
      postgres,
      permits: (cluster, limits) => {
        tellSupervisor({ kind: 'limits', cluster, ...limits });
        const permits = new WorkerPermits(cluster);
        this.#permits.set(cluster, permits);
        return permits;
      },
      sessionCounter: {
        entered: (organizationId) => tellSupervisor({ kind: 'session', organizationId, change: 1 }),
        left: (organizationId) => tellSupervisor({ kind: 'session', organizationId, change: -1 }),
        countOf: (organizationId) => this.#sessionCounts.ask((request) => tellSupervisor({ kind: 'sessions', request, organizationId })),
      },
      metrics: () => this.#metrics.ask((request) => tellSupervisor({ kind: 'metrics', request })),
    };
  }

  #fail(error: unknown): void {
    process.stderr.write(lineOf(error));
    process.exit(1);
  }
}

/** A worker's part of the limits that are not counted for all workers together. Connections are spread evenly. */
function shareOf(config: Config): Config {
  const share = (limit: number) => Math.ceil(limit / config.POSTERN_WORKERS);
  return {
    ...config,
    POSTERN_CLIENTS_MAX: share(config.POSTERN_CLIENTS_MAX),
    POSTERN_HTTP_CONNECTIONS_MAX: share(config.POSTERN_HTTP_CONNECTIONS_MAX),
    POSTERN_HTTP_REQUESTS_PER_TENANT: share(config.POSTERN_HTTP_REQUESTS_PER_TENANT),
  };
}
