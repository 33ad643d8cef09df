import { performance } from 'node:perf_hooks';
import type { BackendConnection } from '../../src/backend/connection.ts';
import { ServiceError } from '../../src/errors.ts';
import type { Lease } from '../../src/router/lease.ts';
import { NO_WAIT } from '../../src/router/router.ts';
import { suits } from '../multiplex/in-flight.ts';
import type { SharedBackend, ShareMode, WaitingClient } from '../multiplex/multiplexer.ts';
import type { SharedPipeline } from '../multiplex/shared-pipeline.ts';
import type { Pins } from '../pinning/pins.ts';
import type { Forwarding } from '../relay/forwarding.ts';
import type { InputQueue } from '../relay/input-queue.ts';
import type { SessionEnd } from '../relay/session-end.ts';
import type { SessionServices } from '../sessions/session-services.ts';
import type { BackendLink } from './backend-link.ts';

/** What a checkout needs of the session. */
interface CheckoutSession {
  readonly services: SessionServices;
  readonly pins: Pins;
  readonly forwarding: Forwarding;
  readonly link: BackendLink;
  readonly sessionEnd: SessionEnd;
}

/** Who hears how a wait for a backend has ended. */
export interface CheckoutListener {
  /** There is one. */
  granted(): void;
  /** There is none. */
  refused(reason: ServiceError): void;
}

/**
 * Gets a session its backends: one that is free, a place behind others' requests where none is, or, when it has waited for
 * that, whichever comes first.
 */
export class Checkout implements WaitingClient {
  /** The request is not to share a backend with others: it has held them up, or has been hit by what was meant for one. */
  isExclusive = false;
  readonly #session: CheckoutSession;
  readonly #inputQueue: InputQueue;
  readonly #listener: CheckoutListener;
  #wait = NO_WAIT;

  /** @param inputQueue what waits for a backend */
  constructor(session: CheckoutSession, inputQueue: InputQueue, listener: CheckoutListener) {
    this.#session = session;
    this.#inputQueue = inputQueue;
    this.#listener = listener;
  }

  /**
   * A backend at once, if there is one.
   * @param request what it is for, if that has come whole and may be short
   */
  tryCheckout(request: Buffer | undefined): BackendConnection | undefined {
    const { services, link, pins } = this.#session;
    return (
      (request !== undefined && services.multiplexer.isSpread && !pins.sequences.isReserved
        ? this.#tryShare(request, 'quick')
        : undefined) ??
      link.tryBegin() ??
      (request !== undefined ? this.#tryShare(request, 'short') : undefined)
    );
  }

  /** Others are at work: a request may go behind something of its kind that another client has asked for. */
  #tryShare(request: Buffer, mode: ShareMode): BackendConnection | undefined {
    const { services, forwarding, pins } = this.#session;
    const { multiplexer } = services;
    const now = performance.now();
    multiplexer.contended(now);
    if (this.isExclusive || multiplexer.depth <= 1 || !services.mayKeepBusy(mode === 'quick')) return undefined;
    const shareable = forwarding.shareable(request, multiplexer.latencies);
    if (shareable === undefined || !suits(shareable.latency, mode)) return undefined;
    const shared = multiplexer.find(shareable, pins.settings, now, mode);
    if (shared === undefined) return undefined;
    this.#enterPipeline(shared);
    return shared.lease.backend;
  }

  /**
   * Waits for a backend on behalf of what is in the input queue.
   * @param mayShare that may be a short request
   */
  wait(mayShare: boolean): void {
    const { services, sessionEnd } = this.#session;
    let isSettled = false;
    const wait = services.enqueue((result) => {
      isSettled = true;
      this.#settled(result);
    });
    // The answer may be there at once, and even another wait have begun.
    if (isSettled) return;
    this.#wait = wait;
    if (mayShare && !this.isExclusive && !sessionEnd.isOver) services.multiplexer.wait(this);
  }

  /** Nobody needs a backend any more: one that waits is refused. */
  giveUp(): void {
    this.#wait.giveUp();
  }

  #settled(result: Lease | ServiceError): void {
    const { services, link, sessionEnd } = this.#session;
    this.#wait = NO_WAIT;
    services.multiplexer.stopWaiting(this);
    if (sessionEnd.isOver) {
      if (!(result instanceof ServiceError)) void result.release(true);
    } else if (result instanceof ServiceError) this.#listener.refused(result);
    else {
      link.begin(result);
      this.#listener.granted();
      if (!this.isExclusive) link.admitWaiting();
    }
  }

  join(backend: SharedBackend, now: number): boolean {
    const { services, forwarding, pins, sessionEnd } = this.#session;
    const request = this.#inputQueue.only;
    if (sessionEnd.isOver || request === undefined) return false;
    const shareable = forwarding.shareable(request, services.multiplexer.latencies);
    const shared = shareable && backend.share(shareable, pins.settings, now, 'short');
    if (shared === undefined || !this.#wait.leave()) return false;
    this.#wait = NO_WAIT;
    this.#enterPipeline(shared);
    this.#listener.granted();
    return true;
  }

  #enterPipeline(shared: SharedPipeline): void {
    const { link, services } = this.#session;
    link.enterPipeline(shared);
    services.shared('shared');
  }
}
