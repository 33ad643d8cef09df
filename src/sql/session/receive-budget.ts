import type { BackendConnection } from '../../backend/connection.ts';
import { ServiceError } from '../../errors.ts';
import type { HeadBudget } from '../../protocol/frame.ts';
import type { MemoryReservation } from '../../runtime/memory-budget.ts';
import { noRoomForResults } from '../result/result-budget.ts';

/** Rows, and whatever else Postgres may send as one message. */
const MESSAGE_MAX_BYTES = 32 * 1_048_576;
/** How long a message waits for room: results go as fast as their readers take them. */
const WAIT_MAX_MS = 10_000;

/** Gives a new part of the room for results. */
export interface ResultMemory {
  share(): MemoryReservation;
}

/**
 * What comes from a backend: nothing, while a reader is behind, or while there is no room for a large message. Of one that
 * has come in part there is room for all, or it waits: of many that grow together none would come to its end.
 */
export class ReceiveBudget implements HeadBudget {
  readonly #backend: BackendConnection;
  readonly #results: ResultMemory;
  #isPaused = false;
  /** What the message that comes in part has of the room. */
  #share: MemoryReservation | undefined;
  #stopWaiting: (() => void) | undefined;
  /** What has come is being written. */
  #isHeld = false;
  #isRefused = false;
  #isUseless = false;

  constructor(backend: BackendConnection, results: ResultMemory) {
    this.#backend = backend;
    this.#results = results;
  }

  /** Lets nothing more come: its reader is behind. */
  pause(): void {
    this.#isPaused = true;
    this.#backend.pause();
  }

  resume(): void {
    this.#isPaused = false;
    this.#goOn();
  }

  /** Lets nothing more come: the last message is being written, and keeps its room. */
  hold(): void {
    this.#isHeld = true;
    this.#backend.pause();
  }

  /** It is written. */
  letGo(): void {
    this.#isHeld = false;
    this.release();
    this.#goOn();
  }

  #goOn(): void {
    if (!this.#isPaused && !this.#isHeld && this.#stopWaiting === undefined) this.#backend.resume();
  }

  /** Asked of a message that has come in part. @returns false when it is not to be held; {@link refusal} tells why */
  mayGrow(_bytes: number, messageBytes: number): boolean {
    if (this.#share !== undefined) return true;
    if (messageBytes > MESSAGE_MAX_BYTES || this.#isRefused || this.#isUseless) return false;
    if (this.#stopWaiting === undefined) this.#reserve(messageBytes, this.#results.share());
    // What had been read by then.
    else this.#backend.pause();
    return true;
  }

  /** Why a message of so many bytes is not held. */
  refusal(messageBytes: number): ServiceError {
    if (messageBytes <= MESSAGE_MAX_BYTES) return noRoomForResults(this.#results.share().exhaustedBy(messageBytes) ?? 'its own');
    return new ServiceError('response_too_large', `message exceeds the limit of ${MESSAGE_MAX_BYTES} bytes`);
  }

  /** What comes from now on is of no use: nothing of it waits or is kept. */
  giveUp(): void {
    this.#isUseless = true;
    if (this.#stopWaiting !== undefined) this.#endWait(true);
  }

  /** The message is whole, or there will be no more of it. */
  release(): void {
    if (this.#stopWaiting !== undefined) this.#endWait(false);
    this.#isRefused = false;
    if (this.#share === undefined) return;
    this.#share.resize(0);
    this.#share = undefined;
  }

  #reserve(bytes: number, share: MemoryReservation): void {
    if (share.tryResize(bytes) === undefined) {
      this.#share = share;
      return;
    }
    this.#backend.pause();
    const timer = setTimeout(() => this.#endWait(true), WAIT_MAX_MS);
    const giveUp = share.wait(bytes, () => {
      share.resize(bytes);
      this.#share = share;
      this.#endWait(false);
    });
    this.#stopWaiting = () => {
      clearTimeout(timer);
      giveUp();
    };
  }

  #endWait(isRefused: boolean): void {
    this.#stopWaiting?.();
    this.#stopWaiting = undefined;
    this.#isRefused = isRefused;
    this.#goOn();
  }
}
