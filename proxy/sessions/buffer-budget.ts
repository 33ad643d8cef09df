import type { HeadBudget } from '../../src/protocol/framing.ts';
import { type MemoryBounds, MemoryReservation } from '../../src/runtime/memory-budget.ts';
import { MAX_REWRITTEN_BYTES } from '../inspection/text-limits.ts';

/**
 * The memory limit for messages that are incomplete, that wait for a backend or for being rewritten, or that the client has
 * not read: four of the largest messages for an organization, and sixteen in all.
 */
export const BUFFER_BOUNDS: MemoryBounds = { perOrganizationBytes: 4 * MAX_REWRITTEN_BYTES, allBytes: 16 * MAX_REWRITTEN_BYTES };

/** Counts the bytes held of messages from and to one client, against its organization's limit. */
export class BufferBudget extends MemoryReservation implements HeadBudget {
  /** Bytes of the client's input that are held; set by {@link fromClient}. */
  fromClientBytes = 0;

  mayGrow(bytes: number): boolean {
    return this.exhaustedBy(bytes) === undefined;
  }

  /** This many bytes of the client's input are held. */
  fromClient(bytes: number): void {
    const toClientBytes = this.bytes - this.fromClientBytes;
    this.fromClientBytes = bytes;
    this.resize(bytes + toClientBytes);
  }

  /** This many bytes of replies wait until the client reads them. */
  toClient(bytes: number): void {
    this.resize(bytes + this.fromClientBytes);
  }
}
