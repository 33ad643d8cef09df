import type { HeadRoom } from '../src/protocol/frame.ts';
import { type Room, type RoomBounds, Share } from '../src/room.ts';
import { MAX_REWRITTEN_BYTES } from './limits.ts';

/**
 * What messages may take that have not come whole, wait for a backend or to be rewritten, or have not been taken by their
 * client: four of the largest, and sixteen in all.
 */
export const MESSAGE_BOUNDS: RoomBounds = { perTenantBytes: 4 * MAX_REWRITTEN_BYTES, allBytes: 16 * MAX_REWRITTEN_BYTES };

/** What is held of one client's messages, and of those for it, counted with what is held for its organization's others. */
export class HeldMessages implements HeadRoom {
  readonly #fromClient: Share;
  readonly #toClient: Share;
  #isOver = false;

  constructor(room: Room, organizationId: string) {
    this.#fromClient = new Share(room, organizationId);
    this.#toClient = new Share(room, organizationId);
  }

  mayGrow(bytes: number): boolean {
    return this.#fromClient.fullFor(bytes) === undefined;
  }

  /** So many bytes are held of what it has said. */
  fromClient(bytes: number): void {
    if (!this.#isOver) this.#fromClient.are(bytes);
  }

  /** So many bytes wait for it to take them. */
  toClient(bytes: number): void {
    if (!this.#isOver) this.#toClient.are(bytes);
  }

  /** The client is gone, and nothing is kept of what it has said. */
  end(): void {
    this.#isOver = true;
    this.#fromClient.are(0);
    this.#toClient.are(0);
  }
}
