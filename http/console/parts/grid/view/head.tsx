import { formatType } from '../../../format.ts';
import { Icon } from '../../icon.tsx';
import { type Columns, HEAD_PX, type Range } from '../geometry.ts';
import type { GridSort } from '../grid-props.ts';
import type { GridColumn } from '../grid-source.ts';
import { isNumeric, lineOf } from '../value-text.ts';

export interface HeadProps {
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

export function Head({ columns, layout, shown, gutter, idPrefix, sort, current, isSortable, onResize }: HeadProps) {
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
