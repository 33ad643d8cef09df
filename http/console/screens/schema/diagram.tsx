import { Fragment } from 'preact';
import { useMemo, useState } from 'preact/hooks';
import type { Schema, SchemaTable } from '../../api/database-schema.ts';
import { useLoad } from '../../api/use-load.ts';
import { formatCount, formatType } from '../../format.ts';
import { Button } from '../../parts/button.tsx';
import { Empty } from '../../parts/empty.tsx';
import { Checkbox, Choice } from '../../parts/fields.tsx';
import { Loaded } from '../../parts/loaded.tsx';
import { Notice } from '../../parts/notice.tsx';
import { qualifiedName } from '../../quoting.ts';
import { hrefOf } from '../../shell/route.ts';
import {
  type Box,
  type Graph,
  graphOf,
  HEAD_PX,
  keyColumns,
  type Layout,
  layOut,
  type Point,
  type Relation,
  ROW_PX,
  rowOffset,
  useViewport,
  zoomStep,
} from './diagram-layout.ts';
import { TableLink } from './table-link.tsx';

/** Of more tables only the keys are shown at first. */
const ALL_COLUMNS_MAX = 40;

interface DiagramProps {
  readonly schema: Schema;
  /** Only this table, and those that it has relations with. */
  readonly focus?: SchemaTable;
}

/** Tables and their relations, as boxes and lines. */
export function Diagram({ schema, focus }: DiagramProps) {
  const [schemaName, setSchemaName] = useState('');
  const [chosen, setOnlyKeys] = useState<boolean>();
  const onlyKeys = chosen ?? (focus === undefined && schema.tables.length > ALL_COLUMNS_MAX);
  const graph = useMemo(
    () => graphOf(schema, { schemaName: schemaName === '' ? undefined : schemaName, focus, onlyKeys }),
    [schema, schemaName, focus, onlyKeys],
  );
  const load = useLoad(async (abandoned) => ({ graph, layout: await layOut(graph, abandoned) }), [graph]);
  const names = [...new Set(schema.tables.map((table) => table.schema))];
  return (
    <div class="schema-diagram">
      <div class="diagram-bar">
        {focus === undefined && names.length > 1 && (
          <Choice
            label="Schema"
            hideLabel
            value={schemaName}
            options={[['', 'all schemas'], ...names.map((name) => [name, name] as const)]}
            onChange={setSchemaName}
          />
        )}
        <Checkbox label="Only keys" isChecked={onlyKeys} onChange={setOnlyKeys} />
        <span class="muted">
          {formatCount(graph.boxes.length)} {graph.boxes.length === 1 ? 'table' : 'tables'}, {formatCount(graph.relations.length)}{' '}
          {graph.relations.length === 1 ? 'relation' : 'relations'}
        </span>
      </div>
      {graph.left > 0 && (
        <Notice tone="info">
          <p>
            {formatCount(graph.left)} tables are left out: so many cannot be laid out. Those with the most relations are shown. Choose a
            schema, or see a table's own diagram on its page.
          </p>
        </Notice>
      )}
      {graph.boxes.length === 0 ? (
        <Empty icon="schema" title="There is no table" />
      ) : (
        <Loaded of={load}>{(laidOut) => <Canvas {...laidOut} focus={focus && qualifiedName(focus.schema, focus.name)} />}</Loaded>
      )}
      <RelationList graph={graph} />
    </div>
  );
}

interface CanvasProps {
  readonly graph: Graph;
  readonly layout: Layout;
  readonly focus: string | undefined;
}

function Canvas({ graph, layout, focus }: CanvasProps) {
  const { area, content, zoom, showAll, onKeyDown } = useViewport(layout.width, layout.height);
  const drawing = useMemo(() => <Drawing graph={graph} layout={layout} focus={focus} />, [graph, layout, focus]);
  return (
    <div class="canvas-frame">
      {/* biome-ignore lint/a11y/useSemanticElements: a fieldset is for fields */}
      <div
        ref={area}
        class="canvas"
        role="group"
        // biome-ignore lint/a11y/noNoninteractiveTabindex: arrows move it, plus and minus scale it
        tabIndex={0}
        onKeyDown={onKeyDown}
        aria-label="Diagram. Arrow keys move it, plus and minus scale it, 0 shows all. The relations follow as a list."
      >
        <svg aria-hidden="true">
          <g ref={content}>{drawing}</g>
        </svg>
      </div>
      <div class="canvas-buttons">
        <Button icon="plus" label="Closer" onClick={() => zoom(zoomStep)} />
        <Button icon="minus" label="Further away" onClick={() => zoom(1 / zoomStep)} />
        <Button icon="fit" label="Show all" onClick={showAll} />
      </div>
    </div>
  );
}

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
function Drawing({ graph, layout, focus }: DrawingProps) {
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

/** What the diagram says, in words. */
function RelationList({ graph: { relations } }: { readonly graph: Graph }) {
  const [isOpen, setOpen] = useState(false);
  if (relations.length === 0) return null;
  return (
    <details class="relation-list" onToggle={({ currentTarget }) => setOpen(currentTarget.open)}>
      <summary>The relations as a list</summary>
      {isOpen && (
        <ul>
          {relations.map(({ id, from, to, key, isUnique }) => (
            <li key={id}>
              <TableLink schema={from.table.schema} name={from.table.name} address={from.id} /> ({key.columns.join(', ')}) refers to{' '}
              <TableLink schema={to.table.schema} name={to.table.name} address={to.id} /> ({key.referencedColumns.join(', ')})
              <span class="muted">, {isUnique ? 'one to one' : 'many to one'}</span>
            </li>
          ))}
        </ul>
      )}
    </details>
  );
}
