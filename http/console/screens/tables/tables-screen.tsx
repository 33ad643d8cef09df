import { signal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import type { Schema, SchemaTable } from '../../api/database-schema.ts';
import { loadSchema } from '../../api/load-schema.ts';
import { type Load, useLoad } from '../../api/use-load.ts';
import { formatBytes, formatCount, hasWords } from '../../format.ts';
import { Button } from '../../parts/button.tsx';
import { Empty } from '../../parts/empty.tsx';
import { Field } from '../../parts/fields.tsx';
import { ScreenPage, Section } from '../../parts/layout.tsx';
import { Loaded } from '../../parts/loaded.tsx';
import { Notice } from '../../parts/notice.tsx';
import { type Column, Table } from '../../parts/table.tsx';
import { screenCommands } from '../../shell/palette-commands.ts';
import { goTo, hrefOf } from '../../shell/route.ts';
import { NoTables } from './no-tables.tsx';
import { openTable, stagedIn } from './open-table.ts';
import { tableName } from './sql.ts';
import { TableView } from './table-view.tsx';

/** @param rest the table's qualified name; empty: the list of tables */
export function TablesScreen({ rest }: { readonly rest: string }) {
  const load = useLoad(loadSchema, [rest]);
  return rest === '' ? <TableList load={load} /> : <Loaded of={load}>{(schema) => <OneTable schema={schema} name={rest} />}</Loaded>;
}

function OneTable({ schema, name }: { readonly schema: Schema; readonly name: string }) {
  const table = schema.tables.find((one) => tableName(one) === name);
  if (table === undefined) return <Missing name={name} />;
  return <TableView key={name} open={openTable(table)} schema={schema} />;
}

function Missing({ name }: { readonly name: string }) {
  return (
    <ScreenPage title="Tables">
      <Empty icon="table" title="There is no such table">
        <p>
          <code>{name}</code> does not exist, or this key may not see it.
        </p>
        <Button onClick={() => goTo('tables')}>All tables</Button>
      </Empty>
    </ScreenPage>
  );
}

/** More of them are found by typing. */
const SHOWN_MAX = 400;
const FILTER_FROM = 5;
const search = signal('');

function TableList({ load }: { readonly load: Load<Schema> }) {
  return (
    <ScreenPage
      title="Tables"
      lead="Look at the rows of a table or view, change them, follow their references."
      actions={<Button kind="quiet" icon="reload" label="Load again" isBusy={load.isLoading} onClick={load.reload} />}
    >
      <div class="tables tables-list">
        <Loaded of={load}>{(schema) => <Schemas schema={schema} />}</Loaded>
      </div>
    </ScreenPage>
  );
}

function Schemas({ schema }: { readonly schema: Schema }) {
  useEffect(() => {
    screenCommands.value = schema.tables.map((table) => ({
      title: tableName(table),
      group: 'Table',
      icon: 'table',
      run: () => goTo('tables', tableName(table)),
    }));
    return () => {
      screenCommands.value = [];
    };
  }, [schema]);
  if (schema.tables.length === 0) return <NoTables />;
  const found = schema.tables.filter((table) => hasWords(`${table.schema}.${table.name}`, search.value));
  const shown = found.slice(0, SHOWN_MAX);
  const names = [...new Set(shown.map((table) => table.schema))];
  return (
    <>
      {schema.tables.length >= FILTER_FROM && (
        <Field
          class="tables-search"
          label="Find"
          type="search"
          value={search.value}
          placeholder="Name"
          onInput={(text) => (search.value = text)}
        />
      )}
      {schema.warnings?.map(({ message, hint }) => (
        <Notice key={message} tone="warning">
          <p>
            {message} {hint}
          </p>
        </Notice>
      ))}
      {names.map((name) => (
        <Section key={name} title={name}>
          <Table
            label={`Tables of ${name}`}
            columns={COLUMNS}
            rows={shown.filter((table) => table.schema === name)}
            keyOf={tableName}
            onOpen={(table) => goTo('tables', tableName(table))}
          />
        </Section>
      ))}
      {found.length === 0 && <p class="muted">No table is called that.</p>}
      {found.length > SHOWN_MAX && <p class="muted">{formatCount(found.length - SHOWN_MAX)} more: type a part of the name.</p>}
    </>
  );
}

const COLUMNS: readonly Column<SchemaTable>[] = [
  { title: 'Name', isWide: true, cell: (table) => <Name table={table} /> },
  { title: 'Rows', align: 'right', cell: ({ rowEstimate, kind }) => rowsOf(rowEstimate, kind) },
  { title: 'Columns', align: 'right', cell: ({ columns }) => formatCount(columns.length) },
  {
    title: 'Size',
    align: 'right',
    cell: ({ totalBytes, kind }) => (kind === 'view' ? null : formatBytes(totalBytes)),
  },
];

function Name({ table }: { readonly table: SchemaTable }) {
  const { name, kind, comment, partitionOf } = table;
  const staged = stagedIn(tableName(table));
  return (
    <span class="tables-name">
      <a href={hrefOf('tables', tableName(table))} tabIndex={-1}>
        {name}
      </a>
      {kind !== 'table' && <span class="tag">{kind}</span>}
      {partitionOf !== null && <span class="tag">partition of {partitionOf.name}</span>}
      {staged > 0 && <span class="tag accent">{staged === 1 ? '1 change' : `${formatCount(staged)} changes`} not saved</span>}
      {comment !== null && <span class="muted">{comment}</span>}
    </span>
  );
}

function rowsOf(estimate: number | null, kind: SchemaTable['kind']): string | null {
  if (kind === 'view') return null;
  return estimate === null ? 'not analyzed' : `≈ ${formatCount(estimate)}`;
}
