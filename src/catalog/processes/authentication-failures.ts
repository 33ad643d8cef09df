import type { Observe } from '../../observation.ts';
import { BoundedMap } from '../../runtime/bounded-map.ts';
import type { ControlPool } from '../database/control-pool.ts';
import { notifyOthers } from './notify-others.ts';

/** The channel on which processes tell each other of logins and requests without a valid key. */
export const FAILURES_CHANNEL = 'postern_failures';

/** `login`: of an address and organization, by their digest. `refusal`: of an address. */
export type FailureKind = 'login' | 'refusal';

/** Called for failures in other processes. */
export type FailureListener = (key: string, count: number) => void;

const SEND_EVERY_MS = 250;
/** A notification may have 8,000 bytes; a failure takes up to 64 of them. */
const KEYS_PER_NOTIFICATION = 100;
/** Anybody may cause failures: of more keys than these, those that failed longest ago are counted only where they happened. */
const WAITING_MAX = 1_000;

/**
 * Tells the other processes that share a control database of failures, so that limits on them count for all processes together. They
 * are told four times a second, with a number for each key.
 */
export class AuthenticationFailures {
  readonly #own: number;
  readonly #database: ControlPool;
  readonly #observe: Observe;
  readonly #waiting: Record<FailureKind, BoundedMap<string, number>> = {
    login: new BoundedMap({ maxEntries: WAITING_MAX }),
    refusal: new BoundedMap({ maxEntries: WAITING_MAX }),
  };
  readonly #listeners: Partial<Record<FailureKind, FailureListener>> = {};
  #timer: NodeJS.Timeout | undefined;

  /** @param own this process's number */
  constructor(own: number, database: ControlPool, observe: Observe) {
    this.#own = own;
    this.#database = database;
    this.#observe = observe;
  }

  listen(kind: FailureKind, listener: FailureListener): void {
    this.#listeners[kind] = listener;
  }

  /** @param key at most 50 characters of ASCII */
  happened(kind: FailureKind, key: string): void {
    const waiting = this.#waiting[kind];
    waiting.set(key, (waiting.get(key) ?? 0) + 1);
    this.#schedule();
  }

  #schedule(): void {
    this.#timer ??= setTimeout(() => void this.#send(), SEND_EVERY_MS).unref();
  }

  notified(payload: string): void {
    const notice = parseNotice(payload);
    if (notice === undefined || notice.from === this.#own) return;
    for (const [key, count] of notice.failures) this.#listeners[notice.kind]?.(key, count);
  }

  close(): void {
    clearTimeout(this.#timer);
  }

  async #send(): Promise<void> {
    try {
      for (const kind of ['login', 'refusal'] as const) {
        for (let failures = this.#take(kind); failures.length > 0; failures = this.#take(kind)) {
          const payload = JSON.stringify({ from: this.#own, kind, failures } satisfies Notice);
          await notifyOthers(this.#database, this.#own, FAILURES_CHANNEL, payload);
        }
      }
    } catch (cause) {
      this.#observe({ name: 'service.warning', message: 'other processes could not be told of failed logins', cause });
    } finally {
      this.#timer = undefined;
      if (Object.values(this.#waiting).some(({ size }) => size > 0)) this.#schedule();
    }
  }

  #take(kind: FailureKind): (readonly [key: string, count: number])[] {
    const waiting = this.#waiting[kind];
    const failures = [...waiting.entries()].slice(0, KEYS_PER_NOTIFICATION);
    for (const [key] of failures) waiting.delete(key);
    return failures;
  }
}

interface Notice {
  readonly from: number;
  readonly kind: FailureKind;
  readonly failures: readonly (readonly [key: string, count: number])[];
}

/** @returns undefined for a payload of another version */
function parseNotice(payload: string): Notice | undefined {
  try {
    const notice: Partial<Notice> = JSON.parse(payload);
    const isKnown = (notice.kind === 'login' || notice.kind === 'refusal') && Array.isArray(notice.failures);
    return isKnown ? (notice as Notice) : undefined;
  } catch {
    return undefined;
  }
}
