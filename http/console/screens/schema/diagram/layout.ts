import type { Graph, Relation } from './graph.ts';
import { columnsOf } from './layers.ts';
import type { Box } from './table-box.ts';

export interface Point {
  readonly x: number;
  readonly y: number;
}

/** Where everything is; boxes by their upper left corners. */
export interface Layout {
  readonly width: number;
  readonly height: number;
  readonly places: ReadonlyMap<string, Point>;
  /** What a line passes between its boxes. */
  readonly bends: ReadonlyMap<string, readonly Point[]>;
}

const GAP_PX = 44;
const RANK_GAP_PX = 84;
const BOX_GAP_PX = 26;
const LOOP_PX = 30;
/** The page handles what happens at least so often. */
const SLICE_MS = 30;
const ASPECT = 1.5;
/** Groups that are higher than that, and so many times as high as wide, are folded. */
const [FOLDED_MIN_PX, FOLDED_ASPECT] = [2_000, 1.2];
const FOLDED_GAP_PX = 60;

/** Lays out each group of related tables by itself, one after the other, and puts the groups beside each other. */
export async function layOut(graph: Graph, abandoned: AbortSignal): Promise<Layout> {
  const groups: Layout[] = [];
  let sliceEnd = performance.now() + SLICE_MS;
  for (const { boxes, relations } of groupsOf(graph)) {
    if (performance.now() > sliceEnd) {
      await new Promise((resolve) => setTimeout(resolve));
      abandoned.throwIfAborted();
      sliceEnd = performance.now() + SLICE_MS;
    }
    groups.push(layOutGroup(boxes, relations));
  }
  return packed(groups);
}

function layOutGroup(boxes: readonly Box[], relations: readonly Relation[]): Layout {
  const columns = columnsOf(boxes, relations, BOX_GAP_PX);
  const top = Math.min(...columns.flat().map(({ y, height }) => y - height / 2));
  const places = new Map<string, Point>();
  const bends = new Map<string, Point[]>();
  let [x, height] = [0, 0];
  for (const column of columns) {
    const width = Math.max(...column.map(({ box }) => box?.width ?? 0));
    for (const { box, line, y, height: itemHeight } of column) {
      if (box !== undefined) places.set(box.id, { x: x + (width - box.width) / 2, y: y - itemHeight / 2 - top });
      // Level between the boxes that it passes.
      if (line !== undefined) bends.set(line, [...(bends.get(line) ?? []), { x, y: y - top }, { x: x + width, y: y - top }]);
      height = Math.max(height, y + itemHeight / 2 - top);
    }
    x += width + RANK_GAP_PX;
  }
  const loops = relations.some(({ from, to }) => from === to) ? LOOP_PX : 0;
  const layout = { width: x - RANK_GAP_PX + loops, height, places, bends };
  return height > FOLDED_MIN_PX && height > layout.width * FOLDED_ASPECT ? folded(boxes, places) : layout;
}

/** Where many tables refer to the same one, they make a rank too high to be seen: it becomes several columns beside each other. */
function folded(boxes: readonly Box[], places: ReadonlyMap<string, Point>): Layout {
  const area = boxes.reduce((sum, { width, height }) => sum + (width + FOLDED_GAP_PX) * (height + BOX_GAP_PX), 0);
  const heightMax = Math.sqrt(area / ASPECT);
  const ranks = new Map<number, Box[]>();
  for (const box of boxes) {
    const middle = Math.round((places.get(box.id)?.x ?? 0) + box.width / 2);
    ranks.set(middle, [...(ranks.get(middle) ?? []), box]);
  }
  const next = new Map<string, Point>();
  let [x, height] = [0, 0];
  for (const [, rank] of [...ranks].sort(([one], [other]) => one - other)) {
    let [y, columnWidth] = [0, 0];
    for (const box of rank.sort((one, other) => (places.get(one.id)?.y ?? 0) - (places.get(other.id)?.y ?? 0))) {
      if (y > 0 && y + box.height > heightMax) {
        x += columnWidth + FOLDED_GAP_PX;
        [y, columnWidth] = [0, 0];
      }
      next.set(box.id, { x, y });
      y += box.height + BOX_GAP_PX;
      columnWidth = Math.max(columnWidth, box.width);
      height = Math.max(height, y - BOX_GAP_PX);
    }
    x += columnWidth + FOLDED_GAP_PX;
  }
  return { width: x - FOLDED_GAP_PX, height, places: next, bends: new Map() };
}

/** Tables that have relations with each other, directly or not. The largest group is the first. */
function groupsOf({ boxes, relations }: Graph): readonly Pick<Graph, 'boxes' | 'relations'>[] {
  const parents = new Map(boxes.map(({ id }) => [id, id]));
  const root = (id: string): string => {
    let at = id;
    for (let up = parents.get(at) ?? at; up !== at; up = parents.get(at) ?? at) at = up;
    return at;
  };
  for (const { from, to } of relations) parents.set(root(from.id), root(to.id));
  const groups = new Map<string, { boxes: Box[]; relations: Relation[] }>();
  const groupOf = (id: string) => {
    const key = root(id);
    const known = groups.get(key) ?? { boxes: [], relations: [] };
    groups.set(key, known);
    return known;
  };
  for (const box of boxes) groupOf(box.id).boxes.push(box);
  for (const relation of relations) groupOf(relation.from.id).relations.push(relation);
  return [...groups.values()].sort((one, other) => other.boxes.length - one.boxes.length);
}

/** In rows of that width of several which shows most. */
function packed(groups: readonly Layout[]): Layout {
  const area = groups.reduce((sum, { width, height }) => sum + (width + GAP_PX) * (height + GAP_PX), 0);
  const widest = Math.max(...groups.map(({ width }) => width));
  const sorted = groups.toSorted((one, other) => other.height - one.height);
  const [best] = [1, 1.25, 1.5, 2]
    .map((times) => inRows(sorted, Math.max(widest * times, Math.sqrt(area * ASPECT))))
    .sort((one, other) => sizeOf(one) - sizeOf(other));
  return best ?? { width: 0, height: 0, places: new Map(), bends: new Map() };
}

function sizeOf({ width, height }: Layout): number {
  return Math.max(width / ASPECT, height);
}

function inRows(groups: readonly Layout[], rowWidth: number): Layout {
  const places = new Map<string, Point>();
  const bends = new Map<string, readonly Point[]>();
  const corner = { x: 0, y: 0 };
  let [rowHeight, width] = [0, 0];
  for (const group of groups) {
    if (corner.x > 0 && corner.x + group.width > rowWidth) {
      corner.x = 0;
      corner.y += rowHeight + GAP_PX;
      rowHeight = 0;
    }
    const moved = ({ x, y }: Point): Point => ({ x: x + corner.x, y: y + corner.y });
    for (const [id, place] of group.places) places.set(id, moved(place));
    for (const [id, points] of group.bends) bends.set(id, points.map(moved));
    corner.x += group.width + GAP_PX;
    rowHeight = Math.max(rowHeight, group.height);
    width = Math.max(width, corner.x - GAP_PX);
  }
  return { width, height: corner.y + rowHeight, places, bends };
}
