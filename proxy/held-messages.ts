import { type HeadRoom, MIN_HEAD_BYTES } from '../src/protocol/frame.ts';
import type { Room, RoomBounds } from '../src/room.ts';
import { MAX_REWRITTEN_BYTES } from './limits.ts';

/** What messages may take that have not come whole, or wait for a backend or to be rewritten: four of the largest, and sixteen in all. */
export const MESSAGE_BOUNDS: RoomBounds = { perTenantBytes: 4 * MAX_REWRITTEN_BYTES, allBytes: 16 * MAX_REWRITTEN_BYTES };

/** What is held of one client's messages, counted with those of its organization's others. Small ones are not. */
export class HeldMessages implements HeadRoom {
  readonly #room: Room;
  readonly #organizationId: string;
  #counted = 0;
  #isOver = false;

  constructor(room: Room, organizationId: string) {
    this.#room = room;
    this.#organizationId = organizationId;
  }

  mayGrow(bytes: number): boolean {
    return this.#room.fullOf(this.#organizationId, bytes) === undefined;
  }

  /** So many bytes are held now. */
  are(bytes: number): void {
    const counted = bytes > MIN_HEAD_BYTES && !this.#isOver ? bytes : 0;
    if (counted === this.#counted) return;
    this.#room.add(this.#organizationId, counted - this.#counted);
    this.#counted = counted;
  }

  /** The client is gone, and nothing is kept of what it has said. */
  end(): void {
    this.#isOver = true;
    this.are(0);
  }
}
