import type { RefObject } from 'preact';
import { useCallback, useEffect, useRef } from 'preact/hooks';
import { type ForeignKey, isTable, type Schema, type SchemaColumn, type SchemaTable } from '../../api/database-schema.ts';
import { formatType } from '../../format.ts';
import { qualifiedName } from '../../quoting.ts';

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

/** A box, or a place in a column that a line passes. */
interface Item {
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

type Column = Item[];

const LINE_PX = 12;
const ORDER_SWEEPS = 12;
const MOVE_SWEEPS = 16;

/**
 * Tables in columns, each to the left of those that it refers to, so that lines are short and cross seldom.
 * @param gap between what stands in a column, in pixels
 * @see Sugiyama, Tagawa, Toda: Methods for Visual Understanding of Hierarchical System Structures, 1981
 */
function columnsOf(boxes: readonly Box[], relations: readonly Relation[], gap: number): readonly Column[] {
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

/** Of more tables the layout would take too long. */
const TABLES_MAX = 400;

export interface Relation {
  readonly id: string;
  readonly from: Box;
  readonly to: Box;
  readonly key: ForeignKey;
  /** At most one row refers to each. */
  readonly isUnique: boolean;
}

export interface Graph {
  readonly boxes: readonly Box[];
  readonly relations: readonly Relation[];
  /** Tables that are left out, because there are too many. */
  readonly left: number;
}

interface GraphOptions {
  /** Only the tables of this schema. */
  readonly schemaName?: string | undefined;
  /** Only this table, and those that it has relations with. */
  readonly focus?: SchemaTable | undefined;
  readonly onlyKeys: boolean;
}

export function graphOf(schema: Schema, { schemaName, focus, onlyKeys }: GraphOptions): Graph {
  const all = schema.tables.filter((table) => isTable(table) && table.partitionOf === null);
  const wanted = focus === undefined ? all.filter((table) => schemaName === undefined || table.schema === schemaName) : around(focus, all);
  const shown = wanted.length <= TABLES_MAX ? wanted : mostRelated(wanted);
  const boxes = shown.map((table) => boxOf(table, onlyKeys));
  const byId = new Map(boxes.map((box) => [box.id, box]));
  const relations = boxes.flatMap((from) =>
    from.table.foreignKeys.flatMap((key) => {
      const to = byId.get(targetOf(key));
      return to === undefined ? [] : [{ id: `${from.id} ${key.name}`, from, to, key, isUnique: isUnique(from.table, key) }];
    }),
  );
  return { boxes, relations, left: wanted.length - shown.length };
}

function targetOf({ referencedSchema, referencedTable }: ForeignKey): string {
  return qualifiedName(referencedSchema, referencedTable);
}

function around(focus: SchemaTable, all: readonly SchemaTable[]): readonly SchemaTable[] {
  const id = idOf(focus);
  const targets = new Set([id, ...focus.foreignKeys.map(targetOf)]);
  return all.filter((table) => targets.has(idOf(table)) || table.foreignKeys.some((key) => targetOf(key) === id));
}

function mostRelated(tables: readonly SchemaTable[]): readonly SchemaTable[] {
  const counts = new Map<string, number>();
  const count = (id: string) => counts.set(id, (counts.get(id) ?? 0) + 1);
  for (const table of tables) {
    for (const key of table.foreignKeys) {
      count(idOf(table));
      count(targetOf(key));
    }
  }
  return tables.toSorted((one, other) => (counts.get(idOf(other)) ?? 0) - (counts.get(idOf(one)) ?? 0)).slice(0, TABLES_MAX);
}

function isUnique({ primaryKey, unique }: SchemaTable, { columns }: ForeignKey): boolean {
  return [...(primaryKey === null ? [] : [primaryKey]), ...unique].some((key) => key.columns.every((column) => columns.includes(column)));
}

export const ROW_PX = 19;
export const HEAD_PX = 28;
const TEXT_PX = 6.7;
const TITLE_PX = 7.6;
const [WIDTH_MIN_PX, WIDTH_MAX_PX] = [130, 300];
const PADDING_PX = 46;
/** More columns are only counted. */
const COLUMNS_MAX = 24;

/** A table as it is drawn, with its size in pixels. */
export interface Box {
  readonly id: string;
  readonly table: SchemaTable;
  readonly columns: readonly SchemaColumn[];
  /** Columns that are not shown. */
  readonly hidden: number;
  readonly width: number;
  readonly height: number;
}

function boxOf(table: SchemaTable, onlyKeys: boolean): Box {
  const keys = keyColumns(table);
  const wanted = onlyKeys ? table.columns.filter(({ name }) => keys.has(name)) : table.columns;
  const columns = wanted.slice(0, COLUMNS_MAX);
  const hidden = table.columns.length - columns.length;
  const widest = Math.max(
    table.name.length * TITLE_PX,
    ...columns.map(({ name, type }) => (name.length + Math.min(formatType(type).length, 14) + 2) * TEXT_PX),
  );
  return {
    id: idOf(table),
    table,
    columns,
    hidden,
    width: Math.round(Math.min(Math.max(widest + PADDING_PX, WIDTH_MIN_PX), WIDTH_MAX_PX)),
    height: HEAD_PX + (columns.length + (hidden > 0 ? 1 : 0)) * ROW_PX + 6,
  };
}

function idOf({ schema, name }: SchemaTable): string {
  return qualifiedName(schema, name);
}

/** Those of its primary and foreign keys. */
export function keyColumns({ primaryKey, foreignKeys }: SchemaTable): ReadonlySet<string> {
  return new Set([...(primaryKey?.columns ?? []), ...foreignKeys.flatMap(({ columns }) => columns)]);
}

/** How far below the upper edge of a box a column is; the head for one that is not shown. */
export function rowOffset({ columns }: Box, name: string | undefined): number {
  const index = columns.findIndex((column) => column.name === name);
  return index < 0 ? HEAD_PX / 2 : HEAD_PX + index * ROW_PX + ROW_PX / 2 + 3;
}

interface View {
  readonly x: number;
  readonly y: number;
  readonly scale: number;
}

const [SCALE_MIN, SCALE_MAX] = [0.04, 2.5];
const FIT_MAX = 1.1;
const MARGIN_PX = 24;
const STEP = 1.25;
const PAN_PX = 60;
/** Below it, what is written in the boxes cannot be read, and is not drawn. */
const FAR_SCALE = 0.38;
/** A pointer that moves less clicks. */
const CLICK_PX = 4;

interface Viewport {
  readonly area: RefObject<HTMLDivElement | null>;
  readonly content: RefObject<SVGGElement | null>;
  readonly zoom: (factor: number) => void;
  readonly showAll: () => void;
  readonly onKeyDown: (event: KeyboardEvent) => void;
}

export const zoomStep = STEP;

/** Moves and scales an SVG group: by dragging, pinching, the wheel and keys. Nothing is drawn anew for it. */
export function useViewport(width: number, height: number): Viewport {
  const area = useRef<HTMLDivElement>(null);
  const content = useRef<SVGGElement>(null);
  const view = useRef<View>({ x: 0, y: 0, scale: 1 });
  const set = useCallback((next: View) => {
    view.current = next;
    content.current?.setAttribute('transform', `translate(${next.x},${next.y}) scale(${next.scale})`);
    area.current?.classList.toggle('far', next.scale < FAR_SCALE);
  }, []);
  const showAll = useCallback(() => {
    const { clientWidth = 0, clientHeight = 0 } = area.current ?? {};
    if (clientWidth === 0 || width === 0) return;
    const wanted = Math.min((clientWidth - 2 * MARGIN_PX) / width, (clientHeight - 2 * MARGIN_PX) / height, FIT_MAX);
    const scale = Math.max(wanted, SCALE_MIN);
    set({ scale, x: (clientWidth - width * scale) / 2, y: (clientHeight - height * scale) / 2 });
  }, [width, height]);
  /** @param at what stays where it is; undefined: the middle */
  const zoom = useCallback((factor: number, at?: { readonly x: number; readonly y: number }) => {
    const { clientWidth = 0, clientHeight = 0 } = area.current ?? {};
    const { x, y, scale } = view.current;
    const next = Math.min(Math.max(scale * factor, SCALE_MIN), SCALE_MAX);
    const { x: atX, y: atY } = at ?? { x: clientWidth / 2, y: clientHeight / 2 };
    set({ scale: next, x: atX - ((atX - x) * next) / scale, y: atY - ((atY - y) * next) / scale });
  }, []);
  const pan = useCallback((byX: number, byY: number) => {
    const { x, y, scale } = view.current;
    set({ x: x + byX, y: y + byY, scale });
  }, []);
  useEffect(() => {
    showAll();
    const observer = new ResizeObserver(showAll);
    if (area.current !== null) observer.observe(area.current);
    return () => observer.disconnect();
  }, [showAll]);
  useEffect(() => (area.current === null ? undefined : listen(area.current, zoom, pan)), []);
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const keys: Readonly<Record<string, () => void>> = {
      ArrowLeft: () => pan(PAN_PX, 0),
      ArrowRight: () => pan(-PAN_PX, 0),
      ArrowUp: () => pan(0, PAN_PX),
      ArrowDown: () => pan(0, -PAN_PX),
      '+': () => zoom(STEP),
      '=': () => zoom(STEP),
      '-': () => zoom(1 / STEP),
      '0': showAll,
    };
    const act = keys[event.key];
    if (act === undefined) return;
    act();
    event.preventDefault();
  };
  return { area, content, zoom, showAll, onKeyDown };
}

type Zoom = (factor: number, at: { readonly x: number; readonly y: number }) => void;
type Pan = (x: number, y: number) => void;

/** Pointers and the wheel. @returns what ends it */
function listen(area: HTMLElement, zoom: Zoom, pan: Pan): () => void {
  const pointers = new Map<number, { x: number; y: number }>();
  let moved = 0;
  const place = (event: MouseEvent) => {
    const { left, top } = area.getBoundingClientRect();
    return { x: event.clientX - left, y: event.clientY - top };
  };
  const down = (event: PointerEvent) => {
    if (event.button !== 0) return;
    if (pointers.size === 0) moved = 0;
    pointers.set(event.pointerId, place(event));
  };
  const move = (event: PointerEvent) => {
    const before = pointers.get(event.pointerId);
    if (before === undefined) return;
    const now = place(event);
    const other = [...pointers].find(([id]) => id !== event.pointerId)?.[1];
    moved += Math.hypot(now.x - before.x, now.y - before.y);
    // Only then, because what is captured is not clicked.
    if (moved > CLICK_PX) area.setPointerCapture(event.pointerId);
    if (other === undefined) pan(now.x - before.x, now.y - before.y);
    else zoom(distance(now, other) / Math.max(distance(before, other), 1), other);
    pointers.set(event.pointerId, now);
  };
  const up = (event: PointerEvent) => pointers.delete(event.pointerId);
  const click = (event: MouseEvent) => moved > CLICK_PX && event.preventDefault();
  const wheel = (event: WheelEvent) => {
    event.preventDefault();
    const pixels = event.deltaY * (event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 16 : 1);
    zoom(Math.exp(-Math.min(Math.max(pixels, -240), 240) / 400), place(event));
  };
  const drag = (event: Event) => event.preventDefault();
  const ended = new AbortController();
  const { signal } = ended;
  area.addEventListener('pointerdown', down, { signal });
  area.addEventListener('pointermove', move, { signal });
  area.addEventListener('pointerup', up, { signal });
  area.addEventListener('pointercancel', up, { signal });
  area.addEventListener('click', click, { signal, capture: true });
  area.addEventListener('dragstart', drag, { signal });
  area.addEventListener('wheel', wheel, { signal, passive: false });
  return () => ended.abort();
}

function distance(one: { x: number; y: number }, other: { x: number; y: number }): number {
  return Math.hypot(one.x - other.x, one.y - other.y);
}
