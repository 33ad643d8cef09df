import { signal } from '@preact/signals';
import { formatCount } from '../format.ts';
import { copyText } from '../parts/copying.tsx';
import type { MenuEntry } from '../parts/menu.tsx';
import { quoteIdentifier } from '../quoting.ts';
import { say, sayError } from '../shell/toasts.tsx';
import { csvOf, insertOf, jsonOf, tsvOf } from './clipboard-formats.ts';
import type { Selection } from './geometry.ts';
import type { Cell, GridProps, GridState } from './grid-state.ts';
import { textOf } from './value-text.ts';

/** A cell whose value is edited in its place, or open in a dialog; the text begins as this. */
export interface OpenCell extends Cell {
  readonly text: string | undefined;
}

interface MenuPlace {
  readonly left: number;
  readonly top: number;
}

/** Longer values, and those of several lines, are edited in a dialog. */
const IN_PLACE_MAX = 200;
const RESIZE_STEP_PX = 24;

/** What can be done with the current cell and the selection. */
export class GridCommands {
  readonly state: GridState;
  readonly edited = signal<OpenCell | undefined>(undefined);
  readonly shown = signal<OpenCell | undefined>(undefined);
  readonly menu = signal<MenuPlace | undefined>(undefined);
  props: GridProps;
  /** The element that has the keyboard. */
  #element: HTMLElement | undefined;

  constructor(state: GridState, props: GridProps) {
    this.state = state;
    this.props = props;
  }

  attach(element: HTMLElement): void {
    this.#element = element;
  }

  /** Gives the keyboard back to the grid. */
  focus(): void {
    this.#element?.focus({ preventScroll: true });
  }

  goTo(cell: Cell): void {
    this.state.onRows();
    this.state.goTo(cell);
    this.focus();
  }

  /** Opens the menu of the current cell. @param place in the window; by default at the cell */
  openMenu(place?: MenuPlace): void {
    const { row, column } = this.state.current.peek();
    const cell = this.#element?.querySelector(`[data-row="${row}"] [data-column="${column}"]`) ?? this.#element;
    const box = cell?.getBoundingClientRect();
    this.menu.value = place ?? { left: box?.left ?? 0, top: box?.bottom ?? 0 };
  }

  canEdit({ row, column }: Cell): boolean {
    const { onEdit, canEdit, source } = this.props;
    return onEdit !== undefined && row >= 0 && row < source.rowCount && (canEdit?.(row, column) ?? true);
  }

  textAt({ row, column }: Cell): string | undefined {
    const { source } = this.props;
    return textOf(source.valueAt(row, column), source.columns[column]?.type ?? 'text');
  }

  /** Edits the current cell, or shows it where it cannot be edited. @param replacement what is typed in place of its text */
  edit(replacement?: string): void {
    const cell = this.state.current.peek();
    const text = replacement ?? this.textAt(cell);
    const isLong = text !== undefined && (text.length > IN_PLACE_MAX || /[\r\n]/.test(text));
    if (!this.canEdit(cell) || isLong) this.show(replacement);
    else this.edited.value = { ...cell, text };
  }

  /** Opens the current cell in a dialog. */
  show(draft?: string): void {
    const cell = this.state.current.peek();
    if (cell.row < 0 || cell.row >= this.props.source.rowCount) return;
    this.edited.value = undefined;
    this.shown.value = { ...cell, text: draft ?? this.textAt(cell) };
  }

  /** Ends the editing of a cell. Nothing is called where its text is as before. */
  commit(cell: Cell, text: string | undefined): void {
    this.edited.value = undefined;
    this.shown.value = undefined;
    if (this.canEdit(cell) && text !== this.textAt(cell)) this.props.onEdit?.(cell.row, cell.column, text);
  }

  giveUp(): void {
    this.edited.value = undefined;
    this.shown.value = undefined;
    this.focus();
  }

  setNull(): void {
    const { row, column } = this.state.current.peek();
    if (!this.canEdit({ row, column })) return;
    // NULL is not the default that a new row would have.
    if (this.props.source.placeholderAt?.(row, column) === undefined) this.commit({ row, column }, undefined);
    else this.props.onEdit?.(row, column, undefined);
  }

  /** Sorts by the column where that is possible, and selects it where not. */
  chooseColumn(column: number): void {
    const { onSort, source } = this.props;
    if (onSort === undefined) this.state.select({ row: 0, column }, { row: source.rowCount - 1, column });
    else {
      this.state.select({ row: -1, column }, { row: -1, column });
      onSort(column);
    }
  }

  resize(difference: number): void {
    const { column } = this.state.current.peek();
    this.state.resize(column, this.state.columns.peek().widthOf(column) + difference * RESIZE_STEP_PX);
  }

  selectAll(): void {
    const { rowCount, columns } = this.props.source;
    this.state.select({ row: 0, column: 0 }, { row: rowCount - 1, column: columns.length - 1 });
  }

  copy(format: 'value' | 'tsv' | 'csv' | 'json' | 'insert'): void {
    const { source, tableName = 'table_name' } = this.props;
    const { row, column } = this.state.current.peek();
    if (row < 0) this.#put(source.columns[column]?.name ?? '', 'the name');
    if (row < 0 || source.rowCount === 0) return;
    const selection = format === 'value' ? this.state.selection : this.#rowsOrSelection();
    try {
      if (format === 'value' && isOne(selection)) this.#put(this.textAt(this.state.current.peek()) ?? '', 'the value');
      else if (format === 'csv') this.#put(csvOf(source, selection), sizeOf(selection));
      else if (format === 'json') this.#put(jsonOf(source, selection), sizeOf(selection));
      else if (format === 'insert') this.#put(insertOf(source, selection, tableName, quoteIdentifier), sizeOf(selection));
      else this.#put(tsvOf(source, selection), sizeOf(selection));
    } catch (error) {
      sayError(error instanceof RangeError ? new Error('These are too many rows for the clipboard.') : error);
    }
  }

  #put(text: string, what: string): void {
    copyText(text).then(
      () => say(`Copied ${what}.`),
      (error) => sayError(error),
    );
  }

  /** Of one cell the whole row. */
  #rowsOrSelection(): Selection {
    const { selection } = this.state;
    return isOne(selection) ? { rows: selection.rows, columns: { from: 0, to: this.props.source.columns.length } } : selection;
  }

  entries(): readonly MenuEntry[] {
    const cell = this.state.current.peek();
    if (cell.row < 0) return this.#columnEntries(cell.column);
    const isSingle = isOne(this.state.selection);
    const what = isSingle ? 'row' : 'selection';
    const canEdit = this.canEdit(cell);
    return [
      ...(canEdit ? [{ title: 'Edit', keys: 'Enter', run: () => this.edit() }] : []),
      { title: canEdit ? 'Edit in a dialog' : 'Open', keys: canEdit ? 'Shift Enter' : 'Enter', run: () => this.show() },
      ...(canEdit ? [{ title: 'Set NULL', keys: 'Delete', run: () => this.setNull() }] : []),
      { title: isSingle ? 'Copy value' : 'Copy selection', keys: 'Ctrl C', isFirst: true, run: () => this.copy('value') },
      ...(isSingle ? [{ title: 'Copy row', run: () => this.copy('tsv') }] : []),
      { title: `Copy ${what} as CSV`, run: () => this.copy('csv') },
      { title: `Copy ${what} as JSON`, run: () => this.copy('json') },
      { title: `Copy ${what} as INSERT`, run: () => this.copy('insert') },
      ...(this.props.cellCommands?.(cell.row, cell.column, this.state.selection.rows) ?? []).map((entry, index) => ({
        ...entry,
        isFirst: index === 0,
      })),
    ];
  }

  #columnEntries(column: number): readonly MenuEntry[] {
    return [
      ...(this.props.onSort === undefined ? [] : [{ title: 'Sort', keys: 'Enter', run: () => this.chooseColumn(column) }]),
      { title: 'Copy name', keys: 'Ctrl C', run: () => this.copy('value') },
      { title: 'Wider', keys: 'Alt Shift →', isFirst: true, run: () => this.resize(1) },
      { title: 'Narrower', keys: 'Alt Shift ←', run: () => this.resize(-1) },
      { title: 'As wide as its values', run: () => this.state.resize(column, undefined) },
    ];
  }
}

function isOne({ rows, columns }: Selection): boolean {
  return rows.to - rows.from === 1 && columns.to - columns.from === 1;
}

function sizeOf({ rows }: Selection): string {
  const count = rows.to - rows.from;
  return count === 1 ? 'one row' : `${formatCount(count)} rows`;
}

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
