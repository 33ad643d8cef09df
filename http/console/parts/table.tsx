import type { ComponentChildren } from 'preact';

export interface Column<T> {
  readonly title: string;
  readonly cell: (row: T) => ComponentChildren;
  /** Numbers stand at the right. */
  readonly align?: 'right';
  /** Takes what width is left. */
  readonly isWide?: boolean;
}

export interface TableProps<T> {
  readonly label: string;
  readonly columns: readonly Column<T>[];
  readonly rows: readonly T[];
  readonly keyOf: (row: T) => string;
  /** Makes rows that can be opened. */
  readonly onOpen?: (row: T) => void;
  readonly current?: string | undefined;
}

/** Some hundred rows at most; results of queries belong into a grid. On a phone each row is a card. */
export function Table<T>({ label, columns, rows, keyOf, onOpen, current }: TableProps<T>) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what is wider than the screen is scrolled by keys
    <section class="table-scroll" tabIndex={0} aria-label={label}>
      <table class={onOpen === undefined ? 'table' : 'table openable'}>
        <thead>
          <tr>
            {columns.map(({ title, align }) => (
              <th key={title} scope="col" class={align}>
                {title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <Row key={keyOf(row)} row={row} columns={columns} onOpen={onOpen} isCurrent={keyOf(row) === current} />
          ))}
        </tbody>
      </table>
    </section>
  );
}

interface RowProps<T> extends Pick<TableProps<T>, 'columns'> {
  readonly onOpen: ((row: T) => void) | undefined;
  readonly row: T;
  readonly isCurrent: boolean;
}

function Row<T>({ row, columns, onOpen, isCurrent }: RowProps<T>) {
  const open = onOpen && {
    tabIndex: 0,
    onClick: () => onOpen(row),
    onKeyDown: (event: KeyboardEvent) => event.key === 'Enter' && event.target === event.currentTarget && onOpen(row),
  };
  return (
    <tr {...open} aria-current={isCurrent || undefined}>
      {columns.map(({ title, cell, align, isWide }) => (
        <td key={title} data-title={title} class={`${align ?? ''} ${isWide ? 'wide' : ''}`}>
          {cell(row)}
        </td>
      ))}
    </tr>
  );
}
