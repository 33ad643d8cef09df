import { type HeadRoom, MIN_HEAD_BYTES } from '../src/protocol/frame.ts';
import type { Room, RoomBounds } from '../src/room.ts';
import { MAX_REWRITTEN_BYTES } from './limits.ts';

/**
 * What messages may take that have not come whole, wait for a backend or to be rewritten, or have not been taken by their
 * client: four of the largest, and sixteen in all.
 */
export const MESSAGE_BOUNDS: RoomBounds = { perTenantBytes: 4 * MAX_REWRITTEN_BYTES, allBytes: 16 * MAX_REWRITTEN_BYTES };

/** Where a client holds no more than that, it is not counted. */
export const SMALL_BYTES = MIN_HEAD_BYTES;

/** What is held of one client's messages, and of those for it, counted with what is held for its organization's others. */
export class HeldMessages implements HeadRoom {
  readonly #room: Room;
  readonly #organizationId: string;
  #fromClient = 0;
  #toClient = 0;
  #isOver = false;

  constructor(room: Room, organizationId: string) {
    this.#room = room;
    this.#organizationId = organizationId;
  }

  mayGrow(bytes: number): boolean {
    return this.#room.fullOf(this.#organizationId, bytes) === undefined;
  }

  /** So many bytes are held of what it has said. */
  fromClient(bytes: number): void {
    const counted = this.#counted(bytes);
    if (counted === this.#fromClient) return;
    this.#room.add(this.#organizationId, counted - this.#fromClient);
    this.#fromClient = counted;
  }

  /** So many bytes wait for it to take them. */
  toClient(bytes: number): void {
    const counted = this.#counted(bytes);
    if (counted === this.#toClient) return;
    this.#room.add(this.#organizationId, counted - this.#toClient);
    this.#toClient = counted;
  }

  #counted(bytes: number): number {
    return bytes > SMALL_BYTES && !this.#isOver ? bytes : 0;
  }

  /** The client is gone, and nothing is kept of what it has said. */
  end(): void {
    this.#isOver = true;
    this.fromClient(0);
    this.toClient(0);
  }
}
