import type { ConnectionLimit } from '../connections/connection-limit.ts';
import { type BodyBudget, UNCOUNTED_MAX_BYTES } from '../plugins/admission.ts';
import type { UnauthenticatedBudget } from './unauthenticated-budget.ts';

/** Where there has to be room for what clients send: for the frames of those who are known, and of those who are not. */
export interface FrameBudgets {
  readonly bodies: BodyBudget;
  readonly unauthenticated: UnauthenticatedBudget;
  readonly connections: Pick<ConnectionLimit, 'authenticated'>;
}

/** What is held of one client's frames, counted with the bodies of its organization's requests. */
export class FrameBudget {
  readonly #room: BodyBudget;
  readonly #organizationId: string;
  #counted = 0;

  constructor(room: BodyBudget, organizationId: string) {
    this.#room = room;
    this.#organizationId = organizationId;
  }

  /**
   * So many bytes are held now.
   * @throws ServiceError `too_many_requests`
   */
  are(bytes: number): void {
    const counted = bytes > UNCOUNTED_MAX_BYTES ? bytes : 0;
    const more = counted - this.#counted;
    if (more > 0) this.#room.take(this.#organizationId, more);
    else if (more < 0) this.#room.giveBack(this.#organizationId, -more);
    this.#counted = counted;
  }
}
