import type { ServerStatement } from '../../src/backend/session-state.ts';
import type { MemoryBounds, MemoryReservation } from '../../src/runtime/memory-budget.ts';

/** A thousand clients, each with two hundred statements of fifty bytes that no other client has, need about this much. */
export const STATEMENT_BOUNDS: MemoryBounds = { perOrganizationBytes: 64 * 1024 * 1024, allBytes: Number.POSITIVE_INFINITY };
/** The memory that a name needs in addition to its bytes. */
const NAME_BYTES = 256;

/** Counts the memory that the prepared statements of an organization's clients need. A definition counts once, however many names it has. */
export class StatementMemory {
  readonly #reservation: MemoryReservation;
  /** The number of names that each statement has. */
  readonly #names = new Map<ServerStatement, number>();

  /** @param held the organization's reservation */
  constructor(reservation: MemoryReservation) {
    this.#reservation = reservation;
  }

  /** Whether the memory limit allows a Parse of this size to be kept. */
  hasRoomFor(bytes: number): boolean {
    return this.#reservation.exhaustedBy(NAME_BYTES + bytes) === undefined;
  }

  /** The statements need this many bytes more; fewer, if negative. */
  resizeBy(bytes: number): void {
    this.#reservation.resize(this.#reservation.bytes + bytes);
  }

  /** @param ownBytes the memory that belongs to this name alone: its own bytes and what is kept with it */
  add(ownBytes: number, statement: ServerStatement): void {
    const names = this.#names.get(statement) ?? 0;
    this.#names.set(statement, names + 1);
    this.resizeBy(NAME_BYTES + ownBytes + (names === 0 ? statement.definition.length : 0));
  }

  /** @param ownBytes as in {@link add} */
  delete(ownBytes: number, statement: ServerStatement): void {
    const names = this.#names.get(statement) ?? 0;
    if (names > 1) this.#names.set(statement, names - 1);
    else this.#names.delete(statement);
    this.resizeBy(-NAME_BYTES - ownBytes - (names > 1 ? 0 : statement.definition.length));
  }
}
