import type { GridCommands } from './commands.ts';
import type { Cell } from './grid-state.ts';

interface Extent {
  readonly lastRow: number;
  readonly lastColumn: number;
  readonly pageRows: number;
}

type Step = (cell: Cell, extent: Extent, isFar: boolean) => Cell;

/** With Ctrl or Cmd: to the end. @see https://www.w3.org/WAI/ARIA/apg/patterns/grid/ */
const STEPS: Readonly<Record<string, Step>> = {
  ArrowUp: ({ row, column }, _, isFar) => ({ row: isFar ? 0 : row - 1, column }),
  ArrowDown: ({ row, column }, { lastRow }, isFar) => ({ row: isFar ? lastRow : row + 1, column }),
  ArrowLeft: ({ row, column }, _, isFar) => ({ row, column: isFar ? 0 : column - 1 }),
  ArrowRight: ({ row, column }, { lastColumn }, isFar) => ({ row, column: isFar ? lastColumn : column + 1 }),
  PageUp: ({ row, column }, { pageRows }) => ({ row: Math.max(0, row - pageRows), column }),
  PageDown: ({ row, column }, { pageRows }) => ({ row: row + pageRows, column }),
  Home: ({ row }, _, isFar) => ({ row: isFar ? 0 : row, column: 0 }),
  End: ({ row }, { lastRow, lastColumn }, isFar) => ({ row: isFar ? lastRow : row, column: lastColumn }),
};

/** Does what a key means in the grid. @returns whether it means anything */
export function handleKey(event: KeyboardEvent, commands: GridCommands): boolean {
  const { state } = commands;
  const { row, column } = state.current.peek();
  const { key, shiftKey, altKey } = event;
  const isControl = event.ctrlKey || event.metaKey;
  if (altKey && shiftKey && (key === 'ArrowRight' || key === 'ArrowLeft')) commands.resize(key === 'ArrowRight' ? 1 : -1);
  else if (altKey) return false;
  else if (STEPS[key] !== undefined) {
    const { rowCount, columns } = commands.props.source;
    const extent = { lastRow: rowCount - 1, lastColumn: columns.length - 1, pageRows: state.pageRows };
    state.goTo(STEPS[key]({ row, column }, extent, isControl), shiftKey);
  } else if (key === 'Escape' && !state.isCollapsed) state.goTo({ row, column });
  else if (isControl) return handleControl(key.toLowerCase(), shiftKey, commands);
  else return handlePlain(event, commands);
  return true;
}

function handleControl(key: string, isShift: boolean, commands: GridCommands): boolean {
  if (isShift) return false;
  if (key === 'c') commands.copy('value');
  else if (key === 'a') commands.selectAll();
  else if (key === 'backspace') commands.setNull();
  else return false;
  return true;
}

function handlePlain({ key, shiftKey }: KeyboardEvent, commands: GridCommands): boolean {
  const cell = commands.state.current.peek();
  const isHead = cell.row < 0;
  if (key === 'ContextMenu' || (key === 'F10' && shiftKey)) commands.openMenu();
  else if (isHead && (key === 'Enter' || key === ' ')) commands.chooseColumn(cell.column);
  else if (isHead) return false;
  else if (key === 'Enter' && shiftKey) commands.show();
  else if (key === 'Enter' || key === 'F2') commands.edit();
  else if (!commands.canEdit(cell)) return false;
  else if (key === 'Delete') commands.setNull();
  else if (key === 'Backspace') commands.edit('');
  else if (key.length === 1) commands.edit(key);
  else return false;
  return true;
}
