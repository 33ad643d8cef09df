import { ServiceError } from '../../errors.ts';
import type { SqlSession } from '../session/sql-session.ts';
import { keepResults } from './result-budget.ts';

/** Limits the results of one reply together, because they are kept in memory until the transaction is committed. */
export class ReplySizeLimit {
  readonly #session: SqlSession;
  readonly #maxBytes: number;
  readonly #hint: string;
  #bytes = 0;

  /** @param hint the hint of the error when the limit is exceeded */
  constructor(session: SqlSession, maxBytes: number, hint = 'Ask for less, or use /api/query, which streams.') {
    this.#session = session;
    this.#maxBytes = maxBytes;
    this.#hint = hint;
  }

  /** @returns whether the bytes are within the limits; if not, the session is aborted */
  spend(bytes: number): boolean {
    this.#bytes += bytes;
    const refusal = this.#bytes > this.#maxBytes ? this.#tooLarge() : keepResults(this.#session.results, bytes);
    if (refusal !== undefined) this.#session.abort(refusal);
    return refusal === undefined;
  }

  #tooLarge(): ServiceError {
    return new ServiceError('response_too_large', `the results exceed ${this.#maxBytes} bytes`, { hint: this.#hint });
  }
}
