import type { BackendConnection } from '../../src/backend/connection.ts';
import { Request, type RequestKind } from '../../src/backend/pending-replies.ts';
import type { ReplyQueue } from '../../src/backend/reply-queue.ts';
import { SCHEMA_CHANGE } from '../../src/multiplex/statement-registry.ts';
import type { TransactionStatus } from '../../src/protocol/backend.ts';
import type { ClientStatements } from '../prepared/client-statements.ts';
import type { Effect } from '../prepared/effects.ts';
import type { SessionServices } from '../sessions/session-services.ts';
import type { Pins } from './pins.ts';
import type { RequestEnd } from './query-inspection.ts';

/** What the effects of commands need of the session. */
interface AffectedSession {
  readonly services: SessionServices;
  readonly pins: Pins;
  /** To the backend at hand. */
  readonly link: { readonly backend: BackendConnection | undefined };
}

/** So many are a few milliseconds' work. */
const RENOTED_MAX = 20_000;

/** Requests that give and take names of statements. */
const NAMING: ReadonlySet<RequestKind> = new Set([Request.parse, Request.close]);

/** What a client's statements leave in its session once they have run. Command tags tell what text cannot: that they really have. */
export class CommandEffects {
  readonly #session: AffectedSession;
  readonly #queue: ReplyQueue;
  readonly #statements: ClientStatements;
  #schemaChanged = false;
  /** How many requests have been gone through to note them again, since {@link beginPortion}. */
  #renoted = 0;
  /** All named statements have been taken away, and nothing of what was asked since has been answered with a new one. */
  #allGone = false;

  /** @param queue of the requests that are being answered */
  constructor(session: AffectedSession, queue: ReplyQueue, statements: ClientStatements) {
    this.#session = session;
    this.#queue = queue;
    this.#statements = statements;
  }

  beginPortion(): void {
    this.#renoted = 0;
  }

  /** It has been much work: others are to get a turn before it goes on. */
  get isPortionDone(): boolean {
    return this.#renoted > RENOTED_MAX;
  }

  /** @param request that it belongs to, where something is to be known of that */
  completed(tag: string, request: RequestEnd | undefined): void {
    const batch = request?.batch;
    batch?.completed(tag);
    const deallocated = tag === 'DEALLOCATE' ? request?.deallocations.shift() : undefined;
    if (deallocated !== undefined) this.#deallocated(deallocated);
    // CREATE TABLE AS is told of as the SELECT in it.
    if (SCHEMA_CHANGE.test(tag) || batch?.isWatched === true) this.#schemaChanged = true;
    if (tag === 'DEALLOCATE ALL' || tag === 'DISCARD ALL') this.#allDeallocated();
    if (tag === 'DISCARD ALL') this.#session.pins.discarded();
  }

  /** What a request does to the client's names has been answered. */
  noted(): void {
    this.#allGone = false;
  }

  ready(status: TransactionStatus): void {
    if (this.#queue.length === 0) this.#allGone = false;
    if (!this.#schemaChanged) return;
    this.#schemaChanged = status !== 'I';
    this.#session.services.registry.invalidate();
  }

  /** Many of these may come, one behind the other, with much behind them. */
  #allDeallocated(): void {
    if (this.#allGone) return;
    this.#statements.clear();
    this.#session.link.backend?.session.prepared.clear();
    this.#renote();
    this.#allGone = this.#queue.length > 0;
  }

  /** The name may now be given to another statement, in SQL, which is not ours to close. */
  #deallocated(name: string): void {
    this.#statements.delete(name);
    this.#renote();
    this.#session.link.backend?.session.staleNames.delete(name);
  }

  /** What the client has asked behind what is being answered was noted when it was sent, and stands. */
  #renote(): void {
    this.#renoted += this.#queue.length;
    for (const subject of this.#queue.subjectsOf(NAMING)) (subject as Effect | undefined)?.redo?.();
  }
}
