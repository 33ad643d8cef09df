import { Component, type JSX } from 'preact';
import { useEffect, useId, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import { formatCount, formatType } from '../format.ts';
import { Button } from '../parts/button.tsx';
import { CodeBlock, CopyButton } from '../parts/copying.tsx';
import { Dialog } from '../parts/dialog.tsx';
import { Field } from '../parts/fields.tsx';
import { Icon } from '../parts/icon.tsx';
import { Menu } from '../parts/menu.tsx';
import { GridCommands, handleKey, type OpenCell } from './commands.ts';
import { type Columns, HEAD_PX, type Range, ROW_PX, rangeOf } from './geometry.ts';
import { type Cell, type GridProps, type GridSort, GridState } from './grid-state.ts';
import type { GridColumn, GridSource, RowState } from './source.ts';
import { indentJson, isJson, isNull, isNumeric, lineOf, previewOf } from './value-text.ts';

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

/** How a row's state looks, and what it is called. */
const STATES: Readonly<Record<RowState, readonly [sign: string, words: string]>> = {
  new: ['+', 'new row'],
  changed: ['●', 'changed row'],
  deleted: ['−', 'deleted row'],
  conflict: ['!', 'row in conflict'],
};

interface RowProps {
  readonly source: GridSource;
  /** The source's, so that a change is seen. */
  readonly version: number;
  readonly row: number;
  /** In pixels, among the rows that are in the document. */
  readonly top: number;
  readonly columns: Columns;
  readonly from: number;
  readonly to: number;
  readonly gutter: number;
  readonly idPrefix: string;
  /** -1: in another row. */
  readonly current: number;
  readonly selectedFrom: number;
  readonly selectedTo: number;
  /** The cell of this row that is being edited. */
  readonly edited: OpenCell | undefined;
  readonly commands: GridCommands;
}

/** Is drawn again only when something of it has changed, while others scroll into view. */
class Row extends Component<RowProps> {
  override shouldComponentUpdate(next: RowProps): boolean {
    const { props } = this;
    return KEYS.some((key) => props[key] !== next[key]);
  }

  override render() {
    const { source, row, top, columns, gutter, idPrefix } = this.props;
    const state = source.rowState?.(row);
    const [sign, words] = state === undefined ? [] : STATES[state];
    return (
      <div
        role="row"
        class={`grid-row ${row % 2 === 1 ? 'odd' : ''} ${state ?? ''}`}
        aria-rowindex={row + 2}
        data-row={row}
        style={{ top: `${top}px`, height: `${ROW_PX}px`, width: `${columns.width + gutter}px` }}
      >
        <div role="rowheader" class="grid-gutter" aria-colindex={1} style={{ width: `${gutter}px` }}>
          {sign !== undefined && (
            <span class="grid-state" title={words} aria-hidden="true">
              {sign}
            </span>
          )}
          {row + 1}
          {words !== undefined && <span class="unseen">, {words}</span>}
        </div>
        {this.#cells(idPrefix)}
      </div>
    );
  }

  #cells(idPrefix: string) {
    const { source, row, columns, from, to, gutter, current, selectedFrom, selectedTo, edited, commands } = this.props;
    return source.columns.slice(from, to).map((column, offset) => {
      const index = from + offset;
      const json = source.valueAt(row, index);
      const isSelected = index >= selectedFrom && index < selectedTo;
      return (
        <div
          key={index}
          role="gridcell"
          id={`${idPrefix}-${row}-${index}`}
          aria-colindex={index + 2}
          aria-selected={isSelected}
          data-column={index}
          class={classOf(column, json, index === current, source.isChanged?.(row, index) ?? false, edited?.column === index)}
          style={{ left: `${columns.startOf(index) + gutter}px`, width: `${columns.widthOf(index)}px` }}
        >
          {edited?.column === index ? (
            <CellEditor cell={edited} label={column.name} commands={commands} />
          ) : isNull(json) ? (
            (source.placeholderAt?.(row, index) ?? 'NULL')
          ) : (
            previewOf(json, column.type)
          )}
        </div>
      );
    });
  }
}

const KEYS = [
  ...(['source', 'version', 'row', 'top', 'columns', 'from', 'to', 'gutter'] as const),
  ...(['current', 'selectedFrom', 'selectedTo', 'edited', 'commands'] as const),
];

function classOf(column: GridColumn, json: string, isCurrent: boolean, isChanged: boolean, isEdited: boolean): string {
  const align = isNumeric(column.type) ? 'right' : '';
  return `grid-cell ${align} ${isNull(json) ? 'null' : ''} ${isCurrent ? 'current' : ''} ${isChanged ? 'changed' : ''} ${isEdited ? 'edited' : ''}`;
}

interface HeadProps {
  readonly columns: readonly GridColumn[];
  readonly layout: Columns;
  readonly shown: Range;
  readonly gutter: number;
  readonly idPrefix: string;
  readonly sort: GridSort | undefined;
  /** The current column where the head is current, else -1. */
  readonly current: number;
  readonly isSortable: boolean;
  readonly onResize: (column: number, width: number | undefined) => void;
}

function Head({ columns, layout, shown, gutter, idPrefix, sort, current, isSortable, onResize }: HeadProps) {
  return (
    <div role="rowgroup" class="grid-head" style={{ height: `${HEAD_PX}px`, width: `${layout.width + gutter}px` }}>
      <div role="row" aria-rowindex={1} data-row={-1}>
        <div role="columnheader" class="grid-gutter" aria-colindex={1} style={{ width: `${gutter}px` }}>
          <span class="unseen">Row</span>
        </div>
        {columns.slice(shown.from, shown.to).map((column, offset) => {
          const index = shown.from + offset;
          const sorted = sort?.column === index ? (sort.isDescending ? 'descending' : 'ascending') : undefined;
          return (
            <div
              key={index}
              role="columnheader"
              id={`${idPrefix}--1-${index}`}
              aria-colindex={index + 2}
              aria-sort={sorted}
              data-column={index}
              class={`grid-column ${isNumeric(column.type) ? 'right' : ''} ${isSortable ? 'sortable' : ''} ${index === current ? 'current' : ''}`}
              style={{ left: `${layout.startOf(index) + gutter}px`, width: `${layout.widthOf(index)}px` }}
              title={`${lineOf(column.name)}\n${column.type}`}
            >
              <span class="grid-name">
                {column.isKey && <Icon name="key" />}
                <span>{lineOf(column.name)}</span>
                {column.isKey && <span class="unseen">, key</span>}
                {sorted !== undefined && <span class="grid-sort">{sorted === 'descending' ? '↓' : '↑'}</span>}
              </span>
              <span class="grid-type">{formatType(column.type)}</span>
              <Resizer width={layout.widthOf(index)} onResize={(width) => onResize(index, width)} />
            </div>
          );
        })}
      </div>
    </div>
  );
}

function Resizer({ width, onResize }: { readonly width: number; readonly onResize: (width: number | undefined) => void }) {
  const onPointerDown = (event: PointerEvent & { readonly currentTarget: HTMLElement }) => {
    const { currentTarget: handle, clientX } = event;
    handle.setPointerCapture(event.pointerId);
    handle.onpointermove = (move) => onResize(width + move.clientX - clientX);
    handle.onlostpointercapture = () => {
      handle.onpointermove = null;
    };
  };
  return <span class="grid-resizer" aria-hidden="true" onPointerDown={onPointerDown} onDblClick={() => onResize(undefined)} />;
}

/** A cell's value as a text field in its place. Leaving it sets the value. */
function CellEditor({ cell, label, commands }: { readonly cell: OpenCell; readonly label: string; readonly commands: GridCommands }) {
  const input = useRef<HTMLInputElement>(null);
  const [text, setText] = useState(cell.text);
  const latest = useRef(text);
  latest.current = text;
  const isDone = useRef(false);
  useLayoutEffect(() => {
    input.current?.focus({ preventScroll: true });
    // What was typed is to be continued.
    if (cell.text === commands.textAt(cell)) input.current?.select();
  }, []);
  const commit = () => {
    if (isDone.current) return;
    isDone.current = true;
    commands.commit(cell, latest.current);
  };
  // It may also scroll out of view.
  useLayoutEffect(() => commit, []);
  const finish = (rows: number, columns: number) => {
    commit();
    commands.focus();
    commands.state.goTo({ row: Math.max(0, cell.row + rows), column: cell.column + columns });
  };
  const onKeyDown = (event: KeyboardEvent) => {
    event.stopPropagation();
    const { key, shiftKey, isComposing } = event;
    if (isComposing) return;
    if (key === 'Escape') {
      isDone.current = true;
      commands.giveUp();
    } else if (key === 'Enter' && shiftKey) {
      isDone.current = true;
      commands.focus();
      commands.show(text);
    } else if (key === 'Enter') finish(1, 0);
    else if (key === 'Tab') finish(0, shiftKey ? -1 : 1);
    else return;
    event.preventDefault();
  };
  return (
    <input
      ref={input}
      type="text"
      class="grid-editor"
      aria-label={label}
      value={text ?? ''}
      placeholder={text === undefined ? 'NULL' : 'an empty text'}
      autocomplete="off"
      autocapitalize="off"
      spellcheck={false}
      onInput={({ currentTarget }) => setText(currentTarget.value)}
      onKeyDown={onKeyDown}
      onBlur={commit}
    />
  );
}

interface CellDialogProps {
  readonly column: GridColumn;
  /** Undefined: NULL. */
  readonly text: string | undefined;
  /** Where the value can be changed. */
  readonly onSave: ((text: string | undefined) => void) | undefined;
  readonly onClose: () => void;
}

/** Browsers need seconds to lay out much longer texts. */
const SHOWN_MAX = 50_000;

/** A value as large as it is: to be read, or to be changed. */
function CellDialog({ column, text, onSave, onClose }: CellDialogProps) {
  return (
    <Dialog title={lineOf(column.name)} class="wide cell-dialog" onClose={onClose}>
      {onSave === undefined ? (
        <Shown column={column} text={text} onClose={onClose} />
      ) : (
        <Edited column={column} text={text} onSave={onSave} onClose={onClose} />
      )}
    </Dialog>
  );
}

function Shown({ column, text, onClose }: Omit<CellDialogProps, 'onSave'>) {
  const [isIndented, setIndented] = useState(true);
  const canIndent = isJson(column.type);
  const whole = text !== undefined && canIndent && isIndented ? indentJson(text) : (text ?? '');
  const isCut = whole.length > SHOWN_MAX;
  return (
    <>
      <p class="muted">{sizeOf(column, text)}</p>
      {text === undefined ? (
        <p class="grid-null">NULL</p>
      ) : text === '' ? (
        <p class="muted">The text is empty.</p>
      ) : (
        <CodeBlock text={whole.slice(0, SHOWN_MAX)} />
      )}
      {isCut && <p class="muted">These are the first {formatCount(SHOWN_MAX)} characters.</p>}
      <footer>
        {isCut && <CopyButton text={whole} label="Copy all" />}
        {canIndent && text !== undefined && (
          <Button kind="quiet" pressed={isIndented} onClick={() => setIndented(!isIndented)}>
            Indented
          </Button>
        )}
        <Button onClick={onClose}>Close</Button>
      </footer>
    </>
  );
}

function Edited({ column, text, onSave, onClose }: CellDialogProps & { readonly onSave: (text: string | undefined) => void }) {
  const [edited, setEdited] = useState(text);
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key !== 'Enter' || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    onSave(edited);
  };
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: a key that the button below has too
    <div class="form" onKeyDown={onKeyDown}>
      <Field
        label="Value"
        isMono
        rows={12}
        value={edited ?? ''}
        placeholder={edited === undefined ? 'NULL' : 'an empty text'}
        hint={sizeOf(column, edited)}
        onInput={setEdited}
      />
      <footer>
        {isJson(column.type) && edited !== undefined && (
          <Button kind="quiet" onClick={() => setEdited(indentJson(edited))}>
            Indent
          </Button>
        )}
        <Button
          kind="quiet"
          pressed={edited === undefined}
          title="No value, which is not the same as an empty text"
          onClick={() => setEdited(edited === undefined ? '' : undefined)}
        >
          NULL
        </Button>
        <Button onClick={onClose}>Cancel</Button>
        <Button kind="primary" title="Ctrl Enter" onClick={() => onSave(edited)}>
          Set value
        </Button>
      </footer>
    </div>
  );
}

function sizeOf({ type }: GridColumn, text: string | undefined): string {
  if (text === undefined) return `${type} · NULL`;
  return `${type} · ${formatCount(text.length)} ${text.length === 1 ? 'character' : 'characters'}`;
}
