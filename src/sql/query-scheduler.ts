import type { BackendConnection } from '../backend/connection.ts';
import type { ServiceError } from '../errors.ts';
import {
  type Multiplexer,
  type Multiplexers,
  mayTake,
  type ShareableRequest,
  type SharedBackend,
  SharedPipeline,
  type ShareMode,
  type Slot,
} from '../multiplex/multiplexer.ts';
import type { Observe } from '../observation.ts';
import type { TransactionStatus } from '../protocol/backend.ts';
import type { Tenant } from '../router/lease.ts';
import type { Router } from '../router/router.ts';
import type { MemoryReservation } from '../runtime/memory-budget.ts';
import type { Edits } from '../syntax/edits.ts';
import { optionsSetFirst } from '../syntax/side-effects.ts';
import { withHint } from './failures.ts';
import { Pipeline, type Replies, type Settle } from './pipeline.ts';
import {
  findStatement,
  forgetIfStale,
  type KnownStatement,
  PreparedRun,
  type QueryReply,
  type QueryRequest,
  type RunHost,
  runQuery,
} from './query.ts';
import { type SessionLease, type SessionOptions, SessionRewriter, SqlSession } from './session.ts';

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
  #findQuick(tenant: Tenant, { sql, readOnly, settings, timeoutMs }: QueryRequest): KnownStatement | undefined {
    if (readOnly || settings !== undefined || !this.#multiplexers.mayShare || (timeoutMs > 0 && timeoutMs < TIMEOUT_MIN_MS))
      return undefined;
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
    const customOptions = optionsSetFirst([request], request.settings);
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

/**
 * One quick statement in a shared pipeline. It has no deadline and cannot be aborted, because it takes next to no time. If the statement
 * or its reader turns out to be slow, a session is opened, which has both; the slot is that session's lease.
 */
class QuerySlot implements Slot, SharedBackend, RunHost, SessionLease {
  readonly isAlone = false;
  readonly canRunAgain = false;
  readonly isAtWork = true;
  /** The organization that sent the statement. */
  readonly tenant: Tenant;
  readonly receiver: Pipeline;
  slotStartedAt: number | undefined;
  readonly #shared: SharedPipeline;
  readonly #multiplexer: Multiplexer;
  readonly #options: SessionOptions;
  readonly #requeued: () => void;
  #session: SqlSession | undefined;
  #hasEntered = false;
  #isOver = false;

  /** @param requeued runs the statement elsewhere; the slot ignores what happens afterwards */
  constructor(tenant: Tenant, shared: SharedPipeline, multiplexer: Multiplexer, options: SessionOptions, requeued: () => void) {
    this.tenant = tenant;
    this.#shared = shared;
    this.#multiplexer = multiplexer;
    this.#options = options;
    this.#requeued = requeued;
    this.receiver = new Pipeline(shared.lease.backend, shared.lease, this);
  }

  get backend(): BackendConnection {
    return this.#shared.lease.backend;
  }

  get status(): TransactionStatus {
    return this.receiver.status;
  }

  get abortReason(): ServiceError | undefined {
    return this.#session?.abortReason;
  }

  get load(): number {
    return this.#shared.length;
  }

  get entered(): number {
    return this.#shared.entered;
  }

  /** Does nothing, because quick statements leave no state. */
  expect(): void {}

  send(messages: readonly Uint8Array[], replies: Replies, edits: Edits, settle: Settle): void {
    const rewritten = new SessionRewriter(this.tenant);
    const isFirst = this.#shared.length === 0;
    this.receiver.sendAmongOthers(messages, replies, isFirst, (ended) => settle(rewritten.outcome(ended, edits)));
    this.#hasEntered = true;
    this.#shared.enter(this);
  }

  slotStarted(now: number): void {
    // The first slot has none ahead of it, so its statement has been running since it was sent.
    if (this.#shared.entered > 1) this.slotStartedAt = now;
    this.#multiplexer.add(this);
  }

  pipelineFor(request: ShareableRequest, now: number, mode: ShareMode): SharedPipeline | undefined {
    return mode === 'quick' && this.#shared.isOpen(now) && mayTake(this.backend, request) ? this.#shared : undefined;
  }

  /** Requeues the requests behind this one, because they run with settings that are not theirs. */
  settingsChanged(): void {
    this.#shared.evictQueued();
  }

  stalled(): void {
    this.#ensureSession();
  }

  requeue(): boolean {
    this.#isOver = true;
    this.#requeued();
    return true;
  }

  takeOver(): void {}

  reservation(): MemoryReservation {
    return this.#shared.lease.reservation();
  }

  pause(): void {
    this.#ensureSession().pause();
  }

  resume(): void {
    this.#session?.resume();
  }

  abort(reason: ServiceError): void {
    this.#ensureSession().abort(reason);
  }

  /** Makes it possible to abort the statement, and requeues those behind it, so that they do not wait. */
  #ensureSession(): SqlSession {
    if (this.#session === undefined) {
      this.#shared.evictQueued();
      this.#session = new SqlSession(this, this.#options, this.receiver);
    }
    return this.#session;
  }

  /** Frees the slot: the statement has been answered, or could not be sent. */
  end(): Promise<void> {
    void this.#session?.end();
    this.#leave();
    return DONE;
  }

  async cancel(): Promise<void> {
    if (!this.#isOver) await this.#shared.cancel(this);
  }

  release(): Promise<void> {
    this.#leave();
    return DONE;
  }

  destroy(): void {
    this.#leave();
  }

  terminate(): void {
    if (!this.#isOver) this.#shared.lost(true);
  }

  retireSessions(): void {
    this.#shared.lease.retireSessions();
  }

  /** Has an effect only once, because the backend belongs to another slot afterwards. */
  #leave(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#multiplexer.delete(this);
    if (!this.#hasEntered) return;
    const { isDead, hasChangedSettings } = this.receiver;
    if (isDead) this.#shared.lost(false);
    else this.#shared.next(!hasChangedSettings, this.receiver.takeRest());
  }
}

const DONE = Promise.resolve();
