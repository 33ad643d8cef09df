import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { callText, rowsOf } from '../../api/client.ts';
import type { Schema, SchemaTable } from '../../api/database-schema.ts';
import { formatCount } from '../../format.ts';
import { Grid } from '../../grid/grid.tsx';
import { Button } from '../../parts/button.tsx';
import { Empty } from '../../parts/empty.tsx';
import { ScreenPage } from '../../parts/layout.tsx';
import { Notice, ProblemNotice } from '../../parts/notice.tsx';
import { screenCommands } from '../../shell/palette-commands.ts';
import { goTo, hrefOf } from '../../shell/route.ts';
import { sayError } from '../../shell/toasts.tsx';
import { openInEditor } from '../sql/sql-screen-state.ts';
import { ImportDialog } from './import-dialog.tsx';
import { cellCommands, type OpenTable, TableSource } from './open-table.ts';
import { countSql, editorSql, type Filter, isOperator, needsText, OPERATORS, tableName } from './sql.ts';
import { StagedBar } from './staged-bar.tsx';

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

/** The filters, and one more that is being written. A filter counts when it is entered, not while it is typed. */
function FilterBar({ open }: { readonly open: OpenTable }) {
  const filters = open.filters.value;
  const [draft, setDraft] = useState<Filter>();
  const apply = (next: readonly Filter[]) => void open.show({ filters: next });
  const first = open.columns[0]?.name ?? '';
  return (
    <div class="tables-filters">
      {filters.map((filter, index) => (
        <span class="tables-filter" key={`${index} ${filter.column}`}>
          <button
            type="button"
            title="Change this filter"
            onClick={() => {
              setDraft(filter);
              apply(filters.toSpliced(index, 1));
            }}
          >
            <strong>{filter.column}</strong> {OPERATORS[filter.operator]} {needsText(filter.operator) && <code>{shown(filter.text)}</code>}
          </button>
          <Button
            kind="quiet"
            icon="close"
            label={`Remove the filter of ${filter.column}`}
            onClick={() => apply(filters.toSpliced(index, 1))}
          />
        </span>
      ))}
      {draft === undefined ? (
        <Button kind="quiet" icon="filter" onClick={() => setDraft({ column: first, operator: 'equal', text: '' })}>
          Filter
        </Button>
      ) : (
        <FilterForm
          columns={open.columns.map(({ name }) => name)}
          filter={draft}
          onChange={setDraft}
          onClose={() => setDraft(undefined)}
          onApply={() => {
            setDraft(undefined);
            apply([...filters, draft]);
          }}
        />
      )}
      {filters.length > 1 && (
        <Button kind="quiet" onClick={() => apply([])}>
          Remove all
        </Button>
      )}
    </div>
  );
}

const SHOWN_MAX_CHARACTERS = 40;

function shown(text: string): string {
  return text.length > SHOWN_MAX_CHARACTERS ? `${text.slice(0, SHOWN_MAX_CHARACTERS)}…` : text || "''";
}

interface FilterFormProps {
  readonly columns: readonly string[];
  readonly filter: Filter;
  readonly onChange: (filter: Filter) => void;
  readonly onApply: () => void;
  readonly onClose: () => void;
}

function FilterForm({ columns, filter, onChange, onApply, onClose }: FilterFormProps) {
  const first = useRef<HTMLSelectElement>(null);
  useEffect(() => first.current?.focus(), []);
  return (
    <form
      class="tables-filter-form"
      onSubmit={(event) => {
        event.preventDefault();
        onApply();
      }}
      onKeyDown={(event) => event.key === 'Escape' && onClose()}
    >
      <select
        aria-label="Column"
        value={filter.column}
        ref={first}
        onChange={({ currentTarget }) => onChange({ ...filter, column: currentTarget.value })}
      >
        {columns.map((name) => (
          <option key={name} value={name}>
            {name}
          </option>
        ))}
      </select>
      <select
        aria-label="Comparison"
        value={filter.operator}
        onChange={({ currentTarget: { value } }) => isOperator(value) && onChange({ ...filter, operator: value })}
      >
        {Object.entries(OPERATORS).map(([operator, title]) => (
          <option key={operator} value={operator}>
            {title}
          </option>
        ))}
      </select>
      {needsText(filter.operator) && (
        <input
          type="text"
          class="mono"
          aria-label="Value"
          placeholder="value"
          autocomplete="off"
          spellcheck={false}
          value={filter.text}
          onInput={({ currentTarget }) => onChange({ ...filter, text: currentTarget.value })}
        />
      )}
      <Button type="submit" icon="check">
        Apply
      </Button>
      <Button kind="quiet" icon="close" label="No filter" onClick={onClose} />
    </form>
  );
}

/** How many rows were read, and how many there are: about, or exactly for whoever asks. */
function RowCount({ open }: { readonly open: OpenTable }) {
  const { isComplete, isLoading } = open.load.value;
  const filters = open.filters.value;
  const [exact, setExact] = useState<string>();
  const [isBusy, setBusy] = useState(false);
  open.version.value;
  useEffect(() => setExact(undefined), [open, filters]);
  const count = async () => {
    setBusy(true);
    try {
      const body = { ...countSql(open.browse).toStatement(), rowMode: 'array', readOnly: true };
      const reply = await callText('POST', 'api/query', { body, isSafe: true });
      setExact(String(JSON.parse(rowsOf(reply)[0]?.[0] ?? '""')));
    } catch (error) {
      sayError(error, () => void count());
    } finally {
      setBusy(false);
    }
  };
  const read = formatCount(open.rows.length);
  if (isComplete) return <span class="muted number">{open.rows.length === 1 ? '1 row' : `${read} rows`}</span>;
  const { rowEstimate } = open.table;
  const about = filters.length === 0 && rowEstimate !== null ? ` of ≈ ${formatCount(Math.max(rowEstimate, open.rows.length))}` : '';
  return (
    <span class="tables-count muted number" aria-live="polite">
      {read} read{exact === undefined ? about : ` of ${formatCount(Number(exact))}`}
      {exact === undefined && (
        <Button kind="quiet" isBusy={isBusy} onClick={() => void count()}>
          Count exactly
        </Button>
      )}
      {isLoading && ' · reading …'}
    </span>
  );
}
