/*
 * Where rows and columns are. Only those in view are in the document. Browsers limit the height of an element, so the scroll range of very
 * many rows is shorter than the rows are high: then the distance between a row's place in the range and its own height changes.
 */

export const ROW_PX = 28;
export const HEAD_PX = 42;
/** Firefox has the least: 17,895,697 px. */
const RANGE_MAX_PX = 15_000_000;
/** Rows in the document above and below those in view. */
const SPARE_ROWS = 12;

/** How high the scroll range of the rows is. */
export function rangeOf(rowCount: number): number {
  return Math.min(rowCount * ROW_PX, RANGE_MAX_PX);
}

export interface Scroll {
  /** What the element says. */
  readonly top: number;
  /** How much farther down everything is in the scroll range than its height among all rows. Negative, or 0 where all rows have their place. */
  readonly shift: number;
}

/**
 * What a scroll of the element means: a short one moves the rows as far, a long one goes to the same part of all rows.
 * @param height of what is in view
 */
export function scrolled(before: Scroll, top: number, rowCount: number, height: number): Scroll {
  const full = rowCount * ROW_PX;
  const range = rangeOf(rowCount);
  const last = range - height;
  if (full === range || top <= 0 || last <= 0) return { top, shift: 0 };
  if (top >= last - 1) return { top, shift: range - full };
  const moved = top - before.shift;
  const isShort = Math.abs(top - before.top) <= height && moved >= 0 && moved <= full - height;
  return isShort ? { top, shift: before.shift } : { top, shift: top - Math.round((top / last) * (full - height)) };
}

/** The scroll that has this height of all rows at the top. */
export function scrollTo(offset: number, rowCount: number, height: number): Scroll {
  const full = rowCount * ROW_PX;
  const range = rangeOf(rowCount);
  const wanted = Math.max(0, Math.min(offset, full - height));
  if (full === range) return { top: wanted, shift: 0 };
  const top = Math.round((wanted / (full - height)) * (range - height));
  return { top, shift: top - wanted };
}

/** The scroll that has the row in view, as near as possible to the present one. */
export function scrollToRow(now: Scroll, row: number, rowCount: number, height: number): Scroll {
  const offset = now.top - now.shift;
  const start = row * ROW_PX;
  if (start < offset) return scrollTo(start, rowCount, height);
  return start + ROW_PX > offset + height ? scrollTo(start + ROW_PX - height, rowCount, height) : now;
}

export interface Range {
  readonly from: number;
  /** Exclusive. */
  readonly to: number;
}

/** The cells in these rows and columns. */
export interface Selection {
  readonly rows: Range;
  readonly columns: Range;
}

export function rowsInView({ top, shift }: Scroll, rowCount: number, height: number): Range {
  const first = Math.floor((top - shift) / ROW_PX);
  const to = Math.min(rowCount, first + Math.ceil(height / ROW_PX) + 1 + SPARE_ROWS);
  return { from: Math.max(0, Math.min(first - SPARE_ROWS, to)), to };
}

/** Widths of columns, and where they begin. */
export class Columns {
  readonly widths: readonly number[];
  /** One more than there are columns: the last is the width of all. */
  readonly starts: readonly number[];

  constructor(widths: readonly number[]) {
    this.widths = widths;
    let start = 0;
    this.starts = [0, ...widths.map((width) => (start += width))];
  }

  get width(): number {
    return this.starts[this.widths.length] ?? 0;
  }

  startOf(column: number): number {
    return this.starts[column] ?? this.width;
  }

  widthOf(column: number): number {
    return this.widths[column] ?? 0;
  }

  /** Those that are at least partly between the offsets, and one more at each side. */
  between(left: number, right: number): Range {
    return { from: Math.max(0, this.#at(left) - 1), to: Math.min(this.widths.length, this.#at(right) + 2) };
  }

  /** The column at this offset. */
  #at(offset: number): number {
    let low = 0;
    let high = this.widths.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.startOf(middle) <= offset) low = middle;
      else high = middle - 1;
    }
    return low;
  }
}
