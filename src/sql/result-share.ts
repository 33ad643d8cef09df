import { ServiceError } from '../errors.ts';
import type { Room, RoomBounds } from '../room.ts';
import { RESULTS_MAX_BYTES } from './batch.ts';

/** What results may take that are kept until their caller has them: four of the largest, and sixteen in all. */
export const RESULT_BOUNDS: RoomBounds = { perTenantBytes: 4 * RESULTS_MAX_BYTES, allBytes: 16 * RESULTS_MAX_BYTES };

/** So much is not counted: of that there is no more than calls may be under way. */
const STEP_BYTES = 65_536;

/** What one call keeps of results, counted with those of its organization's others. */
export class ResultShare {
  readonly #room: Room;
  readonly #organizationId: string;
  #bytes = 0;
  #counted = 0;

  constructor(room: Room, organizationId: string) {
    this.#room = room;
    this.#organizationId = organizationId;
  }

  /** @returns why there is no room for so many bytes more, if there is none */
  take(bytes: number): ServiceError | undefined {
    const more = this.#bytes + bytes - this.#counted;
    if (more > STEP_BYTES) {
      const full = this.#room.fullOf(this.#organizationId, more);
      if (full !== undefined) return tooMuch(full);
      this.#room.add(this.#organizationId, more);
      this.#counted += more;
    }
    this.#bytes += bytes;
    return undefined;
  }

  /** The caller has them, or will never have them. */
  giveBack(): void {
    this.#room.add(this.#organizationId, -this.#counted);
    this.#counted = 0;
    this.#bytes = 0;
  }
}

function tooMuch(full: 'its own' | 'all'): ServiceError {
  const whose = full === 'its own' ? "the organization's results under way" : 'the results under way';
  return new ServiceError('too_many_requests', `${whose} are as large as there is room for`, {
    hint: 'Wait for some of them to be received, or ask for less at once.',
    retryAfterS: 1,
  });
}
