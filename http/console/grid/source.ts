import { type ReadonlySignal, signal } from '@preact/signals';
import { eachElement } from '../api/raw-json.ts';

export interface GridColumn {
  readonly name: string;
  /** As PostgreSQL writes it: `bigint`, `text[]`. */
  readonly type: string;
  readonly isKey?: boolean;
}

/** How a row differs from what the database has. */
export type RowState = 'new' | 'changed' | 'deleted' | 'conflict';

/** What a grid shows. Values are JSON texts exactly as the API sent them: `null`, `12`, `"a"`, `[1,null]`. */
export interface GridSource {
  readonly columns: readonly GridColumn[];
  /** Changes whenever rows were added or changed. */
  readonly version: ReadonlySignal<number>;
  readonly rowCount: number;
  valueAt(row: number, column: number): string;
  rowState?(row: number): RowState | undefined;
  isChanged?(row: number, column: number): boolean;
  /** What stands in place of NULL where there is no value yet: `default`. */
  placeholderAt?(row: number, column: number): string | undefined;
}

/** More than a screen shows. */
const KNOWN_ROWS = 512;

interface KnownRow {
  readonly row: number;
  /** Where each value begins and ends in the row's text. */
  readonly offsets: Uint32Array;
}

/** Rows as they come, kept as the texts that they are. Values are looked up only in rows that are read, and only these rows' offsets are kept. */
export class ReceivedRows implements GridSource {
  readonly columns: readonly GridColumn[];
  readonly #version = signal(0);
  readonly #rows: string[] = [];
  /** A row has one place, so neighbours do not replace each other. */
  readonly #known: (KnownRow | undefined)[] = new Array(KNOWN_ROWS).fill(undefined);

  constructor(columns: readonly GridColumn[]) {
    this.columns = columns;
  }

  get version(): ReadonlySignal<number> {
    return this.#version;
  }

  get rowCount(): number {
    return this.#rows.length;
  }

  /** @param rows each the text of a JSON array with a value for every column */
  append(rows: readonly string[]): void {
    for (const row of rows) this.#rows.push(row);
    this.#version.value += 1;
  }

  valueAt(row: number, column: number): string {
    const text = this.#rows[row];
    if (text === undefined) return 'null';
    const offsets = this.#offsetsOf(row, text);
    const end = offsets[2 * column + 1] ?? 0;
    return end === 0 ? 'null' : text.slice(offsets[2 * column], end);
  }

  #offsetsOf(row: number, text: string): Uint32Array {
    const known = this.#known[row % KNOWN_ROWS];
    if (known?.row === row) return known.offsets;
    const offsets = new Uint32Array(2 * this.columns.length);
    let next = 0;
    for (const [start, end] of eachElement(text)) {
      offsets[next] = start;
      offsets[next + 1] = end;
      next += 2;
    }
    this.#known[row % KNOWN_ROWS] = { row, offsets };
    return offsets;
  }
}
