import type { ReplyQueue } from '../../src/backend/reply-queue.ts';
import type { ServerStatement, StatementLatency } from '../../src/backend/session-state.ts';
import { type ShareMode, suits } from '../../src/multiplex/multiplexer.ts';
import { queryText } from '../../src/protocol/frontend.ts';
import type { WriteBuffer } from '../relay/write-buffer.ts';
import type { SessionServices } from '../sessions/session-services.ts';
import { hasNoTraits } from './shareable-request.ts';

/** What timing a request needs of its session. */
interface TimedSession {
  readonly services: SessionServices;
  readonly replies: ReplyQueue;
  readonly toClient: WriteBuffer;
  readonly since: number;
  readonly timed: ServerStatement | 'text' | 'none';
}

/** The request that a client waits for, and how long it takes. Only a single request is kept, and only if it has arrived completely. */
export class RequestInFlight {
  readonly #session: TimedSession;
  #bytes: Buffer | undefined;
  /** The number of bytes that had been written to the client before. */
  #writtenBefore = 0;
  /** When the last request ahead of it in a shared pipeline was answered, on performance.now()'s clock; 0: none was ahead. */
  #behindUntil = 0;
  /** Undefined until it has been looked up; null: the request has none. */
  #latency: StatementLatency | null | undefined;
  /** The request whose latency is known although it has not begun. */
  #expected: Buffer | undefined;

  constructor(session: TimedSession) {
    this.#session = session;
  }

  /** Keeps the latency that has been found at checkout, so that it need not be looked for when the request has been answered. */
  expect(request: Buffer, latency: StatementLatency | undefined): void {
    this.#expected = request;
    this.#latency = latency;
  }

  begin(request: Buffer): void {
    this.#bytes = request;
    this.#writtenBefore = this.#session.toClient.written;
    this.#behindUntil = 0;
    if (this.#expected !== request || this.#session.timed === 'none') this.#latency = undefined;
    this.#expected = undefined;
  }

  end(): void {
    this.#bytes = undefined;
    this.#expected = undefined;
  }

  /** The request; undefined where there is none, or more than one. */
  get bytes(): Buffer | undefined {
    return this.#bytes;
  }

  /** When the last request ahead of it in a shared pipeline was answered, or one ahead of an earlier request; 0: none was ahead. */
  get behindUntil(): number {
    return this.#behindUntil;
  }

  /** No byte of the reply has been sent to the client, so the request can be run again. */
  get isUnanswered(): boolean {
    return this.#bytes !== undefined && this.#writtenBefore === this.#session.toClient.written;
  }

  /** All requests ahead of it in the shared pipeline have been answered, so the backend runs it now. */
  slotStarted(now: number): void {
    this.#behindUntil = now;
  }

  /** @returns when it began to run, if other clients' requests may enter the pipeline behind it in this mode */
  shareableSince(mode: ShareMode): number | undefined {
    const isShareable = this.isUnanswered && this.#session.replies.isShareable && suits(this.#latencyOf(), mode);
    return isShareable ? Math.max(this.#session.since, this.#behindUntil) : undefined;
  }

  /**
   * @param askedAt when it was sent
   * @param again it has delayed others and will be run again
   */
  answered(askedAt: number, again: boolean): void {
    const { since, services } = this.#session;
    if (this.#bytes !== undefined && since < services.multiplexer.contendedUntil) this.#noteLatency(askedAt, again);
    if (!again) this.#bytes = undefined;
  }

  #noteLatency(askedAt: number, again: boolean): void {
    const { services, since, toClient } = this.#session;
    const latency = this.#latencyOf();
    if (again) {
      latency?.wasLong();
      return;
    }
    const durationMs = since - Math.max(askedAt, this.#behindUntil);
    latency?.ran(durationMs, toClient.written + toClient.bytes - this.#writtenBefore, services.registry.baseline);
    if (this.#behindUntil === 0) latency?.ranAlone(durationMs);
  }

  /** How long it takes as a rule, if it is shareable. */
  #latencyOf(): StatementLatency | undefined {
    this.#latency ??= this.#findLatency() ?? null;
    return this.#latency ?? undefined;
  }

  #findLatency(): StatementLatency | undefined {
    const { services, timed } = this.#session;
    const { registry } = services;
    if (this.#bytes === undefined || timed === 'none') return undefined;
    return timed === 'text' ? registry.latencyOfQuery(queryText(this.#bytes), hasNoTraits) : registry.latencyOf(timed);
  }
}
