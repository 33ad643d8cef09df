import { signal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import {
  type ForeignKey,
  isTable,
  type Routine,
  type Schema,
  type SchemaColumn,
  type SchemaIndex,
  type SchemaTable,
  type SchemaType,
  type Sequence,
} from '../../api/database-schema.ts';
import { formatBytes, formatCount } from '../../format.ts';
import { Button } from '../../parts/button.tsx';
import { CodeBlock, CopyButton } from '../../parts/copying.tsx';
import { saveFile } from '../../parts/downloads.ts';
import { Empty } from '../../parts/empty.tsx';
import { Icon } from '../../parts/icon.tsx';
import { Section, type Tab, Tabs } from '../../parts/layout.tsx';
import { type Column, Table } from '../../parts/table.tsx';
import { qualifiedName } from '../../quoting.ts';
import { goTo, hrefOf } from '../../shell/route.ts';
import { openInEditor } from '../sql/sql-screen-state.ts';
import { NoTables } from '../tables/no-tables.tsx';
import { type ObjectKind, openChange } from './changes.ts';
import { createSequence, functionDdl, ownSequence, schemaDdl, tableDdl, tableDdlText, typeDdl } from './ddl.ts';
import { Diagram } from './diagram.tsx';
import type { Extension } from './schema-objects.ts';
import { TableLink } from './table-link.tsx';

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

function ColumnTable({ table, canChange }: { readonly table: SchemaTable; readonly canChange: boolean }) {
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
    { title: 'Null', cell: (column) => <Nullability table={table} column={column} /> },
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

/** Rows that are older than a constraint that is not validated may have NULL. */
function Nullability({ table, column: { name, notNull } }: { readonly table: SchemaTable; readonly column: SchemaColumn }) {
  if (notNull) return <span class="muted">not null</span>;
  return table.notNulls.some(({ column }) => column === name) ? <>not null, not validated</> : <>null</>;
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

/** Keys, unique columns, checks. */
function Constraints({ table }: { readonly table: SchemaTable }) {
  const { primaryKey, unique, checks, exclusions } = table;
  const constraints = [...(primaryKey === null ? [] : [primaryKey]), ...unique, ...exclusions, ...checks];
  if (constraints.length === 0) {
    return isTable(table) && table.partitionOf === null ? (
      <Section title="Keys and checks">
        <p class="muted">It has no key: a row cannot be told from another that has the same values.</p>
      </Section>
    ) : null;
  }
  return (
    <Section title="Keys and checks">
      <Table
        label="Keys and checks"
        rows={constraints}
        keyOf={({ name }) => name}
        columns={[
          { title: 'Name', cell: ({ name }) => name },
          { title: 'Definition', isWide: true, cell: ({ definition }) => <code>{definition}</code> },
        ]}
      />
    </Section>
  );
}

/** Foreign keys, in both directions. */
function References({ schema, table }: { readonly schema: Schema; readonly table: SchemaTable }) {
  const incoming = referencesTo(schema, table);
  return (
    <>
      {table.foreignKeys.length > 0 && (
        <Section title="Refers to">
          <Table
            label="Refers to"
            rows={table.foreignKeys}
            keyOf={({ name }) => name}
            columns={[
              { title: 'Columns', cell: ({ columns }) => columns.join(', ') },
              { title: 'Table', cell: (key) => <Target of={key} /> },
              { title: 'On delete', cell: ({ onDelete }) => onDelete },
              { title: 'On update', cell: ({ onUpdate }) => onUpdate },
              { title: 'Name', isWide: true, cell: ({ name }) => <span class="muted">{name}</span> },
            ]}
          />
        </Section>
      )}
      {incoming.length > 0 && (
        <Section title="Referred to by">
          <Table
            label="Referred to by"
            rows={incoming}
            keyOf={({ table: from, key }) => `${qualifiedName(from.schema, from.name)} ${key.name}`}
            columns={[
              {
                title: 'Table',
                cell: ({ table: from }) => (
                  <TableLink schema={from.schema} name={from.name} address={qualifiedName(from.schema, from.name)} />
                ),
              },
              { title: 'Columns', cell: ({ key }) => `${key.columns.join(', ')} → ${key.referencedColumns.join(', ')}` },
              { title: 'On delete', cell: ({ key }) => key.onDelete },
              { title: 'Name', isWide: true, cell: ({ key }) => <span class="muted">{key.name}</span> },
            ]}
          />
        </Section>
      )}
    </>
  );
}

function Target({ of: { referencedSchema, referencedTable, referencedColumns } }: { readonly of: ForeignKey }) {
  return (
    <span>
      <TableLink schema={referencedSchema} name={referencedTable} address={qualifiedName(referencedSchema, referencedTable)} /> (
      {referencedColumns.join(', ')})
    </span>
  );
}

function IndexTable({ table, canChange }: { readonly table: SchemaTable; readonly canChange: boolean }) {
  if (table.indexes.length === 0) return null;
  const ofConstraints = new Set([table.primaryKey, ...table.unique, ...table.exclusions].map((one) => one?.name));
  const columns: readonly Column<SchemaIndex>[] = [
    {
      title: 'Index',
      cell: (index) => (
        <div class="column-name">
          <span>
            {index.name} {index.isUnique && <span class="tag">unique</span>} {!index.isValid && <span class="tag bad">invalid</span>}
          </span>
        </div>
      ),
    },
    { title: 'Definition', isWide: true, cell: ({ definition }) => <code>{definition.replace(/^.*? USING /s, '')}</code> },
    { title: 'Size', align: 'right', cell: ({ bytes }) => formatBytes(bytes) },
    { title: 'Scans', align: 'right', cell: ({ scans }) => (scans === null ? <span class="muted">not known</span> : formatCount(scans)) },
    ...(canChange
      ? [
          {
            title: '',
            cell: (index: SchemaIndex) =>
              ofConstraints.has(index.name) ? null : (
                <Button
                  kind="quiet"
                  icon="trash"
                  label={`Drop the index ${index.name}`}
                  onClick={() =>
                    openChange({ kind: 'drop', what: 'INDEX', schema: table.schema, name: index.name, again: `${index.definition};` })
                  }
                />
              ),
          },
        ]
      : []),
  ];
  return (
    <Section title="Indexes">
      <Table label="Indexes" rows={table.indexes} keyOf={({ name }) => name} columns={columns} />
    </Section>
  );
}

function PolicyList({ table }: { readonly table: SchemaTable }) {
  const { rowSecurity, isRowSecurityForced, policies } = table;
  if (!rowSecurity && policies.length === 0) return null;
  return (
    <Section title="Row-level security">
      <p class={rowSecurity ? 'muted' : 'warning'}>
        {!rowSecurity && 'It is not enabled: the policies have no effect.'}
        {rowSecurity &&
          (isRowSecurityForced ? 'Enabled, for the owner too.' : 'Enabled. It does not hold for the owner, whose role keys have.')}
        {rowSecurity && policies.length === 0 && ' There is no policy, so others see no row.'}
      </p>
      {policies.length > 0 && (
        <Table
          label="Policies"
          rows={policies}
          keyOf={({ name }) => name}
          columns={[
            { title: 'Policy', cell: ({ name, isPermissive }) => (isPermissive ? name : `${name} (restrictive)`) },
            { title: 'For', cell: ({ command }) => command },
            { title: 'To', cell: ({ roles }) => roles.join(', ') },
            { title: 'Rows seen', cell: ({ using }) => using !== null && <code>{using}</code> },
            { title: 'Rows written', isWide: true, cell: ({ check }) => check !== null && <code>{check}</code> },
          ]}
        />
      )}
    </Section>
  );
}

function TriggerList({ table: { triggers } }: { readonly table: SchemaTable }) {
  if (triggers.length === 0) return null;
  return (
    <Section title="Triggers">
      {triggers.map(({ name, definition, isEnabled }) => (
        <CodeBlock key={name} label={isEnabled ? name : `${name}, disabled`} text={definition} />
      ))}
    </Section>
  );
}

const KINDS: Readonly<Record<SchemaTable['kind'], ObjectKind>> = {
  table: 'TABLE',
  'partitioned table': 'TABLE',
  view: 'VIEW',
  'materialized view': 'MATERIALIZED VIEW',
  'foreign table': 'FOREIGN TABLE',
};

function TableActions({ table, canChange }: { readonly table: SchemaTable; readonly canChange: boolean }) {
  const hasIndexes = isTable(table) || table.kind === 'materialized view';
  const name = qualifiedName(table.schema, table.name);
  const browse = (
    <>
      <Button icon="table" onClick={() => goTo('tables', name)}>
        Rows
      </Button>
      <Button icon="sql" onClick={() => openInEditor(`SELECT * FROM ${name} LIMIT 100;`)}>
        Query
      </Button>
    </>
  );
  if (!canChange) return browse;
  return (
    <>
      {browse}
      {isTable(table) && (
        <Button icon="plus" onClick={() => openChange({ kind: 'add column', table })}>
          Column …
        </Button>
      )}
      {hasIndexes && (
        <Button icon="plus" onClick={() => openChange({ kind: 'new index', table })}>
          Index …
        </Button>
      )}
      <ObjectActions what={KINDS[table.kind]} schema={table.schema} name={table.name} comment={table.comment} />
    </>
  );
}

interface ObjectActionsProps {
  readonly what: ObjectKind;
  readonly schema: string;
  readonly name: string;
  /** Of a function: what tells it from others of its name. */
  readonly arguments?: string;
  /** Undefined: the API does not show comments of this kind. */
  readonly comment?: string | null;
  /** SQL that makes it again. */
  readonly again?: string | undefined;
}

/** What can be done to any object. */
function ObjectActions({ what, schema, name, comment, again, ...props }: ObjectActionsProps) {
  const object = { what, schema, name, ...(props.arguments === undefined ? {} : { arguments: props.arguments }) };
  return (
    <>
      <Button kind="quiet" icon="edit" onClick={() => openChange({ kind: 'rename', ...object })}>
        Rename …
      </Button>
      {comment !== undefined && (
        <Button kind="quiet" onClick={() => openChange({ kind: 'comment', ...object, comment })}>
          Comment …
        </Button>
      )}
      <Button kind="quiet" icon="trash" onClick={() => openChange({ kind: 'drop', ...object, again })}>
        Drop …
      </Button>
    </>
  );
}

interface ObjectPageProps {
  /** Undefined: it is in none, or all are in the same. */
  readonly schemaName?: string;
  readonly name: string;
  readonly kind: string;
  readonly comment?: string | null;
  /** Sizes, counts, settings. */
  readonly facts?: readonly ComponentChildren[];
  readonly actions?: ComponentChildren;
  readonly children?: ComponentChildren;
}

/** What the page of every object begins with. */
function ObjectPage({ schemaName, name, kind, comment = null, facts = [], actions, children }: ObjectPageProps) {
  return (
    <article class="schema-object">
      <a class="to-tree" href={hrefOf('schema')}>
        All objects
      </a>
      <header>
        <div>
          <h2>
            {schemaName !== undefined && <span class="muted">{schemaName}.</span>}
            {name}
          </h2>
          <p class="muted facts">
            <span class="tag">{kind}</span>
            {facts.map((fact, index) => (
              <span key={index}>{fact}</span>
            ))}
          </p>
        </div>
        {actions !== undefined && <div class="actions">{actions}</div>}
      </header>
      {comment !== null && <p class="comment">{comment}</p>}
      {children}
    </article>
  );
}

/** Tables whose foreign keys refer to this one, with those keys; itself among them. */
function referencesTo(schema: Schema, { schema: schemaName, name }: SchemaTable) {
  return schema.tables.flatMap((table) =>
    table.foreignKeys
      .filter(({ referencedSchema, referencedTable }) => referencedSchema === schemaName && referencedTable === name)
      .map((key) => ({ table, key })),
  );
}

export function TypePage({ type, canChange }: { readonly type: SchemaType; readonly canChange: boolean }) {
  const ddl = typeDdl(type);
  const what = type.kind === 'domain' ? 'DOMAIN' : 'TYPE';
  return (
    <ObjectPage
      schemaName={type.schema}
      name={type.name}
      kind={type.kind}
      comment={type.comment}
      actions={
        canChange && <ObjectActions what={what} schema={type.schema} name={type.name} comment={type.comment} again={ddl.join('\n')} />
      }
    >
      {type.labels !== null && (
        <ol class="labels">
          {type.labels.map((label) => (
            <li key={label}>
              <code>{label}</code>
            </li>
          ))}
        </ol>
      )}
      <CodeBlock text={ddl.join('\n')} />
    </ObjectPage>
  );
}

export function SequencePage({ sequence, canChange }: { readonly sequence: Sequence; readonly canChange: boolean }) {
  const { ownedBy, start, increment, minValue, maxValue, isCycling } = sequence;
  const own = ownSequence(sequence);
  const ddl = [createSequence(sequence), ...(own === undefined ? [] : [own])].join('\n');
  return (
    <ObjectPage
      schemaName={sequence.schema}
      name={sequence.name}
      kind="sequence"
      facts={[
        sequence.type,
        `from ${start} by ${increment}`,
        `${minValue} to ${maxValue}${isCycling ? ', then anew' : ''}`,
        ...(ownedBy === null
          ? []
          : [
              <span key="owner">
                of <TableLink schema={ownedBy.schema} name={ownedBy.table} address={qualifiedName(ownedBy.schema, ownedBy.table)} />.
                {ownedBy.column}
              </span>,
            ]),
      ]}
      actions={canChange && ownedBy === null && <ObjectActions what="SEQUENCE" schema={sequence.schema} name={sequence.name} again={ddl} />}
    >
      <CodeBlock text={ddl} />
    </ObjectPage>
  );
}

export function FunctionPage({ routine, canChange }: { readonly routine: Routine; readonly canChange: boolean }) {
  const { schema, name, kind, language, volatility, isSecurityDefiner, comment, returns } = routine;
  const ddl = functionDdl(routine).join('\n');
  const what = kind === 'procedure' ? 'PROCEDURE' : kind === 'aggregate' ? 'AGGREGATE' : 'FUNCTION';
  return (
    <ObjectPage
      schemaName={schema}
      name={name}
      kind={kind}
      comment={comment}
      facts={[
        `(${routine.arguments})`,
        ...(returns === null ? [] : [`returns ${returns}`]),
        language,
        ...(kind === 'procedure' ? [] : [volatility]),
        ...(isSecurityDefiner
          ? [
              <span key="definer" class="tag warning">
                runs with the rights of its owner
              </span>,
            ]
          : []),
      ]}
      actions={
        canChange && (
          <ObjectActions
            what={what}
            schema={schema}
            name={name}
            arguments={routine.identityArguments}
            comment={comment}
            again={ddl === '' ? undefined : ddl}
          />
        )
      }
    >
      {ddl === '' ? <p class="muted">The API does not show what an aggregate is made of.</p> : <CodeBlock text={ddl} />}
    </ObjectPage>
  );
}

export function ExtensionPage({ extension }: { readonly extension: Extension }) {
  return (
    <ObjectPage name={extension.name} kind="extension" facts={[`version ${extension.version}`, `in the schema ${extension.schema}`]}>
      <p class="muted">Its objects are not shown: they belong to the extension.</p>
    </ObjectPage>
  );
}

/** What is shown while no object is. */
export function Overview({ schema }: { readonly schema: Schema }) {
  const { tables, types, functions } = schema;
  if (tables.length + types.length + functions.length === 0) return <NoTables />;
  return (
    <Empty icon="schema" title="Choose an object">
      <p>
        {counted(tables.length, 'table or view', 'tables and views')}, {counted(types.length, 'type', 'types')},{' '}
        {counted(functions.length, 'function', 'functions')}. As SQL, without rows, owners and privileges, all of it can be made again
        elsewhere.
      </p>
      <div class="actions">
        <CopyButton label="Copy all as SQL" text={() => schemaDdl(schema)} />
        <Button icon="download" onClick={() => saveFile('schema.sql', schemaDdl(schema))}>
          Save as SQL
        </Button>
      </div>
    </Empty>
  );
}

function counted(count: number, one: string, many: string): string {
  return `${formatCount(count)} ${count === 1 ? one : many}`;
}
