import { signal } from '@preact/signals';
import { isTable, type Schema, type SchemaTable } from '../../../api/database-schema.ts';
import { formatBytes, formatCount } from '../../../format.ts';
import { CodeBlock } from '../../../parts/copying/code-block.tsx';
import { type Tab, Tabs } from '../../../parts/layout/tabs.tsx';
import { qualifiedName } from '../../../quoting/quote-identifier.ts';
import { tableDdl, tableDdlText } from '../ddl/table-ddl.ts';
import { Diagram } from '../diagram/diagram.tsx';
import { ColumnTable } from './column-table.tsx';
import { Constraints, References } from './constraints-and-references.tsx';
import { IndexTable, PolicyList, TriggerList } from './indexes-policies-triggers.tsx';
import { ObjectPage } from './object-page-layout.tsx';
import { TableActions } from './table-actions.tsx';
import { TableLink } from './table-link.tsx';
import { referencesTo } from './table-references.ts';

/** Which part is shown; it stays from one table to the next. */
const part = signal('structure');

export function TablePage({
  schema,
  table,
  canChange,
}: {
  readonly schema: Schema;
  readonly table: SchemaTable;
  readonly canChange: boolean;
}) {
  const incoming = referencesTo(schema, table);
  const hasRelations = table.foreignKeys.length > 0 || incoming.length > 0;
  const tabs: readonly Tab[] = [
    { id: 'structure', title: 'Structure' },
    { id: 'sql', title: 'SQL' },
    ...(hasRelations ? [{ id: 'diagram', title: 'Diagram' }] : []),
  ];
  const current = tabs.some(({ id }) => id === part.value) ? part.value : 'structure';
  return (
    <ObjectPage
      schemaName={table.schema}
      name={table.name}
      kind={table.kind}
      comment={table.comment}
      facts={factsOf(table)}
      actions={<TableActions table={table} canChange={canChange} />}
    >
      <Tabs
        label="Parts"
        tabs={tabs}
        current={current}
        onChange={(id) => {
          part.value = id;
        }}
      >
        {current === 'structure' && <Structure schema={schema} table={table} canChange={canChange} />}
        {current === 'sql' && <Ddl schema={schema} table={table} />}
        {current === 'diagram' && <Diagram schema={schema} focus={table} />}
      </Tabs>
    </ObjectPage>
  );
}

function factsOf(table: SchemaTable) {
  const { rowEstimate, totalBytes, tableBytes, indexBytes, partitionOf, inherits, kind } = table;
  const hasRows = kind !== 'view' && kind !== 'foreign table';
  return [
    ...(hasRows
      ? [rowEstimate === null ? 'rows not counted yet' : `about ${formatCount(rowEstimate)} ${rowEstimate === 1 ? 'row' : 'rows'}`]
      : []),
    ...(hasRows
      ? [
          <span key="size" title={`${formatBytes(tableBytes)} of rows, ${formatBytes(indexBytes)} of indexes`}>
            {formatBytes(totalBytes)}
          </span>,
        ]
      : []),
    ...(table.isUnlogged ? ['unlogged'] : []),
    ...(table.partitionKey === null ? [] : [`partitioned by ${table.partitionKey}`]),
    ...(partitionOf === null
      ? []
      : [
          <span key="parent">
            partition of{' '}
            <TableLink schema={partitionOf.schema} name={partitionOf.name} address={qualifiedName(partitionOf.schema, partitionOf.name)} />{' '}
            {partitionOf.bound}
          </span>,
        ]),
    ...inherits.map((parent) => (
      <span key={parent.name}>
        inherits <TableLink {...parent} address={qualifiedName(parent.schema, parent.name)} />
      </span>
    )),
    ...table.options.map((option) => <code key={option}>{option}</code>),
  ];
}

function Structure({ schema, table, canChange }: { readonly schema: Schema; readonly table: SchemaTable; readonly canChange: boolean }) {
  return (
    <>
      <ColumnTable table={table} canChange={canChange} />
      {table.definition !== null && <CodeBlock label="Query" text={table.definition.trim()} />}
      <Constraints table={table} />
      <References schema={schema} table={table} />
      <IndexTable table={table} canChange={canChange} />
      <PolicyList table={table} />
      <TriggerList table={table} />
    </>
  );
}

function Ddl({ schema, table }: { readonly schema: Schema; readonly table: SchemaTable }) {
  const ddl = tableDdl(table, schema);
  if (ddl === undefined)
    return <p class="muted">The API does not show on which server the rows of a foreign table are, which is part of its DDL.</p>;
  return (
    <>
      <CodeBlock text={tableDdlText(ddl).trimEnd()} />
      <p class="muted below">
        Without owner and privileges{isTable(table) && ', statistics and storage of columns'}. Functions, types and tables that it names
        must be there.
      </p>
    </>
  );
}
