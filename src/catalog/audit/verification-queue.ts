import { ServiceError } from '../../errors.ts';
import type { AuditVerification } from './verification.ts';

/** @throws when `signal` aborts: nobody waits for it any more */
type Verify = (organizationId: string, signal: AbortSignal) => Promise<AuditVerification>;

/**
 * Verifications one at a time, for each takes as long as its chain is long, and organizations in turn. Those who ask for
 * the same one before it begins share its answer: an organization has one that waits at most.
 */
export class VerificationQueue {
  readonly #verify: Verify;
  /** By organization, in the order in which they have begun to wait. */
  readonly #waiting = new Map<string, SharedVerification>();
  #isRunning = false;

  constructor(verify: Verify) {
    this.#verify = verify;
  }

  /** @param signal aborts when the caller has gone */
  ask(organizationId: string, signal?: AbortSignal): Promise<AuditVerification> {
    let shared = this.#waiting.get(organizationId);
    if (shared === undefined || shared.isGivenUp) {
      shared = new SharedVerification();
      this.#waiting.set(organizationId, shared);
    }
    shared.join(signal);
    void this.#runAll();
    return shared.answer;
  }

  async #runAll(): Promise<void> {
    if (this.#isRunning) return;
    this.#isRunning = true;
    // Those that come meanwhile are met as well, behind the others.
    for (const [organizationId, shared] of this.#waiting) {
      this.#waiting.delete(organizationId);
      await shared.run((signal) => this.#verify(organizationId, signal));
    }
    this.#isRunning = false;
  }
}

/** One verification, and those who wait for its answer. */
class SharedVerification {
  /** Aborts when all of them have gone. */
  readonly #unwanted = new AbortController();
  readonly answer: Promise<AuditVerification>;
  #resolve: (answer: AuditVerification) => void = () => {};
  #reject: (error: unknown) => void = () => {};
  #sharers = 0;

  constructor() {
    this.answer = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
  }

  get isGivenUp(): boolean {
    return this.#unwanted.signal.aborted;
  }

  join(signal: AbortSignal | undefined): void {
    this.#sharers += 1;
    if (signal?.aborted) this.#leave();
    else signal?.addEventListener('abort', this.#leave, { once: true });
  }

  /** Never rejects. */
  async run(verify: (signal: AbortSignal) => Promise<AuditVerification>): Promise<void> {
    if (this.isGivenUp) return;
    try {
      this.#resolve(await verify(this.#unwanted.signal));
    } catch (error) {
      this.#reject(error);
    }
  }

  readonly #leave = (): void => {
    this.#sharers -= 1;
    if (this.#sharers > 0) return;
    const gone = new ServiceError('query_canceled', 'the caller has gone away');
    this.#unwanted.abort(gone);
    this.#reject(gone);
  };
}
