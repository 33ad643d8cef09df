import { useMemo, useState } from 'preact/hooks';
import type { Schema, SchemaTable } from '../../../api/database-schema.ts';
import { useLoad } from '../../../api/use-load.ts';
import { formatCount } from '../../../format.ts';
import { Button } from '../../../parts/button.tsx';
import { Empty } from '../../../parts/empty.tsx';
import { Checkbox, Choice } from '../../../parts/fields.tsx';
import { Loaded } from '../../../parts/loaded.tsx';
import { Notice } from '../../../parts/notice.tsx';
import { qualifiedName } from '../../../quoting/quote-identifier.ts';
import { Drawing } from './drawing.tsx';
import { type Graph, graphOf } from './graph.ts';
import { type Layout, layOut } from './layout.ts';
import { RelationList } from './relation-list.tsx';
import { useViewport, zoomStep } from './viewport.ts';

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
