import type { Readable } from 'node:stream';
import type { DisconnectSignal } from '../../router/lease.ts';
import type { MemoryReservation } from '../../runtime/memory-budget.ts';
import type { JsonValue } from '../parameters/json-value.ts';
import type { ResultFormat, RowMode } from '../result/formats/result-format.ts';
import type { StatementOutcome } from '../result/statement-outcome.ts';

/** One statement with its parameters, and the form of its result. */
export interface QueryRequest {
  readonly sql: string;
  readonly params?: readonly JsonValue[] | undefined;
  readonly rowMode: RowMode;
  /** How the result is written. Default: as the reply of `/api/query`. */
  readonly format?: ResultFormat | undefined;
  /** Makes the last bytes of a stream that fails, for formats that can express an error. */
  readonly finalBytes?: ((error: Error) => Uint8Array) | undefined;
  /** How long Postgres may take, by Postern's own clock. The time that a slow reader takes does not count. 0: no limit. */
  readonly timeoutMs: number;
  readonly readOnly?: boolean;
  /** Signals that the client has disconnected, which cancels the statement. */
  readonly disconnect?: DisconnectSignal;
  /** The reservation for a result that is part of a kept reply. */
  readonly results?: MemoryReservation | undefined;
}

export interface QueryReply {
  /**
   * The reply in its format, in UTF-8: a Buffer if it is small, else a stream with backpressure up to the backend. Reading the
   * stream slowly slows Postgres down, and destroying it cancels the statement. A failure destroys the stream with the error, or
   * ends it with {@link QueryRequest.finalBytes}, so that a partial reply never looks complete.
   */
  readonly body: Buffer | Readable;
  /** How the statement ended, if the body is a Buffer. */
  readonly outcome?: StatementOutcome;
  /** How the statement ended. The lease has been given back once this settles. A rejection may go unhandled. */
  readonly done: Promise<StatementOutcome>;
}
