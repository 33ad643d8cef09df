import { Buffer } from 'node:buffer';
import type { ServerStatement } from '../../src/backend/session-state.ts';
import type { FrameScanner } from '../../src/protocol/framing.ts';
import type { UnnamedStatement } from './client-statements.ts';

/** A statement that is unnamed for the client and has a name on the server. */
export interface RepeatedStatement extends UnnamedStatement {
  readonly server: ServerStatement;
}

interface RecentParse {
  /** The whole message. */
  readonly message: Buffer;
  readonly context: string;
  /** The registry's generation when the statement was found there. */
  readonly generation: number;
  readonly statement: RepeatedStatement;
}

/** The position of a message in a buffer. */
type Fragment = Pick<FrameScanner, 'buffer' | 'start' | 'end'>;

const SLOTS = 64;

/**
 * The statements that an organization's clients parsed recently, by the bytes of the Parse message. The same bytes in the
 * same context are the same statement, so they are not inspected again.
 */
export class ParseCache {
  readonly #slots: (RecentParse | undefined)[] = new Array(SLOTS).fill(undefined);

  find({ buffer, start, end }: Fragment, context: string | undefined, generation: number): RepeatedStatement | undefined {
    const recent = this.#slots[slotOf(buffer, start, end)];
    if (recent === undefined || recent.context !== context || recent.generation !== generation) return undefined;
    return recent.message.compare(buffer, start, end) === 0 ? recent.statement : undefined;
  }

  keep({ buffer, start, end }: Fragment, context: string, generation: number, statement: RepeatedStatement): void {
    const message = Buffer.from(buffer.subarray(start, end));
    this.#slots[slotOf(buffer, start, end)] = { message, context, generation, statement };
  }
}

/** The statements of one program usually differ in their length or in their middle byte. */
function slotOf(buffer: Buffer, start: number, end: number): number {
  return (end - start + 7 * (buffer[(start + end) >> 1] ?? 0)) % SLOTS;
}
