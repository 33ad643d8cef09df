import type { JSX } from 'preact';
import { useEffect, useId, useLayoutEffect, useMemo, useRef } from 'preact/hooks';
import { isIn, Row } from './cells.tsx';
import { HEAD_PX, ROW_PX, rangeOf } from './geometry.ts';
import { GridState } from './grid-state.ts';
import { type GridSort, Head } from './head.tsx';
import { stepOf } from './keys.ts';
import type { GridSource } from './source.ts';

export type { GridSort } from './head.tsx';

export interface GridProps {
  readonly label: string;
  readonly source: GridSource;
  /** For "copy as INSERT", quoted already. */
  readonly tableName?: string;
  readonly sort?: GridSort | undefined;
  readonly onSort?: (column: number) => void;
  /** Makes cells editable: undefined is NULL. */
  readonly onEdit?: (row: number, column: number, text: string | undefined) => void;
  readonly canEdit?: (row: number, column: number) => boolean;
  /** More entries of a cell's menu. */
  readonly cellCommands?: (row: number, column: number) => readonly { readonly title: string; readonly run: () => void }[];
  /** Called with the current cell when it changes. */
  readonly onCurrent?: (row: number, column: number) => void;
  /** Called when the last rows come into view: to load more. */
  readonly onEnd?: () => void;
}

const SCROLL_END_MS = 150;

/** Rows and columns of any number, by mouse and by keyboard. */
export function Grid(props: GridProps): JSX.Element {
  const { label, source, sort, onSort, onCurrent, onEnd } = props;
  const version = source.version.value;
  const { rowCount } = source;
  const idPrefix = useId();
  const scroller = useRef<HTMLDivElement>(null);
  const state = useMemo(() => new GridState(source), [source]);
  const gutter = 30 + 8 * Math.max(2, String(rowCount).length);
  useLayoutEffect(() => {
    const element = scroller.current;
    if (element === null) return;
    state.attach(element, gutter, HEAD_PX);
    const observer = new ResizeObserver(() => state.look());
    observer.observe(element);
    return () => observer.disconnect();
  }, [state, gutter]);
  useLayoutEffect(() => {
    state.fitColumns();
    state.look();
  }, [state, version]);
  const { row, column } = state.current.value;
  useEffect(() => {
    if (row >= 0 && row < rowCount) onCurrent?.(row, column);
  }, [row, column]);
  const view = state.view.value;
  const isAtEnd = view.rows.to === rowCount && rowCount > 0;
  useEffect(() => {
    if (isAtEnd) onEnd?.();
  }, [isAtEnd, rowCount]);
  const columns = state.columns.value;
  const { selection } = state;
  const timer = useRef(0);
  const onScroll = () => {
    state.onScroll();
    clearTimeout(timer.current);
    timer.current = setTimeout(() => state.onScrollEnd(), SCROLL_END_MS);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const next = stepOf(event, state.current.value, { rowCount, columnCount: source.columns.length, pageRows: state.pageRows });
    if (next === undefined) return;
    event.preventDefault();
    state.goTo(next, event.shiftKey);
  };
  const onMouseDown = (event: MouseEvent) => {
    const cell = cellAt(event.target);
    if (cell === undefined || event.button !== 0) return;
    if (cell.row >= 0) state.goTo(cell, event.shiftKey);
    else onSort?.(cell.column);
  };
  const base = view.rows.from;
  return (
    <div class="grid">
      <div
        ref={scroller}
        class="grid-scroll"
        role="grid"
        tabIndex={0}
        aria-label={label}
        aria-multiselectable="true"
        aria-rowcount={rowCount + 1}
        aria-colcount={source.columns.length + 1}
        aria-activedescendant={`${idPrefix}-${row}-${column}`}
        onScroll={onScroll}
        onKeyDown={onKeyDown}
        onMouseDown={onMouseDown}
      >
        <div class="grid-space" style={{ width: `${columns.width + gutter}px`, height: `${rangeOf(rowCount) + HEAD_PX}px` }}>
          <Head
            columns={source.columns}
            layout={columns}
            shown={view.columns}
            gutter={gutter}
            idPrefix={idPrefix}
            sort={sort}
            current={row === -1 ? column : -1}
            isSortable={onSort !== undefined}
            onResize={(index, width) => state.resize(index, width)}
          />
          <div role="rowgroup" class="grid-body" style={{ top: `${HEAD_PX + base * ROW_PX + view.shift}px` }}>
            {Array.from({ length: view.rows.to - base }, (_, offset) => {
              const index = base + offset;
              const isSelected = isIn(selection.rows, index);
              return (
                <Row
                  key={index}
                  source={source}
                  version={version}
                  row={index}
                  top={offset * ROW_PX}
                  columns={columns}
                  from={view.columns.from}
                  to={view.columns.to}
                  gutter={gutter}
                  idPrefix={idPrefix}
                  current={index === row ? column : -1}
                  selectedFrom={isSelected ? selection.columns.from : -1}
                  selectedTo={isSelected ? selection.columns.to : -1}
                />
              );
            })}
          </div>
        </div>
      </div>
    </div>
  );
}

/** The cell that this is in. */
function cellAt(target: EventTarget | null) {
  if (!(target instanceof Element)) return undefined;
  const cell = target.closest<HTMLElement>('[data-column]');
  const row = cell?.closest<HTMLElement>('[data-row]');
  if (cell == null || row == null) return undefined;
  return { row: Number(row.dataset.row), column: Number(cell.dataset.column) };
}
