import type { Pace } from '../src/backend/pace.ts';
import { queryText } from './errand.ts';
import type { Relay } from './relay.ts';
import type { Company } from './sharing.ts';

type Session = Pick<Relay, 'requests' | 'replies' | 'toClient' | 'host'>;

/** What a client has asked, as long as that is one whole request that has come alone, and how long it takes. */
export class InFlight {
  readonly #session: Session;
  #bytes: Buffer | undefined;
  /** How often something had been written to the client before. */
  #writes = 0;
  #bytesOut = 0;
  /** When it was sent, or when its turn began; on performance.now()'s clock. */
  #since = 0;
  /** The backend was at work for others first. */
  #wasBehind = false;
  /** Not looked for yet: undefined. */
  #pace: Pace | null | undefined;

  constructor(session: Session) {
    this.#session = session;
  }

  begin(request: Buffer): void {
    const { replies, toClient } = this.#session;
    this.#bytes = request;
    this.#writes = toClient.writes;
    this.#bytesOut = replies.bytesOut;
    this.#since = replies.since;
    this.#wasBehind = false;
    this.#pace = undefined;
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
  turnBegins(now: number): void {
    this.#since = now;
    this.#wasBehind = true;
  }

  /** Since when it has been running, if others may follow it in such company. */
  errandSince(company: Company): number | undefined {
    return this.isUntold && this.#session.replies.queue.isErrand && suits(this.#paceOf(), company) ? this.#since : undefined;
  }

  /** @param again it has held up others, and is going to be run again */
  answered(again: boolean): void {
    const { replies, host } = this.#session;
    const { since, bytesOut } = replies;
    if (this.#bytes === undefined || !host.sharing.isCrowded(since)) return;
    const pace = this.#paceOf();
    if (again) {
      pace?.wasLong();
      return;
    }
    const durationMs = since - this.#since;
    pace?.ran(durationMs, bytesOut - this.#bytesOut, host.sharing.paces.tempo);
    if (!this.#wasBehind) pace?.ranAlone(durationMs);
  }

  /** How long it takes as a rule, if it is an errand. */
  #paceOf(): Pace | undefined {
    this.#pace ??= this.#findPace() ?? null;
    return this.#pace ?? undefined;
  }

  #findPace(): Pace | undefined {
    const { requests, host } = this.#session;
    const { bound, isPlain } = requests;
    const { paces } = host.sharing;
    if (this.#bytes === undefined || !isPlain) return undefined;
    return bound === undefined ? paces.ofText(queryText(this.#bytes)) : paces.ofStatement(bound);
  }
}

/** Whether what takes so long may be among others of a kind. */
export function suits(pace: Pace | undefined, company: Company): boolean {
  return (company === 'quick' ? pace?.isQuick : pace?.isShort) === true;
}
