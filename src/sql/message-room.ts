import { ServiceError } from '../errors.ts';
import type { Share } from '../room.ts';
import { noRoomForResults } from './result-share.ts';

/** Rows, and whatever else Postgres may send as one message. */
const MESSAGE_MAX_BYTES = 32 * 1_048_576;
/** How long a message waits for room: results go as fast as their readers take them. */
const WAIT_MAX_MS = 10_000;

/** Gives a new part of the room for results. */
export interface RoomForResults {
  share(): Share;
}

/** Where messages come from. */
export interface Flow {
  /** Nothing more is to come. */
  awaitRoom(): void;
  roomFound(): void;
}

/**
 * Room for what has come of a message that is not whole. It gets room for all of it, or waits until there is: of many that
 * grow together none would come to its end.
 */
export class MessageRoom {
  readonly #results: RoomForResults;
  readonly #flow: Flow;
  #share: Share | undefined;
  #stopWaiting: (() => void) | undefined;
  #isRefused = false;

  constructor(results: RoomForResults, flow: Flow) {
    this.#results = results;
    this.#flow = flow;
  }

  /** @returns false when the message is not to be held; {@link refusal} tells why */
  mayGrow(messageBytes: number): boolean {
    if (this.#share !== undefined) return true;
    if (messageBytes > MESSAGE_MAX_BYTES || this.#isRefused) return false;
    if (this.#stopWaiting === undefined) this.#reserve(messageBytes, this.#results.share());
    // What has been read by then.
    else this.#flow.awaitRoom();
    return true;
  }

  /** It is of no use any more, and need not wait. */
  giveUp(): void {
    if (this.#stopWaiting !== undefined) this.#endWait(true);
  }

  /** The message is whole, or there will be no more of it. */
  release(): void {
    if (this.#stopWaiting !== undefined) this.#endWait(false);
    this.#isRefused = false;
    this.#share?.are(0);
    this.#share = undefined;
  }

  #reserve(bytes: number, share: Share): void {
    if (share.fullFor(bytes) === undefined) {
      this.#take(bytes, share);
      return;
    }
    this.#flow.awaitRoom();
    const timer = setTimeout(() => this.#endWait(true), WAIT_MAX_MS);
    const giveUp = share.wait(bytes, () => {
      this.#take(bytes, share);
      this.#endWait(false);
    });
    this.#stopWaiting = () => {
      clearTimeout(timer);
      giveUp();
    };
  }

  #take(bytes: number, share: Share): void {
    share.are(bytes);
    this.#share = share;
  }

  #endWait(isRefused: boolean): void {
    this.#stopWaiting?.();
    this.#stopWaiting = undefined;
    this.#isRefused = isRefused;
    this.#flow.roomFound();
  }
}

/** Why a message of so many bytes is not held. */
export function refusal(results: RoomForResults, messageBytes: number): ServiceError {
  if (messageBytes <= MESSAGE_MAX_BYTES) return noRoomForResults(results.share().fullFor(messageBytes) ?? 'its own');
  return new ServiceError('response_too_large', `message exceeds the limit of ${MESSAGE_MAX_BYTES} bytes`);
}
