import { batch, type ReadonlySignal, signal } from '@preact/signals';
import { formatType } from '../format.ts';
import { Columns, type Range, ROW_PX, rowsInView, type Scroll, type Selection, scrolled, scrollTo, scrollToRow } from './geometry.ts';
import type { GridSource } from './source.ts';
import { previewOf } from './value-text.ts';

export interface Cell {
  /** -1: the head. */
  readonly row: number;
  readonly column: number;
}

interface View {
  readonly rows: Range;
  readonly columns: Range;
  readonly shift: number;
}

/** What the grid is in, as it is laid out. */
interface Box {
  scrollTop: number;
  scrollLeft: number;
  readonly clientWidth: number;
  readonly clientHeight: number;
}

const CHARACTER_PX = 7.6;
const CELL_PADDING_PX = 22;
const WIDTH_MIN_PX = 64;
const WIDTH_MAX_PX = 340;
/** Values that are looked at to find the widths. */
const SAMPLE_VALUES = 10_000;
const SAMPLE_ROWS = 60;
const NOWHERE: Range = { from: 0, to: 0 };

/** What of one source is in view, and which cells are meant. */
export class GridState {
  readonly source: GridSource;
  readonly current = signal<Cell>({ row: 0, column: 0 });
  readonly #anchor = signal<Cell>({ row: 0, column: 0 });
  readonly #columns = signal(new Columns([]));
  readonly #view = signal<View>({ rows: NOWHERE, columns: NOWHERE, shift: 0 });
  readonly #chosenWidths: Map<number, number> = new Map();
  #scroll: Scroll = { top: 0, shift: 0 };
  #sampled = -1;
  #box: Box | undefined;
  #gutter = 0;
  #head = 0;

  /** @param before of the rows that were shown so far: if they have the same columns, these stay as wide */
  constructor(source: GridSource, before?: GridState) {
    this.source = source;
    if (before !== undefined && hasSameColumns(source, before.source)) {
      this.#chosenWidths = new Map(before.#chosenWidths);
      const { column } = before.current.peek();
      this.select({ row: 0, column }, { row: 0, column });
    }
    this.fitColumns();
  }

  get columns(): ReadonlySignal<Columns> {
    return this.#columns;
  }

  get view(): ReadonlySignal<View> {
    return this.#view;
  }

  /** Whether one cell is selected, which is the current one. */
  get isCollapsed(): boolean {
    const [one, other] = [this.current.peek(), this.#anchor.peek()];
    return one.row === other.row && one.column === other.column;
  }

  get selection(): Selection {
    const { value: one } = this.current;
    const { value: other } = this.#anchor;
    return {
      rows: { from: Math.max(0, Math.min(one.row, other.row)), to: Math.max(one.row, other.row) + 1 },
      columns: { from: Math.min(one.column, other.column), to: Math.max(one.column, other.column) + 1 },
    };
  }

  /** @param gutter the width of what is always at the left @param head the height of what is always at the top */
  attach(box: Box, gutter: number, head: number): void {
    this.#box = box;
    this.#gutter = gutter;
    this.#head = head;
    this.look();
  }

  /** Rows that fit into a page. */
  get pageRows(): number {
    return Math.max(1, Math.floor(this.#height / ROW_PX) - 1);
  }

  get #height(): number {
    return Math.max(0, (this.#box?.clientHeight ?? 0) - this.#head);
  }

  /** Rows have come or gone. */
  onRows(): void {
    const { current } = this;
    const last = Math.max(0, this.source.rowCount - 1);
    const { row, column } = current.peek();
    if (row > last) this.select({ row: last, column }, { row: last, column });
    this.fitColumns();
    this.look();
  }

  /** Widths by content while the first rows come in. */
  fitColumns(): void {
    const { columns, rowCount } = this.source;
    const sampled = Math.min(rowCount, SAMPLE_ROWS, Math.max(3, Math.floor(SAMPLE_VALUES / Math.max(1, columns.length))));
    if (sampled <= this.#sampled) return;
    this.#sampled = sampled;
    this.#layOut();
  }

  #layOut(): void {
    this.#columns.value = new Columns(this.source.columns.map((_, index) => this.#chosenWidths.get(index) ?? this.contentWidth(index)));
    this.look();
  }

  /** @returns the width in pixels that shows the values of the first rows */
  contentWidth(index: number): number {
    const { source } = this;
    const column = source.columns[index];
    if (column === undefined) return WIDTH_MIN_PX;
    let longest = Math.max(column.name.length + (column.isKey ? 5 : 2), formatType(column.type).length * 0.9);
    for (let row = 0; row < this.#sampled; row += 1)
      longest = Math.max(longest, columnsIn(previewOf(source.valueAt(row, index), column.type)));
    return Math.round(Math.min(WIDTH_MAX_PX, Math.max(WIDTH_MIN_PX, longest * CHARACTER_PX + CELL_PADDING_PX)));
  }

  /** @param width in pixels; undefined: by content */
  resize(column: number, width: number | undefined): void {
    if (width === undefined) this.#chosenWidths.delete(column);
    else this.#chosenWidths.set(column, Math.max(WIDTH_MIN_PX / 2, Math.round(width)));
    this.#layOut();
  }

  /** The element has been scrolled. */
  onScroll(): void {
    if (this.#box === undefined) return;
    this.#scroll = scrolled(this.#scroll, this.#box.scrollTop, this.source.rowCount, this.#height);
    this.look();
  }

  /** Many rows were scrolled by a little each time: the bar shows again where they are. */
  onScrollEnd(): void {
    if (this.#scroll.shift !== 0) this.#scrollTo(scrollTo(this.#scroll.top - this.#scroll.shift, this.source.rowCount, this.#height));
  }

  #scrollTo(scroll: Scroll): void {
    if (this.#box === undefined) return;
    this.#box.scrollTop = scroll.top;
    // It rounds.
    const { scrollTop } = this.#box;
    this.#scroll = { top: scrollTop, shift: scroll.shift };
    this.look();
  }

  /** Finds out what is in view. */
  look(): void {
    if (this.#box === undefined) return;
    const { scrollLeft, clientWidth } = this.#box;
    const rows = rowsInView(this.#scroll, this.source.rowCount, this.#height);
    const columns = this.#columns.value.between(scrollLeft, scrollLeft + clientWidth - this.#gutter);
    const { shift } = this.#scroll;
    const before = this.#view.peek();
    if (isSame(before.rows, rows) && isSame(before.columns, columns) && before.shift === shift) return;
    this.#view.value = { rows, columns, shift };
  }

  /** Makes a cell the current one, and brings it into view. @param extends keeps the other end of the selection */
  goTo(cell: Cell, isExtended = false): void {
    const { rowCount, columns } = this.source;
    const row = Math.max(isExtended ? 0 : -1, Math.min(cell.row, rowCount - 1));
    const column = Math.max(0, Math.min(cell.column, columns.length - 1));
    this.select({ row, column }, isExtended ? this.#anchor.peek() : { row, column });
    if (row >= 0) this.#scrollTo(scrollToRow(this.#scroll, row, rowCount, this.#height));
    this.#showColumn(column);
  }

  /** @param anchor the other end; by default it stays */
  select(current: Cell, anchor = this.#anchor.peek()): void {
    batch(() => {
      this.current.value = current;
      this.#anchor.value = anchor;
    });
  }

  #showColumn(column: number): void {
    if (this.#box === undefined) return;
    const { value: columns } = this.#columns;
    const start = columns.startOf(column);
    const end = start + columns.widthOf(column);
    const width = this.#box.clientWidth - this.#gutter;
    if (start < this.#box.scrollLeft || end - start > width) this.#box.scrollLeft = start;
    else if (end > this.#box.scrollLeft + width) this.#box.scrollLeft = end - width;
    this.look();
  }
}

function hasSameColumns(one: GridSource, other: GridSource): boolean {
  const isSameColumn = (index: number) =>
    one.columns[index]?.name === other.columns[index]?.name && one.columns[index]?.type === other.columns[index]?.type;
  return one.columns.length === other.columns.length && one.columns.every((_, index) => isSameColumn(index));
}

function isSame(one: Range, other: Range): boolean {
  return one.from === other.from && one.to === other.to;
}

/** Characters of East Asian scripts are twice as wide. */
function columnsIn(text: string): number {
  let columns = text.length;
  for (let at = 0; at < text.length && columns < 60; at += 1) if (text.charCodeAt(at) > 0x2e80) columns += 1;
  return columns;
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
interface GridHandle {
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
