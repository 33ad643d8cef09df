import type { JSX } from 'preact';
import { useEffect, useId, useLayoutEffect, useMemo, useRef } from 'preact/hooks';
import { Menu } from '../menus/menu.tsx';
import { GridCommands } from './commands.ts';
import { HEAD_PX, type Range, ROW_PX, rangeOf } from './geometry.ts';
import type { GridProps } from './grid-props.ts';
import { type Cell, GridState } from './grid-state.ts';
import { handleKey } from './keyboard.ts';
import { CellDialog } from './view/cell-dialog.tsx';
import { Head } from './view/head.tsx';
import { Row } from './view/row.tsx';

const SCROLL_END_MS = 150;
/** Rows keep their place in the document until a block has been scrolled. */
const BLOCK_ROWS = 512;

/** Rows and columns of any number, by mouse and by keyboard. */
export function Grid(props: GridProps): JSX.Element {
  const { label, source, sort, onSort, onEdit } = props;
  const version = source.version.value;
  const { rowCount } = source;
  const idPrefix = useId();
  const commands = useCommands(props);
  const { state } = commands;
  const gutter = (source.rowState === undefined ? 16 : 30) + 8 * Math.max(2, String(rowCount).length);
  const scroller = useScroller(commands, gutter, version);
  useReports(props, state);
  const { row, column } = state.current.value;
  const view = state.view.value;
  const columns = state.columns.value;
  const { selection } = state;
  const edited = commands.edited.value;
  const isPresent = (row === -1 || isIn(view.rows, row)) && isIn(view.columns, column);
  const base = view.rows.from - (view.rows.from % BLOCK_ROWS);
  return (
    <div class="grid">
      <div
        {...useMouse(commands)}
        ref={scroller}
        class="grid-scroll"
        role="grid"
        tabIndex={0}
        aria-label={label}
        aria-multiselectable="true"
        aria-readonly={onEdit === undefined}
        aria-rowcount={rowCount + 1}
        aria-colcount={source.columns.length + 1}
        aria-activedescendant={isPresent ? `${idPrefix}-${row}-${column}` : undefined}
        onKeyDown={(event) => {
          if (event.target === event.currentTarget && handleKey(event, commands)) event.preventDefault();
        }}
        onPaste={(event) => {
          const text = event.clipboardData?.getData('text/plain').replace(/\r?\n$/, '');
          if (event.target !== event.currentTarget || text === undefined || !commands.canEdit(state.current.peek())) return;
          event.preventDefault();
          commands.edit(text);
        }}
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
            {Array.from({ length: view.rows.to - view.rows.from }, (_, offset) => {
              const index = view.rows.from + offset;
              const isSelected = isIn(selection.rows, index);
              return (
                <Row
                  key={index}
                  source={source}
                  version={version}
                  row={index}
                  top={(index - base) * ROW_PX}
                  columns={columns}
                  from={view.columns.from}
                  to={view.columns.to}
                  gutter={gutter}
                  idPrefix={idPrefix}
                  current={index === row ? column : -1}
                  selectedFrom={isSelected ? selection.columns.from : -1}
                  selectedTo={isSelected ? selection.columns.to : -1}
                  edited={edited?.row === index ? edited : undefined}
                  commands={commands}
                />
              );
            })}
          </div>
        </div>
      </div>
      <Overlays commands={commands} />
    </div>
  );
}

function useCommands(props: GridProps): GridCommands {
  const before = useRef<GridState>(undefined);
  const commands = useMemo(() => new GridCommands(new GridState(props.source, before.current), props), [props.source]);
  before.current = commands.state;
  commands.props = props;
  return commands;
}

/** The element that scrolls, and the state told of it. */
function useScroller(commands: GridCommands, gutter: number, version: number) {
  const { state } = commands;
  const scroller = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const element = scroller.current;
    if (element === null) return;
    commands.attach(element);
    state.attach(element, gutter, HEAD_PX);
    let timer = 0;
    const onScroll = () => {
      state.onScroll();
      clearTimeout(timer);
      timer = setTimeout(() => state.onScrollEnd(), SCROLL_END_MS);
    };
    element.addEventListener('scroll', onScroll, { passive: true });
    const observer = new ResizeObserver(() => state.look());
    observer.observe(element);
    return () => {
      clearTimeout(timer);
      element.removeEventListener('scroll', onScroll);
      observer.disconnect();
    };
  }, [commands, gutter]);
  useLayoutEffect(() => {
    scroller.current?.scrollTo({ top: 0 });
    state.onScroll();
  }, [state]);
  useLayoutEffect(() => state.onRows(), [state, version]);
  useEffect(() => commands.props.onReady?.({ goTo: (row, column) => commands.goTo({ row, column }) }), [commands]);
  return scroller;
}

/** Tells of the current cell, and of the end. */
function useReports({ source, onCurrent, onEnd }: GridProps, state: GridState): void {
  const { row, column } = state.current.value;
  const { rowCount } = source;
  useEffect(() => {
    if (row >= 0 && row < rowCount) onCurrent?.(row, column);
  }, [source, row, column]);
  const isAtEnd = rowCount > 0 && state.view.value.rows.to === rowCount;
  useEffect(() => {
    if (isAtEnd) onEnd?.();
  }, [source, isAtEnd, rowCount]);
}

function useMouse(commands: GridCommands) {
  const { state } = commands;
  const isDragging = useRef(false);
  const onMouseDown = (event: MouseEvent) => {
    const cell = placeOf(event.target);
    const { rowCount, columns } = commands.props.source;
    isDragging.current = false;
    // The second press of a double click means the same cell, which may have come into view.
    if (cell === undefined || event.button !== 0 || event.detail > 1) return;
    if (cell.row >= 0 && cell.column >= 0) {
      isDragging.current = true;
      state.goTo(cell, event.shiftKey);
    } else if (cell.row >= 0) {
      const last = columns.length - 1;
      if (event.shiftKey) state.select({ row: cell.row, column: 0 });
      else state.select({ row: cell.row, column: 0 }, { row: cell.row, column: last });
    } else if (cell.column < 0 && rowCount > 0) commands.selectAll();
  };
  return {
    onMouseDown,
    onMouseMove: (event: MouseEvent) => {
      const cell = placeOf(event.target);
      if (event.buttons !== 1 || !isDragging.current || cell === undefined || cell.row < 0 || cell.column < 0) return;
      const { row, column } = state.current.peek();
      if (row !== cell.row || column !== cell.column) state.select(cell);
    },
    onClick: ({ target }: MouseEvent) => {
      const cell = placeOf(target);
      if (cell !== undefined && cell.row < 0 && cell.column >= 0) commands.chooseColumn(cell.column);
    },
    onDblClick: ({ target }: MouseEvent) => {
      const cell = placeOf(target);
      if (cell !== undefined && cell.row >= 0 && cell.column >= 0) commands.edit();
    },
    onContextMenu: (event: MouseEvent) => {
      const cell = placeOf(event.target);
      if (cell === undefined) return;
      event.preventDefault();
      const isSelected = isIn(state.selection.rows, cell.row) && isIn(state.selection.columns, Math.max(0, cell.column));
      if (cell.row < 0) state.select({ row: -1, column: Math.max(0, cell.column) }, { row: -1, column: Math.max(0, cell.column) });
      else if (!isSelected) state.goTo({ row: cell.row, column: Math.max(0, cell.column) });
      commands.openMenu({ left: event.clientX, top: event.clientY });
    },
  };
}

/** The menu and the dialog of a cell. */
function Overlays({ commands }: { readonly commands: GridCommands }) {
  const menu = commands.menu.value;
  const shown = commands.shown.value;
  const column = commands.props.source.columns[shown?.column ?? -1];
  const closeMenu = (isFinished: boolean) => {
    commands.menu.value = undefined;
    if (isFinished) commands.focus();
  };
  return (
    <>
      {menu !== undefined && <Menu label="Cell" {...menu} entries={commands.entries()} onClose={closeMenu} />}
      {shown !== undefined && column !== undefined && (
        <CellDialog
          key={`${shown.row} ${shown.column}`}
          column={column}
          text={shown.text}
          onSave={commands.canEdit(shown) ? (text) => commands.commit(shown, text) : undefined}
          onClose={() => commands.giveUp()}
        />
      )}
    </>
  );
}

function isIn(range: Range, index: number): boolean {
  return index >= range.from && index < range.to;
}

/** The cell that this is in; its column is -1 for the number of a row. Undefined in a field or a handle. */
function placeOf(target: EventTarget | null): Cell | undefined {
  if (!(target instanceof Element) || target.closest('input, .grid-resizer') !== null) return undefined;
  const row = target.closest<HTMLElement>('[data-row]')?.dataset.row;
  const cell = target.closest<HTMLElement>('[data-column]');
  return row === undefined ? undefined : { row: Number(row), column: cell === null ? -1 : Number(cell.dataset.column) };
}
