import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import type { Schema, SchemaTable } from '../../../api/database-schema.ts';
import { Button } from '../../../parts/button.tsx';
import { Empty } from '../../../parts/empty.tsx';
import { Grid } from '../../../parts/grid/grid.tsx';
import { ScreenPage } from '../../../parts/layout/screen-page.tsx';
import { Notice, ProblemNotice } from '../../../parts/notice.tsx';
import { screenCommands } from '../../../shell/palette-commands.ts';
import { goTo, hrefOf } from '../../../shell/route.ts';
import { openInEditor } from '../../sql/sql-screen-state.ts';
import { StagedBar } from '../edit/staged-bar.tsx';
import { ImportDialog } from '../import/import-dialog.tsx';
import { editorSql } from '../sql/browse-sql.ts';
import { tableName } from '../sql/table-name.ts';
import { cellCommands } from './cell-commands.ts';
import { FilterBar } from './filter-bar.tsx';
import type { OpenTable } from './open-table.ts';
import { RowCount } from './row-count.tsx';
import { TableSource } from './table-source.ts';

interface TableViewProps {
  readonly open: OpenTable;
  readonly schema: Schema;
}

/** The rows of one table. */
export function TableView({ open, schema }: TableViewProps) {
  const { table } = open;
  const [isImporting, setImporting] = useState(false);
  const view = useRef<HTMLDivElement>(null);
  const generation = open.generation.value;
  // A new source is shown from its beginning.
  const source = useMemo(() => new TableSource(open), [open, generation]);
  const isInserting = useRef(false);
  const insert = () => {
    isInserting.current = true;
    open.insertRow();
  };
  useEffect(() => {
    if (isInserting.current) view.current?.querySelector<HTMLElement>('[role=grid]')?.focus();
    isInserting.current = false;
  }, [generation]);
  useEffect(() => {
    if (open.rows.length === 0) void open.loadMore();
    screenCommands.value = commandsOf(open, insert, () => setImporting(true));
    return () => {
      screenCommands.value = [];
    };
  }, [open]);
  const isEditable = open.editable !== undefined;
  const actions = (
    <>
      <Button kind="quiet" icon="reload" label="Load again" isBusy={open.load.value.isLoading} onClick={() => void open.reload()} />
      <Button kind="quiet" icon="sql" onClick={() => openInEditor(editorSql(open.browse))}>
        Open in SQL
      </Button>
      {isEditable && (
        <>
          <Button icon="upload" onClick={() => setImporting(true)}>
            Import CSV
          </Button>
          <Button icon="plus" onClick={insert}>
            Insert row
          </Button>
        </>
      )}
    </>
  );
  return (
    <ScreenPage title={table.name} lead={<Lead table={table} />} actions={actions} isFull>
      <div class="tables tables-view" ref={view}>
        <FilterBar open={open} />
        <Remarks open={open} />
        <Rows open={open} source={source} schema={schema} />
        <footer class="tables-footer">
          <RowCount open={open} />
          <StagedBar open={open} />
        </footer>
      </div>
      {isImporting && <ImportDialog open={open} onClose={() => setImporting(false)} />}
    </ScreenPage>
  );
}

function Lead({ table }: { readonly table: SchemaTable }) {
  return (
    <>
      <a href={hrefOf('tables')}>Tables</a> / {table.schema}
      {table.kind !== 'table' && ` · ${table.kind}`}
      {table.comment !== null && ` · ${table.comment}`} · <a href={hrefOf('schema', tableName(table))}>Schema</a>
    </>
  );
}

/** What one must know to read these rows right. */
function Remarks({ open }: { readonly open: OpenTable }) {
  const { error, isLoading } = open.load.value;
  const remarks = [
    open.readOnlyReason,
    open.identity.kind === 'offset'
      ? 'Without a key, rows are counted off page by page: while others change them, a row may appear twice or not at all.'
      : undefined,
  ].filter((remark) => remark !== undefined);
  return (
    <>
      {remarks.length > 0 && (
        <Notice tone="info">
          <p>{remarks.join(' ')}</p>
        </Notice>
      )}
      {error !== undefined && !isLoading && <ProblemNotice error={error} onRetry={() => void open.loadMore()} />}
    </>
  );
}

interface RowsProps extends TableViewProps {
  readonly source: TableSource;
}

function Rows({ open, source, schema }: RowsProps) {
  const { isComplete, error } = open.load.value;
  const sort = open.sort.value;
  const sorted = open.columns.findIndex(({ name }) => name === sort?.column);
  source.version.value;
  if (source.rowCount === 0 && isComplete) return <NoRows open={open} />;
  if (source.rowCount === 0 && error !== undefined) return null;
  const onSort = (index: number) => {
    const column = open.columns[index]?.name ?? '';
    const next = sort?.column !== column ? { column, isDescending: false } : sort.isDescending ? undefined : { column, isDescending: true };
    void open.show({ sort: next });
  };
  return (
    <Grid
      label={`Rows of ${open.table.name}`}
      source={source}
      tableName={tableName(open.table)}
      sort={sort === undefined || sorted < 0 ? undefined : { column: sorted, isDescending: sort.isDescending }}
      onSort={onSort}
      onEnd={() => error === undefined && void open.loadMore()}
      cellCommands={(row, column, rows) => cellCommands(open, source, schema, { row, column, rows })}
      onEdit={open.editable === undefined ? undefined : (row, column, text) => source.edit(row, column, text ?? null)}
      canEdit={(row, column) => source.canEdit(row, column)}
    />
  );
}

function NoRows({ open }: { readonly open: OpenTable }) {
  if (open.filters.value.length === 0) return <Empty icon="table" title="No rows" />;
  return (
    <Empty icon="search" title="No row matches the filters">
      <Button onClick={() => void open.show({ filters: [] })}>Remove the filters</Button>
    </Empty>
  );
}

function commandsOf(open: OpenTable, insert: () => void, importRows: () => void) {
  const group = open.table.name;
  const editor = { title: 'Open in SQL', group, icon: 'sql', run: () => openInEditor(editorSql(open.browse)) } as const;
  const schema = { title: 'Show in the schema', group, icon: 'schema', run: () => goTo('schema', tableName(open.table)) } as const;
  const all = { title: 'All tables', group: 'Go to', icon: 'table', run: () => goTo('tables') } as const;
  const again = { title: 'Load again', group, icon: 'reload', run: () => void open.reload() } as const;
  if (open.editable === undefined) return [again, editor, schema, all];
  return [
    { title: 'Insert row', group, icon: 'plus', run: insert } as const,
    { title: 'Import CSV', group, icon: 'upload', run: importRows } as const,
    again,
    editor,
    schema,
    all,
  ];
}
