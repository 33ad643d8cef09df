import type { Range } from './geometry.ts';
import type { GridSource } from './grid-source.ts';

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
