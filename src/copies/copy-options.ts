import { MOVER_NAME } from '../router/moves.ts';

/** How an organization is copied. */
export interface CopyOptions {
  /** The application_name of the sessions, by which they are found. */
  readonly name: string;
  /** After how long the server ends a statement and an idle transaction of them; 0: never. */
  readonly timeoutMs: number;
  /** How large the definitions before the rows may be, and those after them. */
  readonly definitionsMaxBytes: number;
  /** Ends `pg_dump`. */
  readonly signal?: AbortSignal;
}

export const FOR_MOVE: CopyOptions = { name: MOVER_NAME, timeoutMs: 0, definitionsMaxBytes: 256 * 1024 * 1024 };
