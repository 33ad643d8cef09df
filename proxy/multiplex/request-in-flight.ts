import type { ReplyQueue } from '../../src/backend/reply-queue.ts';
import type { ServerStatement } from '../../src/backend/server-statement.ts';
import type { StatementLatency } from '../../src/backend/statement-latency.ts';
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

/** What a client has asked, as long as that is one whole request that has come alone, and how long it takes. */
export class RequestInFlight {
  readonly #session: TimedSession;
  #bytes: Buffer | undefined;
  /** The number of bytes that had been written to the client before. */
  #writtenBefore = 0;
  /** When the requests ahead of it in the backend's pipeline had been answered, on performance.now()'s clock; 0: there were none. */
  #behindUntil = 0;
  /** Not looked for yet: undefined. */
  #latency: StatementLatency | null | undefined;

  constructor(session: TimedSession) {
    this.#session = session;
  }

  begin(request: Buffer): void {
    this.#bytes = request;
    this.#writtenBefore = this.#session.toClient.written;
    this.#behindUntil = 0;
    this.#latency = undefined;
  }

  end(): void {
    this.#bytes = undefined;
  }

  /** The request; undefined where there is none, or more than one. */
  get bytes(): Buffer | undefined {
    return this.#bytes;
  }

  /** Nothing of the answer has gone out: it can be run again. */
  get isUntold(): boolean {
    return this.#bytes !== undefined && this.#writtenBefore === this.#session.toClient.written;
  }

  /** Sent ahead, behind others', it is being run now. */
  slotStarted(now: number): void {
    this.#behindUntil = now;
  }

  /** Since when it has been running, if others may follow it in this mode. */
  shareableSince(mode: ShareMode): number | undefined {
    const isShareable = this.isUntold && this.#session.replies.isShareable && suits(this.#latencyOf(), mode);
    return isShareable ? Math.max(this.#session.since, this.#behindUntil) : undefined;
  }

  /**
   * @param askedAt when it was sent
   * @param again it has held up others, and is going to be run again
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
