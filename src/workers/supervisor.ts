import cluster, { type Worker } from 'node:cluster';
import { once } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';
import { AggregatorRegistry, Registry } from 'prom-client';
import { openBackups } from '../backups/backups.ts';
import type { ChangeableSetting, Config } from '../config.ts';
import { type BackingPostgres, openPostgres } from '../embedded/embedded.ts';
import type { Observe } from '../observation.ts';
import { gaugeBackups } from '../observers/metrics.ts';
import { tryPorts } from '../ports.ts';
import { LocalRate } from '../runtime/token-buckets.ts';
import { REPLACED } from '../service.ts';
import { type AllocatorOptions, LimitAllocator } from './limits.ts';
import type { LentLimits, OwnMetrics, ToSupervisor, ToWorker } from './messages.ts';
import { OPERATORS_MAX } from './shared-parts.ts';

/** The processes that serve the ports. */
export interface Workers {
  /** Each worker reads the TLS files again. */
  reload(): void;
  /** Replaces each worker: another one is started, and then it leaves the ports, and ends when its clients have left. */
  replaceWorkers(): void;
  /** Stops all workers, and the embedded PostgreSQL if there is one. */
  close(reason?: string): Promise<void>;
}

/** A worker that ends sooner after its start is started again only after a pause, which doubles each time. */
const LASTING_MS = 10_000;
const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 30_000;
/** One that does not serve after this long hangs. The first may have the control database to migrate. */
const START_TIMEOUT_MS = 300_000;
/** How many replaced processes of one worker may wait for their clients to leave. Each has some sessions on the control database. */
const REPLACED_MAX = 3;
/** One that does not answer in time is left out of the metrics: less than Prometheus waits. */
const METRICS_TIMEOUT_MS = 2_000;

/**
 * Starts PostgreSQL, if it is the embedded one, and the workers, which share the ports. Returns when all serve.
 * @throws ConfigError, EmbeddedError; Error when a worker could not start, which has said why
 */
export async function startWorkers(config: Config, observe: Observe): Promise<Workers> {
  const ports = await tryPorts(config);
  const opened: (() => Promise<void>)[] = [];
  const postgres = await openPostgres(config, observe, opened);
  const backups = await openBackups(postgres, config, observe, opened);
  const own = new Registry();
  if (backups !== undefined) gaugeBackups(own, () => backups.snapshot());
  const supervisor = new Supervisor({ ...config, ...ports }, postgres, observe, own);
  opened.push(() => supervisor.stop());
  const close = async () => {
    for (const end of opened.splice(0).reverse()) await end();
  };
  try {
    await supervisor.start();
  } catch (error) {
    await close();
    throw error;
  }
  return {
    reload: () => supervisor.tellAll({ kind: 'reload' }),
    replaceWorkers: () => void supervisor.replaceAll(),
    close: async (reason) => {
      supervisor.reason = reason ?? 'closed';
      await close();
    },
  };
}

/** The place of a worker: a new process takes it when one has ended, or is to be replaced. */
interface Place {
  readonly number: number;
  process: Worker | undefined;
  /** Those that have been replaced and have clients, the earliest first. */
  readonly replaced: Worker[];
  /** Settled when the process that is being started serves, or has ended. */
  launching: Promise<void> | undefined;
  startedAt: number;
  pauseMs: number;
}

class Supervisor {
  reason = 'closed';
  readonly #config: Config;
  /** What operators have changed. */
  readonly #changes = new Map<ChangeableSetting, string>();
  readonly #postgres: BackingPostgres;
  readonly #observe: Observe;
  readonly #places: readonly Place[];
  /** By what they are of. */
  readonly #allocators: Map<string, LimitAllocator>;
  readonly #rates = new LocalRate();
  readonly #metrics = new Questions<OwnMetrics>();
  readonly #own: Registry;
  readonly #stopping = new AbortController();
  #isReplacing = false;
  /** It has been asked for while workers were being replaced, maybe for files that the first of them have not read. */
  #replacesAgain = false;

  /** @param own metrics of this process */
  constructor(config: Config, postgres: BackingPostgres, observe: Observe, own: Registry) {
    this.#own = own;
    this.#config = config;
    this.#postgres = postgres;
    this.#observe = observe;
    this.#places = Array.from({ length: config.POSTERN_WORKERS }, (_, index) => ({
      number: index + 1,
      process: undefined,
      replaced: [],
      launching: undefined,
      startedAt: 0,
      pauseMs: FIRST_PAUSE_MS,
    }));
    this.#allocators = new Map<string, LimitAllocator>(lentLimits(config));
    cluster.setupPrimary({ serialization: 'advanced' });
    // Round robin, also where the system would choose otherwise: it spreads connections evenly.
    cluster.schedulingPolicy = cluster.SCHED_RR;
  }

  /** The first worker sets up the databases, if it has to, before the others start. */
  async start(): Promise<void> {
    const [first, ...others] = this.#places;
    if (first !== undefined) await this.#launch(first, true);
    await Promise.all(others.map((place) => this.#launch(place)));
  }

  tellAll(message: ToWorker): void {
    for (const { id } of allWorkers()) tell(id, message);
  }

  /** One after the other, so that there are always as many as there should be. */
  async replaceAll(): Promise<void> {
    this.#replacesAgain = this.#isReplacing;
    if (this.#isReplacing) return;
    this.#isReplacing = true;
    try {
      do {
        this.#replacesAgain = false;
        for (const place of this.#places) {
          if (this.#stopping.signal.aborted) return;
          const former = place.process;
          await this.#launch(place);
          if (former !== undefined) this.#retire(place, former);
        }
      } while (this.#replacesAgain);
    } catch (cause) {
      if (this.#stopping.signal.aborted) return;
      this.#observe({ name: 'service.failure', message: 'workers could not be replaced; those that there are go on', cause });
    } finally {
      this.#isReplacing = false;
    }
  }

  #retire({ replaced }: Place, process: Worker): void {
    tell(process.id, { kind: 'retire' });
    replaced.push(process);
    process.once('exit', () => replaced.splice(replaced.indexOf(process), 1));
    for (const { id } of replaced.slice(0, -REPLACED_MAX)) tell(id, { kind: 'stop', reason: REPLACED });
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    const ended = allWorkers().map((process) => once(process, 'exit'));
    this.tellAll(this.#stopMessage);
    await Promise.all(ended);
  }

  get #stopMessage(): ToWorker {
    return { kind: 'stop', reason: this.reason };
  }

  /** Starts a process in this place, unless one is being started. @throws Error when it ends before it serves */
  #launch(place: Place, greets = false): Promise<void> {
    place.launching ??= this.#fork(place, greets).finally(() => {
      place.launching = undefined;
    });
    return place.launching;
  }

  async #fork(place: Place, greets: boolean): Promise<void> {
    const process = cluster.fork();
    process.on('error', (cause) => this.#observe({ name: 'service.warning', message: `worker ${place.number} could not be told`, cause }));
    returnConnections(process, () => this.#places.some((other) => other.process !== process && other.process?.isConnected()));
    const message: ToWorker = {
      kind: 'start',
      number: place.number,
      config: this.#config,
      changes: [...this.#changes],
      postgres: this.#postgres,
      greets,
    };
    process.on('message', (heard: ToSupervisor) => this.#heard(process, heard));
    process.once('exit', () => {
      for (const allocator of this.#allocators.values()) allocator.forget(process.id);
    });
    const timer = setTimeout(() => process.process.kill('SIGKILL'), START_TIMEOUT_MS);
    await new Promise<void>((resolve, reject) => {
      process.once('exit', () => reject(new Error(`worker ${place.number} could not start`)));
      process.on('message', ({ kind }: ToSupervisor) => {
        // It has not heard what it was told before.
        if (kind === 'loaded') process.send(this.#stopping.signal.aborted ? this.#stopMessage : message);
        if (kind === 'started') resolve();
      });
    }).finally(() => clearTimeout(timer));
    place.process = process;
    place.startedAt = performance.now();
    process.once('exit', (code, signal) => this.#ended(place, process, signal || `code ${code}`));
  }

  /** A process that has ended is replaced, unless it was told to end. */
  #ended(place: Place, process: Worker, how: string): void {
    if (place.process !== process || this.#stopping.signal.aborted) return;
    place.pauseMs = performance.now() - place.startedAt < LASTING_MS ? Math.min(LONGEST_PAUSE_MS, place.pauseMs * 2) : FIRST_PAUSE_MS;
    void this.#restart(place, process, `worker ${place.number} has ended (${how})`);
  }

  async #restart(place: Place, ended: Worker, why: string): Promise<void> {
    const seconds = place.pauseMs / 1_000;
    this.#observe({ name: 'service.warning', message: `${why} and is started again in ${seconds} s` });
    await delay(place.pauseMs, undefined, { signal: this.#stopping.signal }).catch(() => {});
    if (this.#stopping.signal.aborted || place.process !== ended) return;
    try {
      await this.#launch(place);
    } catch (error) {
      place.pauseMs = Math.min(LONGEST_PAUSE_MS, place.pauseMs * 2);
      if (!this.#stopping.signal.aborted) void this.#restart(place, ended, error instanceof Error ? error.message : String(error));
    }
  }

  #allocatorOf({ limit }: { readonly limit: string }): LimitAllocator {
    const known = this.#allocators.get(limit);
    if (known !== undefined) return known;
    const allocator = openAllocator(limit);
    this.#allocators.set(limit, allocator);
    return allocator;
  }

  #heard(process: Worker, message: ToSupervisor): void {
    switch (message.kind) {
      case 'limits':
        this.#allocatorOf(message).limit(message);
        break;
      case 'acquire':
        this.#allocatorOf(message).acquire(process.id, message.organizationId, message.count, message.mayEvict, message.max);
        break;
      case 'withdraw':
        this.#allocatorOf(message).withdraw(process.id, message.organizationId);
        break;
      case 'release':
        this.#allocatorOf(message).release(process.id, message.organizationId, message.count);
        break;
      case 'kept':
        this.#allocatorOf(message).kept(message.request);
        break;
      case 'set':
        this.#changes.set(message.setting, message.value);
        break;
      case 'take':
        this.#take(process, message);
        break;
      case 'give back':
        this.#rates.giveBack(message.count, message.organizationId, message.perSecond);
        break;
      case 'metrics':
        void this.#collect(process, message.request);
        break;
      case 'own metrics':
        this.#metrics.answered(message.request, message.metrics);
        break;
      case 'loaded':
      case 'started':
        break;
    }
  }

  #take(asking: Worker, { organizationId, perSecond, count: wanted }: Extract<ToSupervisor, { kind: 'take' }>): void {
    const [count, left] = this.#rates.takeUpTo(wanted, organizationId, perSecond);
    tell(asking.id, { kind: 'taken', organizationId, count, left });
  }

  async #collect(asking: Worker, request: number): Promise<void> {
    const processes = this.#places.flatMap(({ process }) => process ?? []);
    const metrics = await Promise.all(
      processes.map(({ id }) => this.#metrics.askFor(METRICS_TIMEOUT_MS, (number) => tell(id, { kind: 'own metrics', request: number }))),
    );
    const all = AggregatorRegistry.aggregate([...metrics.filter((one) => one !== undefined), await this.#own.getMetricsAsJSON()]);
    tell(asking.id, { kind: 'metrics', request, text: await all.metrics() });
  }
}

/** The limits that are lent in blocks, to those who are let in or refused. */
function lentLimits(config: Config): (readonly [LentLimits, LimitAllocator])[] {
  const lent = (limit: LentLimits, max: number, maxPerTenant: number, leavesAsMany = false) => {
    // What is divided by that rule is not lent in advance.
    const allocator = openAllocator(limit, { isPatient: false, mayReclaim: !leavesAsMany });
    allocator.limit({ max, maxPerTenant, reserved: 0, leavesAsMany });
    return [limit, allocator] as const;
  };
  return [
    lent('clients', config.POSTERN_CLIENTS_MAX, config.POSTERN_CLIENTS_MAX),
    lent('unauthenticated connections', config.POSTERN_CLIENTS_MAX, config.POSTERN_CLIENTS_MAX),
    lent('HTTP connections', config.POSTERN_HTTP_CONNECTIONS_MAX, config.POSTERN_HTTP_CONNECTIONS_MAX),
    lent('authenticated HTTP connections', config.POSTERN_HTTP_CONNECTIONS_MAX, config.POSTERN_HTTP_CONNECTIONS_MAX, true),
    lent('operators', OPERATORS_MAX, OPERATORS_MAX),
    lent('clients of an organization', Number.POSITIVE_INFINITY, config.POSTERN_CLIENTS_PER_TENANT),
    lent('requests of an organization', Number.POSITIVE_INFINITY, config.POSTERN_HTTP_REQUESTS_PER_TENANT),
  ];
}

/** Node numbers worker processes from 1 on; the allocator goes by these numbers. */
function openAllocator(limit: string, options?: AllocatorOptions): LimitAllocator {
  return new LimitAllocator(
    {
      granted: (id, organizationId, count) => tell(id, { kind: 'granted', limit, organizationId, count }),
      reclaim: (id, request, organizationId, mayEvict) => tell(id, { kind: 'reclaim', limit, request, organizationId, mayEvict }),
      owe: (id, organizationId) => tell(id, { kind: 'owe', limit, organizationId }),
      settled: (id, organizationId) => tell(id, { kind: 'settled', limit, organizationId }),
    },
    options,
  );
}

function allWorkers(): Worker[] {
  return Object.values(cluster.workers ?? {}).filter((process) => process !== undefined);
}

function tell(id: number, message: ToWorker): void {
  const process = cluster.workers?.[id];
  if (process?.isConnected()) process.send(message);
}

/** A reply to one of Node's own messages between the processes of a cluster. */
interface InternalReply {
  readonly ack?: number;
}

/**
 * Gives connections to other workers that this one has been sent and has not taken when it ends. Node waits for the worker's answer and
 * keeps its handle open, so that the client of a worker that was killed would stay connected to nobody.
 * @param isServed whether another worker serves the ports
 * @see https://github.com/nodejs/node/blob/v24.x/lib/internal/cluster/round_robin_handle.js
 */
function returnConnections({ process: child }: Worker, isServed: () => boolean): void {
  /** By the numbers of the messages. */
  const sent = new Map<number, { close(): void }>();
  const send = child.send;
  child.send = (...values: unknown[]) => {
    const [message, handle] = values;
    if (isNewConnection(message) && isHandle(handle)) sent.set(message.seq, handle);
    return Reflect.apply(send, child, values);
  };
  child.on('internalMessage', ({ ack }: InternalReply) => {
    if (ack !== undefined) sent.delete(ack);
  });
  child.once('exit', () => {
    for (const [seq, handle] of [...sent]) {
      // As a worker says it that does not accept connections any more.
      if (isServed()) child.emit('internalMessage', { cmd: 'NODE_CLUSTER', ack: seq, accepted: false });
      else handle.close();
    }
  });
}

function isNewConnection(message: unknown): message is { readonly seq: number } {
  return (
    typeof message === 'object' &&
    message !== null &&
    'act' in message &&
    message.act === 'newconn' &&
    'seq' in message &&
    typeof message.seq === 'number'
  );
}

function isHandle(handle: unknown): handle is { close(): void } {
  return typeof handle === 'object' && handle !== null && 'close' in handle && typeof handle.close === 'function';
}

/** Questions to another process that wait for their answers. */
export class Questions<Answer> {
  #last = 0;
  readonly #waiting = new Map<number, (answer: Answer) => void>();

  /** @param send sends the question with this number */
  ask(send: (request: number) => void): Promise<Answer> {
    return new Promise((resolve) => {
      this.#last += 1;
      this.#waiting.set(this.#last, resolve);
      send(this.#last);
    });
  }

  /** As {@link ask}, for a process that may hang. @returns undefined when it does not answer in time */
  async askFor(ms: number, send: (request: number) => void): Promise<Answer | undefined> {
    let request = 0;
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<undefined>((resolve) => {
      timer = setTimeout(resolve, ms, undefined);
    });
    const answer = this.ask((number) => {
      request = number;
      send(number);
    });
    try {
      return await Promise.race([answer, late]);
    } finally {
      clearTimeout(timer);
      this.#waiting.delete(request);
    }
  }

  answered(request: number, answer: Answer): void {
    this.#waiting.get(request)?.(answer);
    this.#waiting.delete(request);
  }
}
