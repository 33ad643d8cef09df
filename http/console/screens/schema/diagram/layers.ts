import type { Relation } from './graph.ts';
import type { Box } from './table-box.ts';

/** A box, or a place in a column that a line passes. */
export interface Item {
  readonly box: Box | undefined;
  /** The relation whose line passes. */
  readonly line: string | undefined;
  readonly height: number;
  /** What it is connected with in the next column to the right, and to the left. */
  readonly right: Item[];
  readonly left: Item[];
  /** Its place in its column, from above. */
  place: number;
  /** Its middle. */
  y: number;
}

export type Column = Item[];

const LINE_PX = 12;
const ORDER_SWEEPS = 12;
const MOVE_SWEEPS = 16;

/**
 * Tables in columns, each to the left of those that it refers to, so that lines are short and cross seldom.
 * @param gap between what stands in a column, in pixels
 * @see Sugiyama, Tagawa, Toda: Methods for Visual Understanding of Hierarchical System Structures, 1981
 */
export function columnsOf(boxes: readonly Box[], relations: readonly Relation[], gap: number): readonly Column[] {
  const edges = relations.filter(({ from, to }) => from !== to);
  const ranks = ranksOf(boxes, edges);
  const columns = columnsByRank(boxes, edges, ranks);
  order(columns);
  align(columns, gap);
  return columns;
}

/** How far from the right each is: further than all that it refers to, circles aside. */
function ranksOf(boxes: readonly Box[], edges: readonly Relation[]): ReadonlyMap<Box, number> {
  const targets = new Map<Box, Box[]>(boxes.map((box) => [box, []]));
  for (const { from, to } of edges) targets.get(from)?.push(to);
  const ranks = new Map<Box, number>();
  const open = new Set<Box>();
  const rank = (box: Box): number => {
    const known = ranks.get(box);
    if (known !== undefined) return known;
    open.add(box);
    // What is still open refers to this one too: that is a circle, and one of its lines goes the other way.
    const found = (targets.get(box) ?? []).reduce((most, target) => (open.has(target) ? most : Math.max(most, rank(target) + 1)), 0);
    open.delete(box);
    ranks.set(box, found);
    return found;
  };
  for (const box of boxes) rank(box);
  return ranks;
}

/** The columns from the left, with places for the lines that pass through them. */
function columnsByRank(boxes: readonly Box[], edges: readonly Relation[], ranks: ReadonlyMap<Box, number>): readonly Column[] {
  const last = Math.max(...ranks.values());
  const columns: Column[] = Array.from({ length: last + 1 }, () => []);
  const columnOf = (box: Box) => last - (ranks.get(box) ?? 0);
  const add = (column: number, box: Box | undefined, line: string | undefined): Item => {
    const item: Item = { box, line, height: box?.height ?? LINE_PX, right: [], left: [], place: columns[column]?.length ?? 0, y: 0 };
    columns[column]?.push(item);
    return item;
  };
  const items = new Map(boxes.map((box) => [box, add(columnOf(box), box, undefined)]));
  for (const { id, from, to } of edges) {
    const [left, right] = columnOf(from) <= columnOf(to) ? [from, to] : [to, from];
    let before = items.get(left);
    for (let column = columnOf(left) + 1; column <= columnOf(right); column++) {
      const next = column === columnOf(right) ? items.get(right) : add(column, undefined, id);
      if (before === undefined || next === undefined) break;
      before.right.push(next);
      next.left.push(before);
      before = next;
    }
  }
  return columns;
}

/** Moves each to the middle of what it is connected with, from one side and from the other, and keeps the order with the fewest crossings. */
function order(columns: readonly Column[]): void {
  let best = columns.map((column) => [...column]);
  let fewest = Number.POSITIVE_INFINITY;
  for (let sweep = 0; sweep < ORDER_SWEEPS && fewest > 0; sweep++) {
    const side = sweep % 2 === 0 ? 'left' : 'right';
    for (const column of side === 'left' ? columns : columns.toReversed()) {
      const middles = new Map(column.map((item) => [item, mean(item[side], ({ place }) => place) ?? item.place]));
      column.sort((one, other) => (middles.get(one) ?? 0) - (middles.get(other) ?? 0));
      for (const [place, item] of column.entries()) item.place = place;
    }
    const crossings = columns.reduce((sum, column) => sum + crossingsFrom(column), 0);
    if (crossings >= fewest) continue;
    fewest = crossings;
    best = columns.map((column) => [...column]);
  }
  for (const [index, column] of columns.entries()) {
    column.splice(0, column.length, ...(best[index] ?? []));
    for (const [place, item] of column.entries()) item.place = place;
  }
}

/** How many pairs of lines to the right cross. */
function crossingsFrom(column: Column): number {
  const ends = column.flatMap(({ right }) => right.map(({ place }) => place).sort((one, other) => one - other));
  let crossings = 0;
  for (const [index, end] of ends.entries())
    for (let next = index + 1; next < ends.length; next++) if ((ends[next] ?? 0) < end) crossings++;
  return crossings;
}

/** Gives each a height near those that it is connected with. */
function align(columns: readonly Column[], gap: number): void {
  for (const column of columns) settle(column, gap, () => 0);
  for (let sweep = 0; sweep < MOVE_SWEEPS; sweep++) {
    const wished = ({ left, right, y }: Item) =>
      mean(sweep % 4 === 0 ? left : sweep % 4 === 2 ? right : [...left, ...right], (item) => item.y) ?? y;
    for (const column of sweep % 2 === 0 ? columns : columns.toReversed()) settle(column, gap, wished);
  }
}

interface Block {
  sum: number;
  count: number;
}

/**
 * Puts the items of a column as near to where they are wished as their order and the gaps between them allow: the least sum of squares.
 * @see https://en.wikipedia.org/wiki/Isotonic_regression
 */
function settle(column: Column, gap: number, wished: (item: Item) => number): void {
  let offset = 0;
  // How far below the first each is at least.
  const offsets = column.map(({ height }, index) => {
    offset += index === 0 ? 0 : ((column[index - 1]?.height ?? 0) + height) / 2 + gap;
    return offset;
  });
  const blocks: Block[] = [];
  for (const [index, item] of column.entries()) {
    let block: Block = { sum: wished(item) - (offsets[index] ?? 0), count: 1 };
    for (let above = blocks.at(-1); above !== undefined && above.sum / above.count >= block.sum / block.count; above = blocks.at(-1)) {
      block = { sum: above.sum + block.sum, count: above.count + block.count };
      blocks.pop();
    }
    blocks.push(block);
  }
  let index = 0;
  for (const { sum, count } of blocks) {
    for (const end = index + count; index < end; index++) {
      const item = column[index];
      if (item !== undefined) item.y = sum / count + (offsets[index] ?? 0);
    }
  }
}

function mean(items: readonly Item[], of: (item: Item) => number): number | undefined {
  return items.length === 0 ? undefined : items.reduce((sum, item) => sum + of(item), 0) / items.length;
}
