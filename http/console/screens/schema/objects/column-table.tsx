import { isTable, type SchemaColumn, type SchemaTable } from '../../../api/database-schema.ts';
import { Button } from '../../../parts/button.tsx';
import { Icon } from '../../../parts/icon.tsx';
import { type Column, Table } from '../../../parts/table.tsx';
import { qualifiedName } from '../../../quoting/quote-identifier.ts';
import { hrefOf } from '../../../shell/route.ts';
import { openChange } from '../changes/open-change.ts';

export function ColumnTable({ table, canChange }: { readonly table: SchemaTable; readonly canChange: boolean }) {
  if (table.columns.length === 0) return <p class="muted">It has no columns.</p>;
  const isChangeable = canChange && isTable(table);
  const columns: readonly Column<SchemaColumn>[] = [
    { title: 'Column', cell: (column) => <ColumnName table={table} column={column} /> },
    {
      title: 'Type',
      cell: ({ type, collation }) => (
        <code>
          {type}
          {collation !== null && <span class="muted"> {collation}</span>}
        </code>
      ),
    },
    { title: 'Null', cell: ({ notNull }) => (notNull ? <span class="muted">not null</span> : 'null') },
    { title: 'Default', isWide: true, cell: (column) => <Source column={column} /> },
    ...(isChangeable
      ? [
          {
            title: '',
            cell: (column: SchemaColumn) => (
              <Button
                kind="quiet"
                icon="edit"
                label={`Change ${column.name}`}
                onClick={() => openChange({ kind: 'alter column', table, column })}
              />
            ),
          },
        ]
      : []),
  ];
  return <Table label="Columns" columns={columns} rows={table.columns} keyOf={({ name }) => name} />;
}

function ColumnName({ table, column: { name, comment } }: { readonly table: SchemaTable; readonly column: SchemaColumn }) {
  const isKey = table.primaryKey?.columns.includes(name) ?? false;
  const targets = table.foreignKeys.filter(({ columns }) => columns.length === 1 && columns[0] === name);
  return (
    <div class="column-name">
      <span>
        <strong>{name}</strong>
        {isKey && (
          <span class="key-mark" title="Primary key">
            <Icon name="key" />
            <span class="unseen">primary key</span>
          </span>
        )}
        {targets.map(({ name: key, referencedSchema, referencedTable, referencedColumns }) => (
          <a key={key} class="reference" href={hrefOf('schema', qualifiedName(referencedSchema, referencedTable))}>
            → {referencedTable}.{referencedColumns.join(', ')}
          </a>
        ))}
      </span>
      {comment !== null && <span class="muted">{comment}</span>}
    </div>
  );
}

function Source({ column: { default: value, identity, generated, generation } }: { readonly column: SchemaColumn }) {
  if (identity !== null) return <span class="muted">identity, {identity}</span>;
  if (generated !== null)
    return (
      <>
        <span class="muted">generated, {generation}: </span>
        <code>{generated}</code>
      </>
    );
  return value === null ? null : <code>{value}</code>;
}
