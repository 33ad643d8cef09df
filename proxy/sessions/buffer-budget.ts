import type { HeadBudget } from '../../src/protocol/message-framing.ts';
import { type MemoryBounds, type MemoryBudget, MemoryReservation } from '../../src/runtime/memory-budget.ts';
import { MAX_REWRITTEN_BYTES } from '../buffer-limits.ts';

/**
 * The memory limit for messages that are incomplete, that wait for a backend or for being rewritten, or that the client has
 * not read: four of the largest messages for an organization, and sixteen in all.
 */
export const BUFFER_BOUNDS: MemoryBounds = { perOrganizationBytes: 4 * MAX_REWRITTEN_BYTES, allBytes: 16 * MAX_REWRITTEN_BYTES };

/** Counts the bytes held of messages from and to one client, against its organization's limit. */
export class BufferBudget implements HeadBudget {
  readonly #held: MemoryReservation;
  #fromClientBytes = 0;
  #toClientBytes = 0;

  constructor(room: MemoryBudget, organizationId: string) {
    this.#held = new MemoryReservation(room, organizationId);
  }

  mayGrow(bytes: number): boolean {
    return this.#held.exhaustedBy(bytes) === undefined;
  }

  /** This many bytes of the client's input are held. */
  fromClient(bytes: number): void {
    this.#fromClientBytes = bytes;
    this.#held.resize(bytes + this.#toClientBytes);
  }

  /** This many bytes of replies wait until the client reads them. */
  toClient(bytes: number): void {
    this.#toClientBytes = bytes;
    this.#held.resize(bytes + this.#fromClientBytes);
  }

  /** The client has disconnected, and nothing is held for it any more. */
  end(): void {
    this.#held.end();
  }
}
