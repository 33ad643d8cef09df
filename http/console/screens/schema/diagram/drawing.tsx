import { Fragment } from 'preact';
import { formatType } from '../../../format.ts';
import { hrefOf } from '../../../shell/route.ts';
import type { Graph, Relation } from './graph.ts';
import type { Layout, Point } from './layout.ts';
import { type Box, HEAD_PX, keyColumns, ROW_PX, rowOffset } from './table-box.ts';

const FOOT_PX = 10;
const LOOP_PX = 26;
const FAR_LETTERS_MAX = 16;

interface DrawingProps {
  readonly graph: Graph;
  readonly layout: Layout;
  /** The table that it is about. */
  readonly focus: string | undefined;
}

/** What is drawn; none of it changes while it is moved and scaled. */
export function Drawing({ graph, layout, focus }: DrawingProps) {
  return (
    <>
      <g class="relations">
        {graph.relations.map((relation) => (
          <Line key={relation.id} relation={relation} layout={layout} />
        ))}
      </g>
      {graph.boxes.map((box) => (
        <TableBox key={box.id} box={box} at={layout.places.get(box.id)} isFocus={box.id === focus} />
      ))}
    </>
  );
}

function TableBox({ box, at, isFocus }: { readonly box: Box; readonly at: Point | undefined; readonly isFocus: boolean }) {
  if (at === undefined) return null;
  const { id, table, columns, hidden, width, height } = box;
  const keys = keyColumns(table);
  const primary = new Set(table.primaryKey?.columns);
  const letters = Math.floor((width - 46) / 6.7);
  return (
    <a href={hrefOf('schema', id)} tabindex={-1} class={isFocus ? 'box focus' : 'box'} draggable={false}>
      <g transform={`translate(${at.x},${at.y})`}>
        <title>{id}</title>
        <rect class="body" width={width} height={height} rx="6" />
        <path class="head" d={`M0 ${HEAD_PX}V6a6 6 0 0 1 6-6h${width - 12}a6 6 0 0 1 6 6v${HEAD_PX - 6}z`} />
        <text class="title" x="10" y="18.5">
          {shortened(table.name, Math.floor((width - 20) / 7.4))}
        </text>
        <text class="far-title" x={width / 2} y={height / 2} font-size={farSize(table.name, width)}>
          {shortened(table.name, FAR_LETTERS_MAX)}
        </text>
        {columns.map(({ name, type, notNull }, index) => {
          const y = HEAD_PX + index * ROW_PX + 16;
          const shownType = shortened(formatType(type), Math.max(letters - name.length, 3));
          return (
            <Fragment key={name}>
              {keys.has(name) && <circle class={primary.has(name) ? 'key primary' : 'key'} cx="12" cy={y - 4} r="3" />}
              <text class={notNull ? 'column' : 'column may-be-null'} x="22" y={y}>
                {shortened(name, letters - 4)}
              </text>
              <text class="type" x={width - 8} y={y} text-anchor="end">
                {shownType}
              </text>
            </Fragment>
          );
        })}
        {hidden > 0 && (
          <text class="type" x="22" y={HEAD_PX + columns.length * ROW_PX + 16}>
            {hidden} more
          </text>
        )}
      </g>
    </a>
  );
}

/** From afar only the name is read, in letters as large as fit. */
function farSize(name: string, width: number): number {
  return Math.min((width - 12) / (Math.min(name.length, FAR_LETTERS_MAX) * 0.62), 36);
}

function shortened(text: string, max: number): string {
  return text.length <= max ? text : `${text.slice(0, Math.max(1, max - 1))}…`;
}

/** From the column that refers, many rows of which may refer to the same, to the one that it refers to. */
function Line({ relation, layout }: { readonly relation: Relation; readonly layout: Layout }) {
  const { from, to, key, isUnique } = relation;
  const [start, end] = [layout.places.get(from.id), layout.places.get(to.id)];
  if (start === undefined || end === undefined) return null;
  const [fromY, toY] = [start.y + rowOffset(from, key.columns[0]), end.y + rowOffset(to, key.referencedColumns[0])];
  if (from === to) {
    const x = start.x + from.width;
    return (
      <g>
        <path d={`M${x} ${fromY}C${x + LOOP_PX} ${fromY} ${x + LOOP_PX} ${toY + 1} ${x} ${toY + 1}`} />
        <path d={foot(x, fromY, 1, isUnique)} />
      </g>
    );
  }
  // The lines leave a box towards the other one.
  const direction = start.x + from.width / 2 <= end.x + to.width / 2 ? 1 : -1;
  const bends = layout.bends.get(relation.id) ?? [];
  const first = { x: direction > 0 ? start.x + from.width : start.x, y: fromY };
  const last = { x: direction > 0 ? end.x : end.x + to.width, y: toY };
  return (
    <g>
      <title>{`${from.id} (${key.columns.join(', ')}) refers to ${to.id} (${key.referencedColumns.join(', ')})`}</title>
      <path d={curve([first, ...(direction > 0 ? bends : bends.toReversed()), last], direction)} />
      <path d={foot(first.x, first.y, direction, isUnique)} />
      <path d={`M${last.x - direction * 8} ${last.y - 5}v10`} />
    </g>
  );
}

/** A crow's foot for many, a bar for one. */
function foot(x: number, y: number, direction: number, isOne: boolean): string {
  if (isOne) return `M${x + direction * 8} ${y - 5}v10`;
  const tip = x + direction * FOOT_PX;
  return `M${x} ${y - 5}L${tip} ${y}L${x} ${y + 5}`;
}

/** Through all points, level at each; straight for a little at both ends. */
function curve(points: readonly Point[], direction: number): string {
  const [first, ...rest] = points;
  if (first === undefined) return '';
  let path = `M${first.x} ${first.y}h${direction * FOOT_PX}`;
  let before: Point = { x: first.x + direction * FOOT_PX, y: first.y };
  rest.forEach((point, index) => {
    const target = index === rest.length - 1 ? { x: point.x - direction * FOOT_PX, y: point.y } : point;
    const middle = (before.x + target.x) / 2;
    path += `C${middle} ${before.y} ${middle} ${target.y} ${target.x} ${target.y}`;
    before = target;
  });
  return `${path}h${direction * FOOT_PX}`;
}
