import { signal } from '@preact/signals';
import { useEffect, useId, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import type { Schema } from '../../api/database-schema.ts';
import { Field } from '../../parts/fields.tsx';
import { Icon } from '../../parts/icon.tsx';
import { goTo } from '../../shell/route.ts';
import { rowsOf, type TreeRow, treeOf } from './tree-model.ts';

const ROW_PX = 28;
/** Drawn above and below what is seen. */
const MARGIN_ROWS = 8;
/** Typed letters make one word while they follow each other so quickly. */
const TYPING_MS = 600;

/** They stay while other screens are shown. */
const toggled = signal<ReadonlySet<string>>(new Set());
const filter = signal('');

/**
 * All objects, of which only those in view are drawn. The focus stays on the tree itself.
 * @see https://www.w3.org/WAI/ARIA/apg/patterns/treeview/
 */
export function SchemaTree({ schema, current }: { readonly schema: Schema; readonly current: string }) {
  const nodes = useMemo(() => treeOf(schema), [schema]);
  const rows = useMemo(() => rowsOf(nodes, toggled.value, filter.value), [nodes, toggled.value, filter.value]);
  return (
    <nav class="schema-tree" aria-label="Objects">
      <Field
        label="Find by name"
        hideLabel
        type="search"
        placeholder="Find by name"
        value={filter.value}
        onInput={(text) => {
          filter.value = text;
        }}
      />
      {rows.length === 0 ? <p class="muted">Nothing has such a name.</p> : <Rows rows={rows} current={current} />}
    </nav>
  );
}

function Rows({ rows, current }: { readonly rows: readonly TreeRow[]; readonly current: string }) {
  const prefix = useId();
  const element = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, height: 800 });
  const [activeId, setActiveId] = useState<string>();
  const typed = useRef({ text: '', at: 0 });
  const found = rows.findIndex(({ node }) => node.id === (activeId ?? current));
  const active = Math.max(found, 0);

  useLayoutEffect(() => {
    const measure = () => setView({ top: element.current?.scrollTop ?? 0, height: element.current?.clientHeight ?? 0 });
    const observer = new ResizeObserver(measure);
    if (element.current !== null) observer.observe(element.current);
    return () => observer.disconnect();
  }, []);
  useEffect(() => setActiveId(undefined), [current]);
  useEffect(() => {
    const tree = element.current;
    if (tree === null || found < 0) return;
    const top = active * ROW_PX;
    if (top < tree.scrollTop) tree.scrollTop = top;
    else if (top + ROW_PX > tree.scrollTop + tree.clientHeight) tree.scrollTop = top + ROW_PX - tree.clientHeight;
  }, [activeId, current, view.height]);

  const move = (index: number) => {
    const row = rows[Math.min(Math.max(index, 0), rows.length - 1)];
    if (row !== undefined) setActiveId(row.node.id);
  };
  const open = ({ node }: TreeRow) => {
    if (node.address === undefined) toggle(node.id);
    else goTo('schema', node.address);
  };
  const search = (letter: string, at: number) => {
    const { text, at: before } = typed.current;
    typed.current = { text: at - before < TYPING_MS ? text + letter : letter, at };
    const wanted = typed.current.text.toLowerCase();
    const from = wanted.length > 1 ? active : active + 1;
    const next = [...rows.slice(from), ...rows.slice(0, from)].find(({ node }) => node.label.toLowerCase().startsWith(wanted));
    if (next !== undefined) setActiveId(next.node.id);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const row = rows[active];
    if (row === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor(view.height / ROW_PX) - 1);
    const keys: Readonly<Record<string, () => void>> = {
      ArrowDown: () => move(active + 1),
      ArrowUp: () => move(active - 1),
      PageDown: () => move(active + page),
      PageUp: () => move(active - page),
      Home: () => move(0),
      End: () => move(rows.length - 1),
      Enter: () => open(row),
      ' ': () => open(row),
      ArrowRight: () => (row.node.children.length > 0 && !row.isOpen ? toggle(row.node.id) : row.isOpen && move(active + 1)),
      ArrowLeft: () => (row.isOpen && filter.value === '' ? toggle(row.node.id) : row.parent !== undefined && setActiveId(row.parent)),
    };
    const act = keys[event.key];
    if (act !== undefined) act();
    else if (event.key.length === 1) search(event.key, event.timeStamp);
    else return;
    event.preventDefault();
  };

  const first = Math.max(0, Math.floor(view.top / ROW_PX) - MARGIN_ROWS);
  const last = Math.min(rows.length, Math.ceil((view.top + view.height) / ROW_PX) + MARGIN_ROWS);
  // What has the focus must be there.
  const shown = [...rows.keys()].slice(first, last);
  if (active < first) shown.unshift(active);
  if (active >= last) shown.push(active);
  return (
    <div
      ref={element}
      class="tree"
      role="tree"
      aria-label="Objects"
      tabIndex={0}
      aria-activedescendant={`${prefix}-${active}`}
      onScroll={({ currentTarget }) => setView({ top: currentTarget.scrollTop, height: currentTarget.clientHeight })}
      onKeyDown={onKeyDown}
    >
      <div class="tree-rows" role="presentation" style={{ height: `${rows.length * ROW_PX}px` }}>
        {shown.map((index) => {
          const row = rows[index];
          return (
            row && (
              <Row
                key={row.node.id}
                id={`${prefix}-${index}`}
                row={row}
                index={index}
                isCurrent={row.node.address === current}
                isActive={index === active}
                onOpen={() => {
                  setActiveId(row.node.id);
                  open(row);
                }}
              />
            )
          );
        })}
      </div>
    </div>
  );
}

function toggle(id: string): void {
  const next = new Set(toggled.peek());
  if (!next.delete(id)) next.add(id);
  toggled.value = next;
}

interface RowProps {
  readonly id: string;
  readonly row: TreeRow;
  readonly index: number;
  readonly isCurrent: boolean;
  readonly isActive: boolean;
  readonly onOpen: () => void;
}

function Row({ id, row: { node, level, position, siblings, isOpen }, index, isCurrent, isActive, onOpen }: RowProps) {
  const hasChildren = node.children.length > 0;
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: the tree has the focus, and hears its keys
    // biome-ignore lint/a11y/useFocusableInteractive: as above
    <div
      id={id}
      role="treeitem"
      aria-level={level}
      aria-posinset={position}
      aria-setsize={siblings}
      aria-expanded={hasChildren ? isOpen : undefined}
      aria-selected={isCurrent}
      class={isActive ? 'tree-row active' : 'tree-row'}
      style={{ top: `${index * ROW_PX}px`, paddingLeft: `${level * 14 - 8}px` }}
      onClick={onOpen}
      title={node.label}
    >
      {/* biome-ignore lint/a11y/useKeyWithClickEvents: the arrow keys do the same */}
      {/* biome-ignore lint/a11y/noStaticElementInteractions: the row says whether it is open */}
      <span
        class={isOpen ? 'twist open' : 'twist'}
        onClick={(event) => {
          if (!hasChildren) return;
          event.stopPropagation();
          toggle(node.id);
        }}
      >
        {hasChildren && <Icon name="right" />}
      </span>
      {node.icon !== undefined && <Icon name={node.icon} />}
      <span class="tree-label">{node.label}</span>
      {node.note !== undefined && <span class="tree-note">{node.note}</span>}
    </div>
  );
}
