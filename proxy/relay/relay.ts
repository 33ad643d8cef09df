import type { Buffer } from 'node:buffer';
import type { Duplex } from 'node:stream';
import { Request, type RequestKind } from '../../src/backend/reply-queue.ts';
import type { ServiceError } from '../../src/errors.ts';
import { CLOSE_COMPLETE, PARSE_COMPLETE } from '../../src/protocol/backend.ts';
import type { Lease } from '../../src/router/lease.ts';
import { isOwn } from '../checkout/backend-link.ts';
import type { ClientReceiver } from '../client-connection.ts';
import type { RequestEnd } from '../inspection/request-end.ts';
import type { Pins } from '../pinning/pins.ts';
import type { StateProbe } from '../pinning/state-probe.ts';
import { DescribeReply } from '../prepared/describe-reply-reader.ts';
import type { Effect } from '../prepared/pending-changes.ts';
import type { SessionServices } from '../sessions/session-services.ts';
import { Reason } from './input-gate.ts';
import { countInput, mustHoldInput } from './input-hold-rules.ts';
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
 * Receives what happens to one {@link WireSession}: input of the client, replies of its present backend, calls of the service, and
 * the end of whatever a step of a request has waited for. It calls the step that comes next.
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
      // Most clients send nothing more until they are answered. One that does is not read for a while.
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

  /** Replies are written to the client at once. The chunk is needed longer if the kernel has not taken all, or a part is not handled yet. */
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
    const { attempt, toClient } = this.session;
    if (attempt !== 'discarded') toClient.insert(request === Request.parse ? PARSE_COMPLETE : CLOSE_COMPLETE);
  }

  done(request: RequestKind, subject: unknown): void {
    const { session } = this;
    const isOurs = subject !== undefined && isOwn(subject);
    if (request === Request.query && !isOurs) unnamedDestroyed(session);
    if (subject === undefined) return;
    if (hasEffect(request)) {
      if (session.effects !== undefined) session.effects.allDeallocated = false;
      const effect = subject as Effect;
      effect.done?.();
      if (effect.statement !== undefined) effect.statement.proven = true;
    } else if (!isOurs) {
      const { batch } = subject as RequestEnd;
      if (batch !== undefined) session.audit?.done(batch);
    } else if (subject.own === 'probe') probed(session, subject.probe);
    else if (subject.own === 'shape') subject.done();
  }

  dropped(request: RequestKind, subject: unknown, failed: boolean): void {
    const { effects, statements } = this.session;
    if (subject instanceof DescribeReply) subject.dropped();
    else if (subject !== undefined && hasEffect(request)) {
      if (effects !== undefined) effects.allDeallocated = false;
      (subject as Effect).undo(failed);
    } else if (request === Request.query) statements.unnamedUndone(undefined, false);
  }

  /* What a step has waited for. */

  granted(): void {
    resumeInput(this.session);
  }

  /** The client's next request is answered with this error, unless the error ends the session. */
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
    // These are replies that Postern has made. They waited for replies of the server, which will not come.
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

  /** As {@link cancel}, but the service cancels: what the client sends meanwhile waits, so that the cancel request does not hit it. */
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

/** Errors that end the session, and not only the request. */
function isFinal({ kind }: ServiceError): boolean {
  return kind === 'shutting_down' || kind === 'key_revoked' || kind === 'organization_suspended';
}

/** Requests that change the client's statements or portals. */
function hasEffect(request: RequestKind): boolean {
  return request === Request.parse || request === Request.bind || request === Request.close;
}

/** A Query has destroyed the unnamed statement. */
function unnamedDestroyed({ statements }: WireSession): void {
  if (statements.unnamed !== undefined || statements.settledUnnamed !== undefined) statements.unnamedSettled(undefined);
}

function probed({ pins, backend }: WireSession, probe: StateProbe): void {
  const facts = probe.facts();
  pins.probed(facts);
  backend?.session.settingsMade(facts.settings);
}
