import { ServiceError } from '../errors.ts';
import type { FieldDescription } from '../protocol/backend.ts';
import { TimeSlices } from '../runtime/event-loop.ts';
import type { ResultFormat } from './formats.ts';
import { JsonBuffer } from './json-buffer.ts';
import { type Field, type Parts, type RowEncoder, repeatedNames } from './json-values.ts';
import type { Replies } from './pipeline.ts';
import { keepResults, type StatementOutcome } from './result-budget.ts';
import type { SqlSession } from './session.ts';
import { TypeCatalog } from './types.ts';
import { repeatedColumn, type Warning } from './warnings.ts';

/** The parts of a result that depend on its columns and not on its rows. The columns' types must be known. */
export class ResultShape {
  readonly format: ResultFormat;
  /** The bytes before the rows. */
  readonly head: Buffer;
  readonly encode: RowEncoder;
  readonly warnings: readonly Warning[];
  /** The size of the last result of this shape, from which the memory for the next one is chosen. */
  lastBytes: number | undefined;

  constructor(format: ResultFormat, fields: readonly Field[]) {
    const head = new JsonBuffer();
    format.open(head, fields);
    this.format = format;
    this.head = head.whole();
    this.encode = format.rows(fields);
    this.warnings = format.losesRepeatedNames ? repeatedNames(fields).map(repeatedColumn) : [];
  }
}

/** Writes one result as its rows arrive. */
export class ResultWriter {
  readonly out: JsonBuffer;
  readonly #shape: ResultShape;
  #isFirst = true;

  constructor(shape: ResultShape, out = new JsonBuffer()) {
    this.#shape = shape;
    this.out = out;
    out.copy(shape.head);
  }

  /** @param start offset of the DataRow's body */
  row(source: Buffer, start: number): void {
    const { format, encode } = this.#shape;
    if (!this.#isFirst) this.out.copy(format.separator);
    this.#isFirst = false;
    encode(this.out, source, start);
  }

  /** As {@link row}, for a large row. */
  *rowInParts(source: Buffer, start: number): Parts {
    const { format, encode } = this.#shape;
    if (!this.#isFirst) this.out.copy(format.separator);
    this.#isFirst = false;
    yield* encode.inParts(this.out, source, start);
  }

  close(outcome: StatementOutcome, warnings: readonly Warning[]): void {
    const { format, warnings: own } = this.#shape;
    format.close(this.out, outcome, own.length === 0 ? warnings : [...own, ...warnings]);
  }
}

export function typedFields(descriptions: readonly FieldDescription[], types: TypeCatalog): readonly Field[] {
  return descriptions.map((description) => ({ ...description, type: types.get(description.dataTypeOid) }));
}

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
