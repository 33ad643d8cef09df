import type { ReadonlySignal } from '@preact/signals';

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
