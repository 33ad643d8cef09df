import type { Readable } from 'node:stream';
import type { DisconnectSignal } from '../../router/client-disconnect.ts';
import type { MemoryReservation } from '../../runtime/memory-budget.ts';
import type { JsonValue } from '../parameters/json-value.ts';
import type { ResultFormat, RowMode, StatementOutcome } from '../result/result-format.ts';

/** One statement with its parameters, and how its result is wanted. */
export interface QueryRequest {
  readonly sql: string;
  readonly params?: readonly JsonValue[] | undefined;
  readonly rowMode: RowMode;
  /** How the result is written; as the reply of `/api/query` if absent. */
  readonly format?: ResultFormat | undefined;
  /** What a stream that breaks off ends with, for layouts that have a way to say so. */
  readonly finalBytes?: ((error: Error) => Uint8Array) | undefined;
  /** How long Postgres may take, by our own clock; the time a slow reader takes does not count. 0: no limit. */
  readonly timeoutMs: number;
  readonly readOnly?: boolean;
  /** The caller goes away: what runs is cancelled. */
  readonly disconnect?: DisconnectSignal;
  /** Where a result counts that is part of a kept reply. */
  readonly results?: MemoryReservation | undefined;
}

export interface QueryReply {
  /**
   * The reply as its layout has it, in UTF-8: one Buffer while it is small, else a stream that carries the backend's pace.
   * Reading it slowly slows Postgres down, destroying it cancels the statement, and a failure destroys it with the error (or
   * ends it with the last words), so that it never looks whole when it is not.
   */
  readonly body: Buffer | Readable;
  /** How it ended, where the body is there as a whole. */
  readonly outcome?: StatementOutcome;
  /** How it ended. Once it has settled the lease is given back. A rejection nobody listens to does no harm. */
  readonly done: Promise<StatementOutcome>;
}
