import type { ReadonlySignal } from '@preact/signals';
import type { Range } from './geometry.ts';

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

export interface CellCommand {
  readonly title: string;
  readonly run: () => void;
}

export interface GridSort {
  readonly column: number;
  readonly isDescending: boolean;
}

/** For what stands outside the grid. */
export interface GridHandle {
  /** Makes a cell the current one, brings it into view, and gives the grid the keyboard. */
  goTo(row: number, column: number): void;
}

export interface GridProps {
  readonly label: string;
  readonly source: GridSource;
  /** For "copy as INSERT", quoted already. */
  readonly tableName?: string | undefined;
  readonly sort?: GridSort | undefined;
  readonly onSort?: ((column: number) => void) | undefined;
  /** Makes cells editable: by Enter, F2, a double click or typing; the Delete key sets NULL, which is undefined. */
  readonly onEdit?: ((row: number, column: number, text: string | undefined) => void) | undefined;
  readonly canEdit?: ((row: number, column: number) => boolean) | undefined;
  /** More entries of the menu of a cell, which is one of a selection in these rows. */
  readonly cellCommands?: ((row: number, column: number, rows: Range) => readonly CellCommand[]) | undefined;
  /** Called with the current cell when it changes. */
  readonly onCurrent?: ((row: number, column: number) => void) | undefined;
  /** Called when the last rows come into view: to load more. */
  readonly onEnd?: (() => void) | undefined;
  readonly onReady?: ((handle: GridHandle) => void) | undefined;
}
