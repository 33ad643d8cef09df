import { performance } from 'node:perf_hooks';
import type { Reservation } from '../../src/backend/session-state.ts';

/** For this long, other sessions wait for a backend with values that its client has not asked for yet. */
const HOLD_MS = 1_000;
/** After this many values without a `currval` or `lastval`, the organization is assumed never to call these. */
const MAX_UNASKED = 1_000;
/** After this many backends were held in vain, none is held any more. */
const MAX_HELD_IN_VAIN = 16;

/** Whether the sessions of an organization call `currval` and `lastval`. */
export class SequenceUse {
  #isAskedFor = false;
  #unasked = 0;
  #heldInVain = MAX_HELD_IN_VAIN;

  moved(): void {
    if (this.#unasked < MAX_UNASKED) this.#unasked += 1;
  }

  /** A session has asked for a value that it was given in an earlier transaction. */
  asked(): void {
    this.#heldInVain = 0;
  }

  called(): void {
    this.#isAskedFor = true;
  }

  heldInVain(): void {
    if (this.#heldInVain < MAX_HELD_IN_VAIN) this.#heldInVain += 1;
  }

  /** Some session may ask for a value. Even the first one that does should find its own. */
  get mayBeAskedFor(): boolean {
    return this.#isAskedFor || this.#unasked < MAX_UNASKED;
  }

  /** Clients ask for values soon after these were given. */
  get isAskedAtOnce(): boolean {
    return this.#heldInVain < MAX_HELD_IN_VAIN;
  }
}

/**
 * The values that sequences gave to a session, for `currval` and `lastval`. PostgreSQL keeps them in the backend, and they
 * cannot be moved to another one, because `setval` would change the sequence for all. So other sessions get such a backend only
 * when no other is free, and that of a session that has asked for such values last of all. The values are then lost.
 */
export class SequenceValues implements Reservation {
  heldUntil = 0;
  readonly #use: SequenceUse;
  readonly #pinned: (pinned: boolean) => void;
  /** The client calls `currval` or `lastval`. */
  #asks = false;
  /** The backend has values of this session. */
  #hasValues = false;
  #isPinned = false;
  /** The client is expected to ask for a value soon. */
  #isAwaited = false;
  /** When the backend became idle with such a value; on performance.now()'s clock. */
  #restsSince: number | undefined;
  /** The client did not ask for its last value while the backend was held. */
  #isLate = false;

  /** @param pinned is told whether the session needs its backend because its client asks for values */
  constructor(use: SequenceUse, pinned: (pinned: boolean) => void) {
    this.#use = use;
    this.#pinned = pinned;
  }

  /** The session must not share its backend with others. */
  get isKept(): boolean {
    return this.#isPinned || this.#isAwaited;
  }

  /** The session should get the same backend again, if possible. */
  get isReserved(): boolean {
    return this.isKept || (this.#hasValues && this.#use.mayBeAskedFor);
  }

  get isLasting(): boolean {
    return this.#isPinned;
  }

  /** A statement calls `currval` or `lastval`. */
  called(): void {
    this.#use.called();
    this.#asks = true;
    this.#isLate = false;
    this.#isAwaited = false;
    this.#restsSince = undefined;
    if (!this.#hasValues) return;
    this.#use.asked();
    this.#pin(true);
  }

  /** @param isHidden the client has not been told the value */
  moved(isHidden: boolean): void {
    this.#use.moved();
    this.#hasValues = true;
    if (this.#asks) this.#pin(true);
    if ((this.#asks || isHidden) && !this.#isLate && this.#use.isAskedAtOnce) this.#isAwaited = true;
  }

  /** The backend becomes idle. @returns its reservation, if it is reserved */
  rest(): Reservation | undefined {
    if (!this.isReserved) return undefined;
    this.heldUntil = 0;
    if (!this.#isAwaited) return this;
    const now = performance.now();
    this.#restsSince ??= now;
    this.heldUntil = this.#restsSince + HOLD_MS;
    if (now >= this.heldUntil) this.#holdExpired();
    return this;
  }

  #holdExpired(): void {
    this.#isAwaited = false;
    this.#restsSince = undefined;
    this.#isLate = true;
    this.#use.heldInVain();
  }

  lost(): void {
    if (this.#isAwaited) this.#holdExpired();
    this.#hasValues = false;
    this.#pin(false);
  }

  #pin(pinned: boolean): void {
    if (this.#isPinned === pinned) return;
    this.#isPinned = pinned;
    this.#pinned(pinned);
  }
}
