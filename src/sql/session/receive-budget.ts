import type { BackendConnection } from '../../backend/connection.ts';
import { ServiceError } from '../../errors.ts';
import type { HeadBudget } from '../../protocol/framing.ts';
import type { MemoryReservation } from '../../runtime/memory-budget.ts';
import { noRoomForResults } from '../result/result-budget.ts';

/** The limit for a row, and for any other message of Postgres. */
const MESSAGE_MAX_BYTES = 32 * 1_048_576;
/** How long a message waits for memory, which readers of other results free. */
const WAIT_MAX_MS = 10_000;

/** Makes reservations in the memory budget for results. */
export interface ResultMemory {
  reservation(): MemoryReservation;
}

/**
 * Controls what is received from a backend. It is paused while the reader is too slow, and while the memory budget does not allow for
 * a large message. The memory for a large message is reserved as a whole: if many messages took memory piece by piece, none might
 * ever be complete.
 */
export class ReceiveBudget implements HeadBudget {
  readonly #backend: BackendConnection;
  readonly #results: ResultMemory;
  #isPaused = false;
  /** The reservation for the large message that is being received. */
  #reservation: MemoryReservation | undefined;
  #stopWaiting: (() => void) | undefined;
  /** The received message is being written. */
  #isHeld = false;
  #isRefused = false;
  #isUseless = false;

  constructor(backend: BackendConnection, results: ResultMemory) {
    this.#backend = backend;
    this.#results = results;
  }

  /** Pauses receiving, because the reader is too slow. */
  pause(): void {
    this.#isPaused = true;
    this.#backend.pause();
  }

  resume(): void {
    this.#isPaused = false;
    this.#resumeIfReady();
  }

  /** Pauses receiving while the last message is being written; it keeps its reservation. */
  hold(): void {
    this.#isHeld = true;
    this.#backend.pause();
  }

  /** Ends {@link hold}: the message has been written. */
  letGo(): void {
    this.#isHeld = false;
    this.release();
    this.#resumeIfReady();
  }

  #resumeIfReady(): void {
    if (!this.#isPaused && !this.#isHeld && this.#stopWaiting === undefined) this.#backend.resume();
  }

  /** Is asked about a message that has arrived in part. @returns false when it must not be held; {@link refusal} has the reason */
  mayGrow(_bytes: number, messageBytes: number): boolean {
    if (this.#reservation !== undefined) return true;
    if (messageBytes > MESSAGE_MAX_BYTES || this.#isRefused || this.#isUseless) return false;
    if (this.#stopWaiting === undefined) this.#reserve(messageBytes, this.#results.reservation());
    // These bytes had been read before the backend was paused.
    else this.#backend.pause();
    return true;
  }

  /** @returns the error for a message of so many bytes that is not held */
  refusal(messageBytes: number): ServiceError {
    if (messageBytes <= MESSAGE_MAX_BYTES) return noRoomForResults(this.#results.reservation().exhaustedBy(messageBytes) ?? 'its own');
    return new ServiceError('response_too_large', `message exceeds the limit of ${MESSAGE_MAX_BYTES} bytes`);
  }

  /** Declares further results useless. They neither wait for memory nor are kept. */
  giveUp(): void {
    this.#isUseless = true;
    if (this.#stopWaiting !== undefined) this.#endWait(true);
  }

  /** Frees the reservation: the message is complete, or no more of it will arrive. */
  release(): void {
    if (this.#stopWaiting !== undefined) this.#endWait(false);
    this.#isRefused = false;
    if (this.#reservation === undefined) return;
    this.#reservation.resize(0);
    this.#reservation = undefined;
  }

  #reserve(bytes: number, reservation: MemoryReservation): void {
    if (reservation.tryResize(bytes) === undefined) {
      this.#reservation = reservation;
      return;
    }
    this.#backend.pause();
    const timer = setTimeout(() => this.#endWait(true), WAIT_MAX_MS);
    const giveUp = reservation.wait(bytes, () => {
      reservation.resize(bytes);
      this.#reservation = reservation;
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
    this.#resumeIfReady();
  }
}
