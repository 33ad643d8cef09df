import type { FieldDescription } from '../../protocol/backend.ts';
import { JsonBuffer } from '../json/buffer.ts';
import { type Field, type RowEncoder, repeatedNames } from '../json/row.ts';
import type { Parts } from '../json/value-encoder.ts';
import { repeatedColumn, type Warning } from '../session/warnings.ts';
import type { ResultFormat } from './formats/result-format.ts';
import type { StatementOutcome } from './statement-outcome.ts';
import type { TypeCatalog } from './type-catalog.ts';

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
