import type { HeadBudget } from '../../src/protocol/frame.ts';
import { type MemoryBounds, type MemoryBudget, MemoryReservation } from '../../src/runtime/memory-budget.ts';
import { MAX_REWRITTEN_BYTES } from '../buffer-limits.ts';

/**
 * What messages may take that have not come whole, wait for a backend or to be rewritten, or have not been taken by their
 * client: four of the largest, and sixteen in all.
 */
export const BUFFER_BOUNDS: MemoryBounds = { perOrganizationBytes: 4 * MAX_REWRITTEN_BYTES, allBytes: 16 * MAX_REWRITTEN_BYTES };

/** What is held of one client's messages, and of those for it, counted with what is held for its organization's others. */
export class BufferBudget implements HeadBudget {
  readonly #fromClient: MemoryReservation;
  readonly #toClient: MemoryReservation;
  #isOver = false;

  constructor(room: MemoryBudget, organizationId: string) {
    this.#fromClient = new MemoryReservation(room, organizationId);
    this.#toClient = new MemoryReservation(room, organizationId);
  }

  mayGrow(bytes: number): boolean {
    return this.#fromClient.exhaustedBy(bytes) === undefined;
  }

  /** So many bytes are held of what it has said. */
  fromClient(bytes: number): void {
    if (!this.#isOver) this.#fromClient.resize(bytes);
  }

  /** So many bytes wait for it to take them. */
  toClient(bytes: number): void {
    if (!this.#isOver) this.#toClient.resize(bytes);
  }

  /** The client is gone, and nothing is kept of what it has said. */
  end(): void {
    this.#isOver = true;
    this.#fromClient.resize(0);
    this.#toClient.resize(0);
  }
}
