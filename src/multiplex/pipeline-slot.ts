import type { BackendReceiver } from '../backend/connection.ts';

/** The place of one request in a {@link SharedPipeline}. */
export interface Slot {
  /** Receives what the backend sends while this slot is the first. */
  readonly receiver: BackendReceiver;
  /** Whether it could be canceled now, and its request run again, unnoticed. */
  readonly canRunAgain: boolean;
  /** Called when it becomes the first: the backend runs its request now. @param now on performance.now()'s clock */
  slotStarted(now: number): void;
  /** Called when it has been the first for too long. No other's request is behind it any more. */
  stalled(): void;
  /** Has the request run elsewhere, before any of its reply has come. @returns false where it cannot, or has to stay */
  requeue(): boolean;
  /** Called when it has changed the session's state and keeps it: the backend is its own, without a pipeline. */
  takeOver(): void;
}
