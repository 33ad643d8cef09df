import { ServiceError } from '../../errors.ts';
import type { AuditVerification } from './verification.ts';

/** @throws when `signal` aborts because no caller waits any more */
type Verify = (organizationId: string, signal: AbortSignal) => Promise<AuditVerification>;

/**
 * Runs verifications one at a time, because a long chain takes long, and organizations in turn. Callers who request the same
 * verification before it begins share its answer, so at most one is queued for an organization.
 */
export class VerificationQueue {
  readonly #verify: Verify;
  /** By organization, in the order of their requests. */
  readonly #waiting = new Map<string, SharedVerification>();
  #isRunning = false;

  constructor(verify: Verify) {
    this.#verify = verify;
  }

  /** @param signal aborts when the caller has disconnected */
  request(organizationId: string, signal?: AbortSignal): Promise<AuditVerification> {
    let shared = this.#waiting.get(organizationId);
    if (shared === undefined || shared.isCanceled) {
      shared = new SharedVerification();
      this.#waiting.set(organizationId, shared);
    }
    shared.addCaller(signal);
    void this.#runAll();
    return shared.answer;
  }

  async #runAll(): Promise<void> {
    if (this.#isRunning) return;
    this.#isRunning = true;
    // A Map's iterator also reaches entries that are added during the loop.
    for (const [organizationId, shared] of this.#waiting) {
      this.#waiting.delete(organizationId);
      await shared.run((signal) => this.#verify(organizationId, signal));
    }
    this.#isRunning = false;
  }
}

/** One verification and the callers who wait for its answer. */
class SharedVerification {
  /** Aborts when all callers have disconnected. */
  readonly #unwanted = new AbortController();
  readonly answer: Promise<AuditVerification>;
  #resolve: (answer: AuditVerification) => void = () => {};
  #reject: (error: unknown) => void = () => {};
  #callers = 0;

  constructor() {
    this.answer = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
  }

  get isCanceled(): boolean {
    return this.#unwanted.signal.aborted;
  }

  addCaller(signal: AbortSignal | undefined): void {
    this.#callers += 1;
    if (signal?.aborted) this.#leave();
    else signal?.addEventListener('abort', this.#leave, { once: true });
  }

  /** Never rejects. */
  async run(verify: (signal: AbortSignal) => Promise<AuditVerification>): Promise<void> {
    if (this.isCanceled) return;
    try {
      this.#resolve(await verify(this.#unwanted.signal));
    } catch (error) {
      this.#reject(error);
    }
  }

  readonly #leave = (): void => {
    this.#callers -= 1;
    if (this.#callers > 0) return;
    const gone = new ServiceError('query_canceled', 'the caller has gone away');
    this.#unwanted.abort(gone);
    this.#reject(gone);
  };
}
