import { ServiceError } from '../errors.ts';
import type { HeadRoom } from '../protocol/frame.ts';
import type { Share } from '../room.ts';
import type { RowSource } from './reply-stream.ts';
import { noRoomForResults } from './result-share.ts';

/** Rows, and whatever else Postgres may send as one message. */
const MESSAGE_MAX_BYTES = 32 * 1_048_576;

/** Room for what has come of a message that is not whole. It gets room for all of it, or none: of many that grow together none would come to its end. */
export class MessageRoom implements HeadRoom {
  readonly #results: Pick<RowSource, 'share'>;
  #share: Share | undefined;

  /** @param results of whose room it is a part */
  constructor(results: Pick<RowSource, 'share'>) {
    this.#results = results;
  }

  mayGrow(_bytes: number, messageBytes: number): boolean {
    if (this.#share !== undefined) return true;
    const share = this.#results.share();
    if (messageBytes > MESSAGE_MAX_BYTES || share.fullFor(messageBytes) !== undefined) return false;
    share.are(messageBytes);
    this.#share = share;
    return true;
  }

  /** Why there is no room for a message of so many bytes. */
  refusal(messageBytes: number): ServiceError {
    const full = messageBytes > MESSAGE_MAX_BYTES ? undefined : this.#results.share().fullFor(messageBytes);
    if (full !== undefined) return noRoomForResults(full);
    return new ServiceError('response_too_large', `message exceeds the limit of ${MESSAGE_MAX_BYTES} bytes`);
  }

  /** The message is whole, or there will be no more of it. */
  release(): void {
    if (this.#share === undefined) return;
    this.#share.are(0);
    this.#share = undefined;
  }
}
