import { ServiceError } from '../../errors.ts';
import type { FieldDescription } from '../../protocol/backend.ts';
import { TimeSlices } from '../../runtime/event-loop.ts';
import type { Replies } from '../session/pipeline-request.ts';
import type { SqlSession } from '../session/session.ts';
import type { Warning } from '../session/warnings.ts';
import { keepResults } from './result-budget.ts';
import type { ResultFormat, StatementOutcome } from './result-format.ts';
import { ResultShape, ResultWriter, typedFields } from './result-writer.ts';
import { TypeCatalog } from './type-catalog.ts';

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

/**
 * A result that is kept in memory as a whole. While a column's type is not known (the statements of a transaction are not described
 * one by one), the rows are kept as received until {@link settle}.
 */
export class BufferedResult implements Replies {
  readonly #session: SqlSession;
  readonly #types: TypeCatalog;
  readonly #budget: ReplySizeLimit;
  readonly #format: ResultFormat;
  readonly #unwritten: Buffer[] = [];
  #fields: readonly FieldDescription[] = [];
  #writer: ResultWriter | undefined;
  #isCut = false;

  constructor(session: SqlSession, format: ResultFormat, budget: ReplySizeLimit) {
    this.#session = session;
    this.#types = TypeCatalog.of(session.lease.backend);
    this.#budget = budget;
    this.#format = format;
  }

  /** The columns' types; empty if they need not be known. */
  get oids(): readonly number[] {
    return this.#format.needsTypes ? this.#fields.map(({ dataTypeOid }) => dataTypeOid) : [];
  }

  /** The result exceeded a limit; the session is aborted. */
  get isCut(): boolean {
    return this.#isCut;
  }

  fields(fields: readonly FieldDescription[]): void {
    this.#fields = fields;
    if (!this.#types.knows(this.oids)) return;
    this.#writer = this.#open();
    this.#isCut ||= !this.#budget.spend(this.#writer.out.length);
  }

  row(source: Buffer, start: number, end: number): void {
    if (this.#isCut) return;
    const writer = this.#writer;
    if (writer === undefined) {
      this.#isCut = !this.#budget.spend(end - start);
      if (!this.#isCut) this.#unwritten.push(Buffer.from(source.subarray(start, end)));
      return;
    }
    const before = writer.out.length;
    writer.row(source, start);
    this.#isCut = !this.#budget.spend(writer.out.length - before);
    if (this.#isCut) writer.out.length = before;
  }

  async largeRow(source: Buffer, start: number, end: number): Promise<void> {
    const writer = this.#writer;
    if (this.#isCut || writer === undefined) {
      this.row(source, start, end);
      return;
    }
    const before = writer.out.length;
    // The JSON is mostly about as long.
    writer.out.reserve(end - start);
    this.#isCut = !(await this.#writeInParts(writer, source, start));
    if (this.#isCut) writer.out.length = before;
  }

  /** @returns whether the whole row is written; if not, the session is aborted */
  async #writeInParts(writer: ResultWriter, source: Buffer, start: number): Promise<boolean> {
    const { out } = writer;
    const slices = new TimeSlices();
    let counted = out.length;
    for (const _ of writer.rowInParts(source, start)) {
      if (!this.#budget.spend(out.length - counted)) return false;
      counted = out.length;
      const pause = slices.pause();
      if (pause !== undefined) await pause;
      if (this.#session.abortReason !== undefined) return false;
    }
    return this.#budget.spend(out.length - counted);
  }

  /** Writes the remaining rows. The types must be known by now. @throws ServiceError when a limit is exceeded */
  async settle(outcome: StatementOutcome, warnings: readonly Warning[]): Promise<Buffer> {
    const writer = this.#writer ?? this.#open();
    for (const row of this.#unwritten) {
      // It was counted when it was received.
      if (!this.#budget.spend(-row.length) || !(await this.#writeInParts(writer, row, 0))) this.#session.throwIfAborted();
    }
    writer.close(outcome, warnings);
    return writer.out.whole();
  }

  #open(): ResultWriter {
    return new ResultWriter(new ResultShape(this.#format, typedFields(this.#fields, this.#types)));
  }
}
