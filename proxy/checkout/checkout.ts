import { performance } from 'node:perf_hooks';
import type { BackendConnection } from '../../src/backend/connection.ts';
import { ServiceError } from '../../src/errors.ts';
import {
  type ShareableRequest,
  type SharedBackend,
  type SharedPipeline,
  type ShareMode,
  suits,
  type WaitingClient,
} from '../../src/multiplex/multiplexer.ts';
import type { Lease } from '../../src/router/lease.ts';
import { NO_WAIT } from '../../src/router/router.ts';
import type { RequestInFlight } from '../multiplex/request-in-flight.ts';
import { shareableRequest } from '../multiplex/shareable-request.ts';
import type { Pins } from '../pinning/pins.ts';
import type { ClientStatements } from '../prepared/client-statements.ts';
import type { PendingNames } from '../prepared/pending-names.ts';
import type { Gate } from '../relay/input-gate.ts';
import type { SessionServices } from '../sessions/session-services.ts';
import type { BackendLink } from './backend-link.ts';

/** The parts of the session that a checkout needs. */
interface CheckoutSession {
  readonly services: SessionServices;
  readonly pins: Pins;
  readonly statements: ClientStatements;
  readonly names: PendingNames;
  readonly gate: Gate;
  readonly inFlight: RequestInFlight;
  readonly link: BackendLink;
  readonly events: CheckoutListener;
  readonly isOver: boolean;
}

/** Is told how a wait for a backend has ended. */
export interface CheckoutListener {
  /** The session has a backend. */
  granted(): void;
  /** The session gets no backend. */
  refused(reason: ServiceError): void;
}

/**
 * Gets backends for a session: a free one, or else a slot in a shared pipeline. If there is neither, the session waits for
 * whichever comes first.
 */
export class Checkout implements WaitingClient {
  readonly #session: CheckoutSession;
  #wait = NO_WAIT;

  constructor(session: CheckoutSession) {
    this.#session = session;
  }

  /**
   * Takes a backend without waiting, if there is one.
   * @param request the client's request, if it has arrived whole, may be short, and may share a backend
   */
  tryCheckout(request: Buffer | undefined): BackendConnection | undefined {
    const { services, link, pins } = this.#session;
    return (
      (request !== undefined && services.multiplexer.isSpread && pins.sequences?.isReserved !== true
        ? this.#tryShare(request, 'quick')
        : undefined) ??
      link.tryBegin() ??
      (request !== undefined ? this.#tryShare(request, 'short') : undefined)
    );
  }

  /** Puts the request behind a similar request of another client, if that is possible. */
  #tryShare(request: Buffer, mode: ShareMode): BackendConnection | undefined {
    const { services, inFlight } = this.#session;
    const { multiplexer } = services;
    const now = performance.now();
    multiplexer.contended(now);
    if (multiplexer.depth <= 1 || !services.mayKeepBusy(mode === 'quick')) return undefined;
    const shareable = this.#shareable(request);
    if (shareable === undefined) return undefined;
    inFlight.expect(request, shareable.latency);
    if (!suits(shareable.latency, mode)) return undefined;
    const shared = multiplexer.find(shareable, now, mode, false);
    if (shared === undefined) return undefined;
    this.#enterPipeline(shared);
    return shared.lease.backend;
  }

  /**
   * Waits for a backend on behalf of the input that the gate holds.
   * @param mayShare the input may be a short request that may share a backend
   */
  wait(mayShare: boolean): void {
    const { services } = this.#session;
    let isSettled = false;
    const wait = services.enqueue((result) => {
      isSettled = true;
      this.#settled(result);
    });
    // The callback may have run already, and may even have started another wait.
    if (isSettled) return;
    this.#wait = wait;
    if (mayShare && !this.#session.isOver) services.multiplexer.wait(this);
  }

  /** Ends the wait, because the session needs no backend any more. */
  giveUp(): void {
    this.#wait.giveUp();
  }

  #settled(result: Lease | ServiceError): void {
    const { services, link, events, isOver } = this.#session;
    this.#wait = NO_WAIT;
    services.multiplexer.stopWaiting(this);
    if (isOver) {
      if (!(result instanceof ServiceError)) void result.release(true);
    } else if (result instanceof ServiceError) events.refused(result);
    else {
      link.begin(result);
      events.granted();
      link.admitWaiting();
    }
  }

  join(backend: SharedBackend, now: number): boolean {
    const { gate, events, isOver } = this.#session;
    const request = gate.onlyInput;
    if (isOver || request === undefined) return false;
    const shareable = this.#shareable(request);
    const shared = shareable && backend.pipelineFor(shareable, now, 'short');
    if (shared === undefined || !this.#wait.leave()) return false;
    this.#wait = NO_WAIT;
    this.#enterPipeline(shared);
    events.granted();
    return true;
  }

  /** The shareable request that a chunk from the client contains, if it is one. */
  #shareable(chunk: Buffer): ShareableRequest | undefined {
    const { services, statements, names, pins } = this.#session;
    const { parseCache, registry } = services;
    const { context, settings, customOptions } = pins;
    if (!pins.isShareable || context === undefined || names.mayAllBeGone) return undefined;
    return shareableRequest(chunk, { statements, parseCache, registry, settings, customOptions, context });
  }

  #enterPipeline(shared: SharedPipeline): void {
    const { link, services } = this.#session;
    link.enterPipeline(shared);
    services.observe({ name: 'request.shared' });
  }
}
