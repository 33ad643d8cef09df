import type { CommandTag, FieldDescription, TransactionStatus } from '../../protocol/backend.ts';
import type { Warning } from './warnings.ts';

/** What a request wants to see of its replies, in the order in which they come. */
export interface Replies {
  parameters?(types: readonly number[], body: Buffer): void;
  /** The columns to come; none for a statement that returns no rows. `body` is the RowDescription's, if there is one. */
  fields?(fields: readonly FieldDescription[], body: Buffer | undefined): void;
  /** The statement has its parameters and is about to be executed. */
  bound?(): void;
  /** The body of a DataRow is `source[start..end)`; it is only good during the call. */
  row?(source: Buffer, start: number, end: number): void;
  /** As `row`, for one of more than LARGE_ROW_BYTES, which is good until the promise is kept; without it they go to `row`. */
  largeRow?(source: Buffer, start: number, end: number): Promise<void>;
  /** What a large row waits for is of no use any more. */
  interrupt?(): void;
}

/** How a request ended well. */
export interface Completion {
  /** Absent for an empty statement, and where nothing was executed. */
  readonly tag: CommandTag | undefined;
  /** Whether the session is in a transaction block now. */
  readonly status: TransactionStatus;
  readonly warnings: readonly Warning[];
}

/** What a request waits for: its description (RowDescription or NoData), or everything up to ReadyForQuery. */
export type Until = 'described' | 'ready';

/** Told how a request ended, in the turn in which that is known; with an Error when it failed. */
export type Settle = (ended: Completion | Error) => void;
