import type { ServerStatement } from '../../src/backend/prepared-statements.ts';
import type { ReplyQueue } from '../../src/backend/reply-queue.ts';
import type { StatementLatency } from '../../src/backend/short-statements.ts';
import { type ShareMode, suits } from '../../src/multiplex/multiplexer.ts';
import type { WriteBuffer } from '../relay/write-buffer.ts';
import type { SessionServices } from '../sessions/session-services.ts';
import { hasNoTraits, queryText } from './shareable-request.ts';

/** What timing a request needs of its session. */
interface TimedSession {
  readonly services: SessionServices;
  readonly replies: ReplyQueue;
  readonly toClient: WriteBuffer;
  readonly since: number;
  readonly bytesOut: number;
  readonly isPlain: boolean;
  readonly usesUnnamed: boolean;
  readonly bound: ServerStatement | undefined;
}

/** What a client has asked, as long as that is one whole request that has come alone, and how long it takes. */
export class RequestInFlight {
  readonly #session: TimedSession;
  #bytes: Buffer | undefined;
  /** How often something had been written to the client before. */
  #writes = 0;
  #bytesOut = 0;
  /** When it was sent, or when its turn began; on performance.now()'s clock. */
  #since = 0;
  /** The backend was at work for others first. */
  #wasBehind = false;
  /** Not looked for yet: undefined. */
  #latency: StatementLatency | null | undefined;

  constructor(session: TimedSession) {
    this.#session = session;
  }

  begin(request: Buffer): void {
    const { toClient, bytesOut, since } = this.#session;
    this.#bytes = request;
    this.#writes = toClient.writes;
    this.#bytesOut = bytesOut;
    this.#since = since;
    this.#wasBehind = false;
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
    return this.#bytes !== undefined && this.#writes === this.#session.toClient.writes;
  }

  /** Sent ahead, behind others', it is being run now. */
  slotStarted(now: number): void {
    this.#since = now;
    this.#wasBehind = true;
  }

  /** Since when it has been running, if others may follow it in this mode. */
  shareableSince(mode: ShareMode): number | undefined {
    return this.isUntold && this.#session.replies.isShareable && suits(this.#latencyOf(), mode) ? this.#since : undefined;
  }

  /** @param again it has held up others, and is going to be run again */
  answered(again: boolean): void {
    const { services, since, bytesOut } = this.#session;
    if (this.#bytes === undefined || !services.multiplexer.isContended(since)) return;
    const latency = this.#latencyOf();
    if (again) {
      latency?.wasLong();
      return;
    }
    const durationMs = since - this.#since;
    latency?.ran(durationMs, bytesOut - this.#bytesOut, services.registry.baseline);
    if (!this.#wasBehind) latency?.ranAlone(durationMs);
  }

  /** How long it takes as a rule, if it is shareable. */
  #latencyOf(): StatementLatency | undefined {
    this.#latency ??= this.#findLatency() ?? null;
    return this.#latency ?? undefined;
  }

  #findLatency(): StatementLatency | undefined {
    const { services, bound, isPlain, usesUnnamed } = this.#session;
    const { registry } = services;
    if (this.#bytes === undefined || !isPlain || usesUnnamed) return undefined;
    return bound === undefined ? registry.latencyOfQuery(queryText(this.#bytes), hasNoTraits) : registry.latencyOf(bound);
  }
}
