import { describe, expect, it } from 'vitest';
import { Columns, ROW_PX, rangeOf, rowsInView, scrolled, scrollTo, scrollToRow } from '../../../http/console/grid/geometry.ts';

const HEIGHT = 500;
const TOP = { top: 0, shift: 0 };

describe.each([100, 100_000, 2_000_000, 50_000_000])('%i rows', (rowCount) => {
  const full = rowCount * ROW_PX;
  const offsetOf = ({ top, shift }: { readonly top: number; readonly shift: number }) => top - shift;

  it('have a range that browsers can have', () => {
    expect(rangeOf(rowCount)).toBe(Math.min(full, 15_000_000));
  });

  it('are all reached by the bar', () => {
    const end = scrolled(TOP, rangeOf(rowCount) - HEIGHT, rowCount, HEIGHT);
    expect(offsetOf(end)).toBe(full - HEIGHT);
    expect(rowsInView(end, rowCount, HEIGHT).to).toBe(rowCount);
    expect(offsetOf(scrolled(end, 0, rowCount, HEIGHT))).toBe(0);
    const half = scrolled(TOP, (rangeOf(rowCount) - HEIGHT) / 2, rowCount, HEIGHT);
    expect(Math.abs(offsetOf(half) - (full - HEIGHT) / 2)).toBeLessThanOrEqual(1);
  });

  it('move as far as they are scrolled by a little', () => {
    const middle = scrollTo(full / 2, rowCount, HEIGHT);
    expect(Math.round(offsetOf(scrolled(middle, middle.top + 100, rowCount, HEIGHT)) - offsetOf(middle))).toBe(100);
    expect(Math.round(offsetOf(scrolled(middle, middle.top - 100, rowCount, HEIGHT)) - offsetOf(middle))).toBe(-100);
  });

  it('come into view one by one', () => {
    for (const row of [0, 1, Math.floor(rowCount / 3), rowCount - 2, rowCount - 1]) {
      const scroll = scrollToRow(TOP, row, rowCount, HEIGHT);
      expect(row * ROW_PX).toBeGreaterThanOrEqual(offsetOf(scroll));
      expect((row + 1) * ROW_PX).toBeLessThanOrEqual(offsetOf(scroll) + HEIGHT);
      const { from, to } = rowsInView(scroll, rowCount, HEIGHT);
      expect(from <= row && row < to && to - from < 60).toBe(true);
      // What is in view stays where it is.
      expect(scrollToRow(scroll, row, rowCount, HEIGHT)).toBe(scroll);
      expect(scroll.top).toBeGreaterThanOrEqual(0);
      expect(scroll.top).toBeLessThanOrEqual(rangeOf(rowCount) - HEIGHT);
    }
  });
});

it('fewer rows than fit are all in view', () => {
  expect(rowsInView(TOP, 3, HEIGHT)).toEqual({ from: 0, to: 3 });
  expect(rowsInView(TOP, 0, HEIGHT)).toEqual({ from: 0, to: 0 });
  expect(scrolled(TOP, 0, 3, HEIGHT)).toEqual(TOP);
});

describe('columns', () => {
  const columns = new Columns(Array.from({ length: 1_600 }, (_, index) => 50 + (index % 3) * 10));

  it('begin where the ones before end', () => {
    expect([0, 1, 2, 3, 1_600].map((column) => columns.startOf(column))).toEqual([0, 50, 110, 180, 95_990]);
    expect(columns.width).toBe(95_990);
  });

  it('are found by their offset', () => {
    expect(columns.between(0, 100)).toEqual({ from: 0, to: 3 });
    expect(columns.between(95_900, 96_400)).toEqual({ from: 1_597, to: 1_600 });
    expect(new Columns([]).between(0, 100)).toEqual({ from: 0, to: 0 });
  });
});
