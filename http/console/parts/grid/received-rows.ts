import { type ReadonlySignal, signal } from '@preact/signals';
import { eachElement } from '../../api/raw-json.ts';
import type { GridColumn, GridSource } from './grid-source.ts';

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
