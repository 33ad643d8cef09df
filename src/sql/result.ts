import type { CommandTag, FieldDescription } from '../protocol/backend.ts';
import { JsonBuffer } from './json/buffer.ts';
import { type Field, type RowEncoder, repeatedNames } from './json/row.ts';
import type { ResultLayout, StatementOutcome } from './layout.ts';
import { repeatedColumn, type Warning } from './notices.ts';
import type { TypeCatalog } from './type-catalog.ts';

/** Writes one result as its rows arrive. The columns' types must be known when it is opened. */
export class ResultWriter {
  readonly out: JsonBuffer;
  readonly #layout: ResultLayout;
  readonly #warnings: Warning[] = [];
  #encode: RowEncoder | undefined;
  #isFirst = true;

  constructor(layout: ResultLayout, out = new JsonBuffer()) {
    this.#layout = layout;
    this.out = out;
  }

  open(fields: readonly Field[]): void {
    if (this.#layout.losesRepeatedNames) this.#warnings.push(...repeatedNames(fields).map(repeatedColumn));
    this.#encode = this.#layout.rows(fields);
    this.#layout.open(this.out, fields);
  }

  /** @param start of the DataRow's body */
  row(source: Buffer, start: number): void {
    if (!this.#isFirst) this.out.copy(this.#layout.separator);
    this.#isFirst = false;
    this.#encode?.(this.out, source, start);
  }

  close(outcome: StatementOutcome, warnings: readonly Warning[]): void {
    this.#layout.close(this.out, outcome, [...this.#warnings, ...warnings]);
  }
}

export function typedFields(descriptions: readonly FieldDescription[], types: TypeCatalog): readonly Field[] {
  return descriptions.map(({ name, dataTypeOid }) => ({ name, type: types.get(dataTypeOid) }));
}

export function outcomeOf(tag: CommandTag | undefined, startedAt: number): StatementOutcome {
  const durationMs = Math.round((performance.now() - startedAt) * 1_000) / 1_000;
  return { command: tag?.command ?? '', rowCount: tag?.rowCount ?? null, durationMs };
}
