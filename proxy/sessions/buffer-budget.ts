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

  /** This many bytes of the client's input are held. */
  fromClient(bytes: number): void {
    if (!this.#isOver) this.#fromClient.resize(bytes);
  }

  /** This many bytes of replies wait until the client reads them. */
  toClient(bytes: number): void {
    if (!this.#isOver) this.#toClient.resize(bytes);
  }

  /** The client has disconnected, and nothing is held for it any more. */
  end(): void {
    this.#isOver = true;
    this.#fromClient.resize(0);
    this.#toClient.resize(0);
  }
}
