import type { Buffer } from 'node:buffer';
import type { Duplex } from 'node:stream';
import type { RequestKind } from '../../src/backend/reply-queue-entries.ts';
import type { ServiceError } from '../../src/errors.ts';
import type { Lease } from '../../src/router/leases/lease.ts';
import type { ClientReceiver } from '../login/client-connection.ts';
import type { Pins } from '../pinning/pins.ts';
import type { SessionServices } from '../sessions/session-services.ts';
import { requestDone, requestDropped, simulateReply } from './backend-messages.ts';
import { countInput, mustHoldInput } from './held-input.ts';
import { Reason } from './input-gate.ts';
import {
  answered,
  cancel,
  continueInput,
  handleInput,
  handleReplies,
  NOTHING,
  resumeInput,
  runAgain,
  settle,
} from './request-lifecycle.ts';
import { abandon, clientGone, endAfterMessage, endAtRest, endByError, endByForce, endingOf, endWithoutBackend } from './session-end.ts';
import { type Activity, type RelayEvents, WireSession } from './wire-session.ts';

/**
 * One client's conversation, carried on over whatever backend it has at the moment: what happens to a {@link WireSession},
 * from either side, from the service, and from the steps of a request's life that have to wait.
 */
export class Relay implements RelayEvents, ClientReceiver {
  /** Among those who are watched. */
  index = -1;
  readonly session: WireSession;

  /** @param parameters ParameterStatus values as the client knows them */
  constructor(client: Duplex, services: SessionServices, pins: Pins, parameters: ReadonlyMap<string, string>) {
    this.session = new WireSession(client, services, pins, parameters, this);
  }

  /* The client. */

  clientData(chunk: Buffer): void {
    const { session } = this;
    const { gate, link, services, clientScanner } = session;
    if (session.ending !== undefined && session.ignoresInput) return;
    session.bytesIn += chunk.length;
    services.usage.bytesIn += chunk.length;
    if ((link.shared !== undefined || gate.reasons !== 0) && mustHoldInput(session)) gate.holdNext();
    if (gate.input === undefined) handleInput(session, chunk);
    else {
      gate.hold(chunk);
      // Most clients send nothing more until they are answered: only one that goes on is not read for a while.
      session.client.pause();
    }
    if (gate.input !== undefined || (clientScanner.held?.bytes ?? 0) !== services.bufferBudget.fromClientBytes) countInput(session);
  }

  clientDrained(): void {
    const { session } = this;
    session.services.bufferBudget.toClient(0);
    session.backend?.resume();
    if (session.gate.isClosed(Reason.reader) && !session.isBusy) this.checkInAgain();
  }

  clientEnded(): void {
    endingOf(this.session).halfClosed = true;
    if (!this.session.isBusy) clientGone(this.session);
  }

  clientClosed(): void {
    clientGone(this.session);
  }

  /* The backend. */

  data(chunk: Buffer): void {
    handleReplies(this.session, chunk);
  }

  /** What a backend sends is written to the client at once, and only what the kernel has not taken is needed longer. */
  get holdsChunk(): boolean {
    const { client, toClient, gate } = this.session;
    return client.writableLength > 0 || toClient.bytes > 0 || (gate.reasons !== 0 && gate.isClosed(Reason.replyPart));
  }

  drain(): void {
    const { session } = this;
    if (session.isOver) return;
    if (session.gate.isClosed(Reason.backendBuffer)) continueInput(session);
    else if (session.gate.input === undefined) session.client.resume();
  }

  closed(): void {
    const { session } = this;
    while (session.gate.isClosed(Reason.replyPart) && session.link.lease !== undefined) handleReplies(session, NOTHING);
    session.link.lost();
    endWithoutBackend(session);
  }

  /* The replies that are owed. */

  simulate(request: RequestKind): void {
    simulateReply(this.session, request);
  }

  done(request: RequestKind, subject: unknown): void {
    requestDone(this.session, request, subject);
  }

  dropped(request: RequestKind, subject: unknown, failed: boolean): void {
    requestDropped(this.session, request, subject, failed);
  }

  /* What a step has waited for. */

  granted(): void {
    resumeInput(this.session);
  }

  /** What comes next is answered with that, unless it ends the session. */
  refused(reason: ServiceError): void {
    const { session } = this;
    if (isFinal(reason)) {
      endByError(session, reason);
      return;
    }
    session.refusal = reason;
    resumeInput(session);
  }

  continueInput(): void {
    continueInput(this.session);
  }

  resumeInput(): void {
    resumeInput(this.session);
  }

  checkInAgain(): void {
    settle(this.session);
    continueInput(this.session);
  }

  runElsewhere(isCanceled: boolean): void {
    const { session } = this;
    if (session.isOver) return;
    session.replies.abandon();
    // What was answered for the server, and waited for its answers.
    session.toClient.clear();
    session.services.observe({ name: 'request.requeued' });
    runAgain(session);
    if (isCanceled) void this.cancel();
    continueInput(session);
  }

  tookOver(): void {
    answered(this.session);
    continueInput(this.session);
  }

  /* The service: the watchdog, revoked keys, shutdown, cancel requests. */

  get activity(): Activity {
    return this.session.activity;
  }

  get since(): number {
    return this.session.since;
  }

  get halfClosed(): boolean {
    return this.session.ending?.halfClosed === true;
  }

  /** Bytes that the client has not read yet. */
  get unsent(): number {
    return this.session.client.writableLength;
  }

  /** Bytes that the client has read since its login. */
  get taken(): number {
    return this.session.toClient.written - this.unsent;
  }

  /** The backend at hand, e.g. to be canceled. */
  get lease(): Lease | undefined {
    const { link } = this.session;
    return link.isQueued ? undefined : link.lease;
  }

  /** As the function {@link cancel}. */
  cancel(): Promise<void> {
    return cancel(this.session);
  }

  /** As {@link cancel}, of our own accord: what the client sends meanwhile is not what has taken too long, and waits. */
  stop(): void {
    void this.session.link.holdBackUntil(this.cancel()).then(() => continueInput(this.session));
  }

  /** As {@link endAfterMessage}. */
  end(error: ServiceError): void {
    endAfterMessage(this.session, error);
  }

  /** As {@link endByForce}. */
  terminate(error: ServiceError): void {
    endByForce(this.session, error);
  }

  get isAtRest(): boolean {
    return this.session.isAtRest;
  }

  endAtRest(error: ServiceError): void {
    endAtRest(this.session, error);
  }

  abandon(): void {
    abandon(this.session);
  }
}

/** Errors that end the session rather than the request that met them. */
function isFinal({ kind }: ServiceError): boolean {
  return kind === 'shutting_down' || kind === 'key_revoked' || kind === 'organization_suspended';
}
