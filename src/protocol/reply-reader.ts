import {
  BackendType,
  type CommandTag,
  decodeCommandComplete,
  decodeParameterDescription,
  decodeParameterStatus,
  decodeReadyForQuery,
  decodeRowDescription,
  type ErrorFields,
  ErrorFieldsReader,
  type FieldDescription,
  type TransactionStatus,
} from './backend.ts';
import { ANY_SIZE, backendFrames, type FrameRules, FrameScanner, HEADER_BYTES, type HeadBudget } from './framing.ts';

/** Receives the messages of replies, in the order in which they come. What it has no method for is not decoded. */
export interface ReplyHandler {
  /** ParameterDescription: the type OIDs of a statement's parameters. */
  parameters?(types: readonly number[], body: Buffer): void;
  /** RowDescription: the columns to come; or NoData, which has no columns and no body. */
  fields?(fields: readonly FieldDescription[], body?: Buffer): void;
  /** BindComplete: the statement has been planned with its parameters. */
  bound?(): void;
  /** The body of a DataRow is `source[start..end)`. It may be overwritten after the call, as the body of any other message. */
  row?(source: Buffer, start: number, end: number): void;
  completed?(tag: CommandTag): void;
  ready(status: TransactionStatus): void;
  failed?(fields: ErrorFields): void;
  noticed?(fields: ErrorFields): void;
  parameterStatus?(status: { readonly parameter: string; readonly value: string }): void;
  copyIn?(): void;
  copyOut?(): void;
  /** A CopyData message, with its header, is `source[start..end)`. */
  copied?(source: Buffer, start: number, end: number): void;
  /** A message that the budget has refused to hold; it is skipped. @param bytes the length of its body */
  refused?(bytes: number, isRow: boolean): void;
}

/** Replies of which every message is read. Errors and notices are read piece by piece, and only the beginning of each field is kept. */
export function replyFrames(maxBodyBytes = ANY_SIZE): FrameRules {
  const heads = new Int32Array(256).fill(ANY_SIZE);
  heads[BackendType.ErrorResponse] = 0;
  heads[BackendType.NoticeResponse] = 0;
  return { ...backendFrames({}, maxBodyBytes), heads };
}

/** The most that is kept of a field of an error. */
const ERROR_FIELD_MAX_BYTES = 16_384;

/**
 * Reads the replies of a backend, for those who want their values. The wire relay, which forwards replies unread, has its own reader.
 *
 *     reader.push(chunk);
 *     while (reader.next());
 *
 * @see https://www.postgresql.org/docs/current/protocol-message-formats.html
 */
export class ReplyReader {
  readonly #scanner: FrameScanner;
  readonly #handler: ReplyHandler;
  /** The error or notice that is coming. */
  #fields: ErrorFieldsReader | undefined;

  /** @param frames {@link replyFrames}, or those with smaller heads, for a handler that wants few messages */
  constructor(frames: FrameRules, handler: ReplyHandler, budget?: HeadBudget) {
    this.#scanner = new FrameScanner(frames, budget);
    this.#handler = handler;
  }

  push(chunk: Buffer): void {
    this.#scanner.push(chunk);
  }

  /** Takes out the bytes after the last message, for another reader to continue. */
  takeRest(): Buffer {
    return this.#scanner.takeRest();
  }

  /**
   * Reads the next message, or a part of it, and calls the handler if it is complete.
   * @returns false when nothing is left to read
   * @throws ServiceError `backend_lost` for bytes that violate the protocol, `response_too_large` beyond the frames' `maxBodyBytes`
   */
  next(): boolean {
    const scanner = this.#scanner;
    if (!scanner.next()) return false;
    // There may be millions of rows, and few other messages.
    if (scanner.type === BackendType.DataRow && scanner.first && scanner.last)
      this.#handler.row?.(scanner.buffer, scanner.start + HEADER_BYTES, scanner.end);
    else this.#receive();
    return true;
  }

  #receive(): void {
    const { type, length, first, last } = this.#scanner;
    const handler = this.#handler;
    if (type === BackendType.ErrorResponse || type === BackendType.NoticeResponse) {
      this.#receiveFields(type === BackendType.ErrorResponse ? 'failed' : 'noticed');
      return;
    }
    if (!first || !last) {
      if (first) handler.refused?.(length, type === BackendType.DataRow);
      return;
    }
    switch (type) {
      case BackendType.ParameterDescription:
        handler.parameters?.(decodeParameterDescription(this.#body()), this.#body());
        return;
      case BackendType.RowDescription:
        handler.fields?.(decodeRowDescription(this.#body()), this.#body());
        return;
      case BackendType.NoData:
        handler.fields?.([]);
        return;
      case BackendType.BindComplete:
        handler.bound?.();
        return;
      case BackendType.CommandComplete:
        handler.completed?.(decodeCommandComplete(this.#body()));
        return;
      case BackendType.ReadyForQuery:
        handler.ready(decodeReadyForQuery(this.#body()));
        return;
      case BackendType.ParameterStatus:
        handler.parameterStatus?.(decodeParameterStatus(this.#body()));
        return;
      case BackendType.CopyInResponse:
        handler.copyIn?.();
        return;
      case BackendType.CopyOutResponse:
        handler.copyOut?.();
        return;
      case BackendType.CopyData:
        handler.copied?.(this.#scanner.buffer, this.#scanner.start, this.#scanner.end);
        return;
      default:
      // ParseComplete, CloseComplete, EmptyQueryResponse, NotificationResponse, CopyDone: nothing to do.
    }
  }

  #body(): Buffer {
    const { buffer, start, end } = this.#scanner;
    return buffer.subarray(start + HEADER_BYTES, end);
  }

  /** Of an error or a notice, which may come in many fragments. */
  #receiveFields(method: 'failed' | 'noticed'): void {
    if (this.#handler[method] === undefined) return;
    const { buffer, start, end, first, last } = this.#scanner;
    this.#fields ??= new ErrorFieldsReader(ERROR_FIELD_MAX_BYTES);
    this.#fields.push(buffer, first ? start + HEADER_BYTES : start, end);
    if (last) this.#handler[method](this.#fields.end());
  }
}
