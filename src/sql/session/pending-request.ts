import { ServiceError } from '../../errors.ts';
import type { CommandTag, TransactionStatus } from '../../protocol/backend.ts';
import { withCompletion } from '../execution/error-hint-and-detail.ts';
import type { Replies, Settle, Until } from './replies-and-completion.ts';
import type { Warning } from './warnings.ts';

/** A request whose replies have not all come, and what is known of its outcome. */
export class PendingRequest {
  readonly replies: Replies;
  readonly #settle: Settle;
  #until: Until;
  #error: Error | undefined;
  /** Of the last statement that has completed. */
  tag: CommandTag | undefined;
  /** A part of its result was not taken. */
  isCut = false;

  constructor(replies: Replies, until: Until, settle: Settle) {
    this.replies = replies;
    this.#until = until;
    this.#settle = settle;
  }

  get until(): Until {
    return this.#until;
  }

  /** The first error counts. @returns whether a Sync has to be sent: after an error Postgres reads on from the next one */
  fail(error: Error): boolean {
    this.#error ??= error;
    if (this.#until === 'ready') return false;
    this.#until = 'ready';
    return true;
  }

  /** All replies have come. @param reason why the request was to be aborted, if it was */
  answered(status: TransactionStatus, warnings: readonly Warning[], reason: ServiceError | undefined): void {
    if (this.#error === undefined) this.#settle({ tag: this.tag, status, warnings });
    else this.#settle(this.#withCompletion(reason ?? this.#error, status));
  }

  /** No more replies come. @param reason as in {@link answered} */
  lost(error: Error, reason: ServiceError | undefined): void {
    this.#settle(reason ?? this.#error ?? error);
  }

  /** A request whose result was cut off has been executed, unless a transaction is open. The error says so. */
  #withCompletion(error: Error, status: TransactionStatus): Error {
    return this.isCut && this.tag !== undefined && status === 'I' && error instanceof ServiceError ? withCompletion(error) : error;
  }
}
