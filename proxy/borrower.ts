import { performance } from 'node:perf_hooks';
import type { BackendConnection } from '../src/backend/connection.ts';
import { ServiceError } from '../src/errors.ts';
import type { Lease } from '../src/router/lease.ts';
import { NO_WAIT } from '../src/router/router.ts';
import type { Backlog } from './backlog.ts';
import { suits } from './in-flight.ts';
import type { Relay } from './relay.ts';
import type { SharedPipeline } from './shared-pipeline.ts';
import type { Company, Sharer, Waiting } from './sharing.ts';

type Session = Pick<Relay, 'host' | 'pins' | 'requests' | 'tenure' | 'ending'>;

/** Who hears how a wait for a backend has ended. */
export interface BorrowerListener {
  /** There is one. */
  granted(): void;
  /** There is none. */
  refused(reason: ServiceError): void;
}

/**
 * Gets a session its backends: one that is free, a place behind others' requests where none is, or, when it has waited for
 * that, whichever comes first.
 */
export class Borrower implements Waiting {
  /** The request is not to share a backend with others: it has held them up, or has been hit by what was meant for one. */
  alone = false;
  readonly #session: Session;
  readonly #backlog: Backlog;
  readonly #listener: BorrowerListener;
  #wait = NO_WAIT;

  /** @param backlog what waits for a backend */
  constructor(session: Session, backlog: Backlog, listener: BorrowerListener) {
    this.#session = session;
    this.#backlog = backlog;
    this.#listener = listener;
  }

  /**
   * A backend at once, if there is one.
   * @param request what it is for, if that has come whole and may be short
   */
  tryBorrow(request: Buffer | undefined): BackendConnection | undefined {
    const { host, tenure, pins } = this.#session;
    return (
      (request !== undefined && host.sharing.isSpread && !pins.sequences.isReserved ? this.#tryShare(request, 'quick') : undefined) ??
      tenure.tryBegin() ??
      (request !== undefined ? this.#tryShare(request, 'short') : undefined)
    );
  }

  /** Others are at work: a request may go behind something of its kind that another client has asked for. */
  #tryShare(request: Buffer, company: Company): BackendConnection | undefined {
    const { host, requests, pins } = this.#session;
    const { sharing } = host;
    const now = performance.now();
    sharing.crowded(now);
    if (this.alone || sharing.depth <= 1 || !host.mayKeepBusy(company === 'quick')) return undefined;
    const errand = requests.shortErrand(request, sharing.paces);
    if (errand === undefined || !suits(errand.pace, company)) return undefined;
    const shared = sharing.find(errand, pins.settings, now, company);
    if (shared === undefined) return undefined;
    this.#board(shared);
    return shared.lease.backend;
  }

  /**
   * Waits for a backend on behalf of what is in the backlog.
   * @param mayShare that may be a short request
   */
  wait(mayShare: boolean): void {
    const { host, ending } = this.#session;
    let isSettled = false;
    const wait = host.enqueue((result) => {
      isSettled = true;
      this.#settled(result);
    });
    // The answer may be there at once, and even another wait have begun.
    if (isSettled) return;
    this.#wait = wait;
    if (mayShare && !this.alone && !ending.isOver) host.sharing.wait(this);
  }

  /** Nobody needs a backend any more: one that waits is refused. */
  giveUp(): void {
    this.#wait.giveUp();
  }

  #settled(result: Lease | ServiceError): void {
    const { host, tenure, ending } = this.#session;
    this.#wait = NO_WAIT;
    host.sharing.stopWaiting(this);
    if (ending.isOver) {
      if (!(result instanceof ServiceError)) void result.release(true);
    } else if (result instanceof ServiceError) this.#listener.refused(result);
    else {
      tenure.begin(result);
      this.#listener.granted();
      if (!this.alone) tenure.invite();
    }
  }

  join(sharer: Sharer, now: number): boolean {
    const { host, requests, pins, ending } = this.#session;
    const request = this.#backlog.only;
    if (ending.isOver || request === undefined) return false;
    const errand = requests.shortErrand(request, host.sharing.paces);
    const shared = errand && sharer.share(errand, pins.settings, now, 'short');
    if (shared === undefined || !this.#wait.leave()) return false;
    this.#wait = NO_WAIT;
    this.#board(shared);
    this.#listener.granted();
    return true;
  }

  #board(shared: SharedPipeline): void {
    const { tenure, host } = this.#session;
    tenure.board(shared);
    host.shared('shared');
  }
}
