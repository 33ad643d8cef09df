import type { Cell } from './grid-state.ts';

export interface Extent {
  readonly rowCount: number;
  readonly columnCount: number;
  readonly pageRows: number;
}

type Step = (cell: Cell, extent: Extent, isFar: boolean) => Cell;

/** With Ctrl or Cmd: to the end. @see https://www.w3.org/WAI/ARIA/apg/patterns/grid/ */
const STEPS: Readonly<Record<string, Step>> = {
  ArrowUp: ({ row, column }, _, isFar) => ({ row: isFar ? 0 : row - 1, column }),
  ArrowDown: ({ row, column }, { rowCount }, isFar) => ({ row: isFar ? rowCount - 1 : row + 1, column }),
  ArrowLeft: ({ row, column }, _, isFar) => ({ row, column: isFar ? 0 : column - 1 }),
  ArrowRight: ({ row, column }, { columnCount }, isFar) => ({ row, column: isFar ? columnCount - 1 : column + 1 }),
  PageUp: ({ row, column }, { pageRows }) => ({ row: Math.max(0, row - pageRows), column }),
  PageDown: ({ row, column }, { pageRows }) => ({ row: row + pageRows, column }),
  Home: ({ row }, _, isFar) => ({ row: isFar ? 0 : row, column: 0 }),
  End: ({ row }, { rowCount, columnCount }, isFar) => ({ row: isFar ? rowCount - 1 : row, column: columnCount - 1 }),
};

/** Where a key goes from a cell; undefined: it is none of those that move. */
export function stepOf(event: KeyboardEvent, from: Cell, extent: Extent): Cell | undefined {
  if (event.altKey) return undefined;
  return STEPS[event.key]?.(from, extent, event.ctrlKey || event.metaKey);
}
