import { ServiceError } from '../../errors.ts';
import { type Exhaustion, type MemoryBounds, type MemoryBudget, MemoryReservation, SMALL_BYTES } from '../../runtime/memory-budget.ts';

/** All results of a batch together: they are kept until the transaction is committed. */
export const RESULTS_MAX_BYTES = 32 * 1_048_576;

/** What results may take that are kept until their caller has them: four of the largest, and sixteen in all. */
export const RESULT_BOUNDS: MemoryBounds = { perOrganizationBytes: 4 * RESULTS_MAX_BYTES, allBytes: 16 * RESULTS_MAX_BYTES };

/** What one call keeps of results, counted with those of its organization's others. */
export class ResultReservation {
  readonly #share: MemoryReservation;
  #bytes = 0;

  constructor(room: MemoryBudget, organizationId: string) {
    this.#share = new MemoryReservation(room, organizationId);
  }

  /** @returns why there is no room for so many bytes more, if there is none */
  take(bytes: number): ServiceError | undefined {
    const more = this.#bytes + bytes - this.#share.counted;
    if (more > SMALL_BYTES) {
      const full = this.#share.exhaustedBy(more);
      if (full !== undefined) return noRoomForResults(full);
      this.#share.resize(this.#bytes + bytes);
    }
    this.#bytes += bytes;
    return undefined;
  }

  /** As a whole reply they are so many bytes, which wait for the caller whether there is room or not. */
  hold(bytes: number): void {
    this.#bytes = Math.max(this.#bytes, bytes);
    this.#share.resize(this.#bytes);
  }

  /** The caller has them, or will never have them. */
  giveBack(): void {
    this.#share.resize(0);
    this.#bytes = 0;
  }
}

export function noRoomForResults(full: Exhaustion): ServiceError {
  const whose = full === 'its own' ? "the organization's results under way" : 'the results under way';
  return new ServiceError('too_many_requests', `${whose} are as large as there is room for`, {
    hint: 'Wait for some of them to be received, or ask for less at once.',
    retryAfterS: 1,
  });
}
