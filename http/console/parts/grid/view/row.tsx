import { Component } from 'preact';
import type { GridCommands, OpenCell } from '../commands.ts';
import { type Columns, ROW_PX } from '../geometry.ts';
import type { GridColumn, GridSource, RowState } from '../grid-source.ts';
import { isNull, isNumeric, previewOf } from '../value-text.ts';
import { CellEditor } from './cell-editor.tsx';

/** How a row's state looks, and what it is called. */
const STATES: Readonly<Record<RowState, readonly [sign: string, words: string]>> = {
  new: ['+', 'new row'],
  changed: ['●', 'changed row'],
  deleted: ['−', 'deleted row'],
  conflict: ['!', 'row in conflict'],
};

export interface RowProps {
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
export class Row extends Component<RowProps> {
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
