import { performance } from 'node:perf_hooks';
import type { Reservation } from '../../src/backend/session-state.ts';

/** So long others wait for a backend on which there are values that its client has not asked for yet. */
const HOLD_MS = 1_000;
/** So many values an organization's sessions are given before it is taken for one that never asks for them. */
const MAX_UNASKED = 1_000;
/** So many backends are held for nothing before none is. */
const MAX_HELD_IN_VAIN = 16;

/** Whether the sessions of an organization call `currval` and `lastval`. */
export class SequenceUse {
  #isAskedFor = false;
  #unasked = 0;
  #heldInVain = MAX_HELD_IN_VAIN;

  moved(): void {
    if (this.#unasked < MAX_UNASKED) this.#unasked += 1;
  }

  /** A session has asked for values that it was given before. */
  asked(): void {
    this.#heldInVain = 0;
  }

  called(): void {
    this.#isAskedFor = true;
  }

  heldInVain(): void {
    if (this.#heldInVain < MAX_HELD_IN_VAIN) this.#heldInVain += 1;
  }

  /** Some session may ask for a value: the first one that does should find its own, too. */
  get mayBeAskedFor(): boolean {
    return this.#isAskedFor || this.#unasked < MAX_UNASKED;
  }

  /** They are asked for as soon as they have been given. */
  get isAskedAtOnce(): boolean {
    return this.#heldInVain < MAX_HELD_IN_VAIN;
  }
}

/**
 * The values that sequences gave to a session, for `currval` and `lastval`. PostgreSQL keeps them in the backend, and there is
 * no way to put them into another: `setval` would move the sequence for all. So others get such a backend, while the session
 * rests, only where they would have to wait, and that of a session that has asked for such values last. Then they are gone.
 */
export class SequenceValues implements Reservation {
  heldUntil = 0;
  readonly use: SequenceUse;
  readonly #pinned: (pinned: boolean) => void;
  /** The client calls `currval` or `lastval`. */
  #asks = false;
  /** There are values on the backend. */
  #hasValues = false;
  #isPinned = false;
  /** A value may be asked for soon, and has not been. */
  #isAwaited = false;
  /** Since when the backend has rested with such a value; on performance.now()'s clock. */
  #restsSince: number | undefined;
  /** The client has let the time pass in which its last one was held. */
  #isLate = false;

  /** @param pinned hears whether the session needs its backend: its client is known to ask for what is there */
  constructor(use: SequenceUse, pinned: (pinned: boolean) => void) {
    this.use = use;
    this.#pinned = pinned;
  }

  /** The session is to have its backend for itself, also for what others could run there. */
  get isKept(): boolean {
    return this.#isPinned || this.#isAwaited;
  }

  /** The session is to have the same backend again, if that can be had. */
  get isReserved(): boolean {
    return this.isKept || (this.#hasValues && this.use.mayBeAskedFor);
  }

  get isLasting(): boolean {
    return this.#isPinned;
  }

  /** A statement calls `currval` or `lastval`. */
  called(): void {
    this.use.called();
    this.#asks = true;
    this.#isLate = false;
    this.#isAwaited = false;
    this.#restsSince = undefined;
    if (!this.#hasValues) return;
    this.use.asked();
    this.#pin(true);
  }

  /** @param isHidden the client has not been told the value */
  moved(isHidden: boolean): void {
    this.use.moved();
    this.#hasValues = true;
    if (this.#asks) this.#pin(true);
    if ((this.#asks || isHidden) && !this.#isLate && this.use.isAskedAtOnce) this.#isAwaited = true;
  }

  /** The backend comes to rest. @returns what it is to be reserved for, if it is */
  rest(): Reservation | undefined {
    if (!this.isReserved) return undefined;
    this.heldUntil = 0;
    if (!this.#isAwaited) return this;
    const now = performance.now();
    this.#restsSince ??= now;
    this.heldUntil = this.#restsSince + HOLD_MS;
    if (now >= this.heldUntil) this.#notAskedFor();
    return this;
  }

  #notAskedFor(): void {
    this.#isAwaited = false;
    this.#restsSince = undefined;
    this.#isLate = true;
    this.use.heldInVain();
  }

  lost(): void {
    if (this.#isAwaited) this.#notAskedFor();
    this.#hasValues = false;
    this.#pin(false);
  }

  #pin(pinned: boolean): void {
    if (this.#isPinned === pinned) return;
    this.#isPinned = pinned;
    this.#pinned(pinned);
  }
}
