import type { FieldDescription } from '../../protocol/backend.ts';
import { TimeSlices } from '../../runtime/event-loop.ts';
import type { Replies } from '../session/replies-and-completion.ts';
import type { SqlSession } from '../session/sql-session.ts';
import type { Warning } from '../session/warnings.ts';
import type { ResultFormat } from './formats/result-format.ts';
import type { ReplySizeLimit } from './reply-size-limit.ts';
import { ResultShape, ResultWriter, typedFields } from './result-writer.ts';
import type { StatementOutcome } from './statement-outcome.ts';
import { TypeCatalog } from './type-catalog.ts';

/**
 * A result that is kept in memory as a whole. While a column's type is not known (the statements of a transaction are not described
 * one by one), the rows are kept as received until {@link settle}.
 */
export class BufferedResult implements Replies {
  readonly #session: SqlSession;
  readonly #budget: ReplySizeLimit;
  readonly #format: ResultFormat;
  readonly #unwritten: Buffer[] = [];
  #fields: readonly FieldDescription[] = [];
  #writer: ResultWriter | undefined;
  #isCut = false;

  constructor(session: SqlSession, format: ResultFormat, budget: ReplySizeLimit) {
    this.#session = session;
    this.#budget = budget;
    this.#format = format;
  }

  /** Of the rows until now: as they are written, or as received. */
  get bytes(): number {
    return this.#writer?.out.length ?? this.#unwritten.reduce((sum, { length }) => sum + length, 0);
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
    const types = TypeCatalog.of(this.#session);
    if (!types.knows(this.oids)) return;
    this.#writer = this.#open(types);
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

  /** Writes the remaining rows. @param types which know the columns' types @throws ServiceError when a limit is exceeded */
  async settle(outcome: StatementOutcome, warnings: readonly Warning[], types: TypeCatalog): Promise<Buffer> {
    const writer = this.#writer ?? this.#open(types);
    for (const row of this.#unwritten) {
      // It was counted when it was received.
      if (!this.#budget.spend(-row.length) || !(await this.#writeInParts(writer, row, 0))) this.#session.throwIfAborted();
    }
    writer.close(outcome, warnings);
    return writer.out.whole();
  }

  #open(types: TypeCatalog): ResultWriter {
    return new ResultWriter(new ResultShape(this.#format, typedFields(this.#fields, types)));
  }
}
