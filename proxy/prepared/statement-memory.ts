import type { ServerStatement } from '../../src/backend/prepared-statements.ts';
import type { MemoryBounds, MemoryReservation } from '../../src/runtime/memory-budget.ts';

/** A thousand clients with two hundred statements of their own, of fifty bytes each, take about as much. */
export const STATEMENT_BOUNDS: MemoryBounds = { perOrganizationBytes: 64 * 1024 * 1024, allBytes: Number.POSITIVE_INFINITY };
/** What a name takes besides its bytes. */
const NAME_BYTES = 256;

/** What the statements of an organization's clients take here. A definition counts once, however many have given it a name. */
export class StatementMemory {
  readonly #held: MemoryReservation;
  /** How many names each has. */
  readonly #names = new Map<ServerStatement, number>();

  /** @param held the organization's */
  constructor(held: MemoryReservation) {
    this.#held = held;
  }

  /** Whether a Parse of so many bytes may be kept. */
  hasRoomFor(bytes: number): boolean {
    return this.#held.exhaustedBy(NAME_BYTES + bytes) === undefined;
  }

  /** Statements have come to take so many bytes more. */
  grew(bytes: number): void {
    this.#held.resize(this.#held.bytes + bytes);
  }

  /** @param ownBytes what one name takes by itself: its own, and what is kept with it */
  add(ownBytes: number, statement: ServerStatement): void {
    const names = this.#names.get(statement) ?? 0;
    this.#names.set(statement, names + 1);
    this.grew(NAME_BYTES + ownBytes + (names === 0 ? statement.definition.length : 0));
  }

  /** @param ownBytes as in {@link add} */
  delete(ownBytes: number, statement: ServerStatement): void {
    const names = this.#names.get(statement) ?? 0;
    if (names > 1) this.#names.set(statement, names - 1);
    else this.#names.delete(statement);
    this.grew(-NAME_BYTES - ownBytes - (names > 1 ? 0 : statement.definition.length));
  }
}
