import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import type { Schema, SchemaColumn, SchemaTable } from '../../api/database-schema.ts';
import { Button } from '../../parts/button.tsx';
import { CodeBlock } from '../../parts/copying.tsx';
import { Dialog } from '../../parts/dialog.tsx';
import { Checkbox, Choice, Field } from '../../parts/fields.tsx';
import { Tabs } from '../../parts/layout.tsx';
import { Notice } from '../../parts/notice.tsx';
import { qualifiedName } from '../../quoting.ts';
import { goTo } from '../../shell/route.ts';
import {
  addColumn,
  addToMigration,
  alterColumn,
  beginMigration,
  type Change,
  type ChangedColumn,
  change,
  changeComment,
  closeChange,
  createIndex,
  createTable,
  drop,
  dropColumn,
  isWriting,
  mayAdd,
  type NewColumn,
  type NewTable,
  type ProposedMigration,
  rename,
  type ValueSource,
} from './changes.ts';

/** The dialog that was asked for. */
export function ShownChangeDialog({ schema }: { readonly schema: Schema }) {
  const asked = change.value;
  if (asked === undefined) return null;
  const types = [...COMMON_TYPES, ...schema.types.map((type) => qualifiedName(type.schema, type.name))];
  switch (asked.kind) {
    case 'new table':
      return <TableDialog schema={schema} types={types} />;
    case 'add column':
      return <AddColumnDialog table={asked.table} types={types} />;
    case 'alter column':
      return <AlterColumnDialog table={asked.table} column={asked.column} types={types} />;
    case 'new index':
      return <IndexDialog table={asked.table} />;
    case 'rename':
      return <RenameDialog of={asked} />;
    case 'comment':
      return <CommentDialog of={asked} />;
    case 'drop':
      return <DropDialog of={asked} />;
  }
}

/** Those that most columns have. */
const COMMON_TYPES: readonly string[] = [
  'bigint',
  'integer',
  'text',
  'boolean',
  'numeric(12, 2)',
  'double precision',
  'timestamp with time zone',
  'date',
  'uuid',
  'jsonb',
  'bytea',
  'text[]',
];

const NO_COLUMN: NewColumn = { name: '', type: '', notNull: false, source: 'none', expression: '' };

const SOURCES: readonly (readonly [ValueSource, string])[] = [
  ['none', 'no default'],
  ['default', 'default'],
  ['identity', 'identity'],
  ['generated', 'generated'],
];

interface ColumnFieldsProps {
  readonly column: NewColumn;
  readonly types: readonly string[];
  readonly onChange: (changed: Partial<NewColumn>) => void;
}

/** A column's name, type and where its values come from. */
function ColumnFields({ column: { name, type, notNull, source, expression }, types, onChange }: ColumnFieldsProps) {
  const hasExpression = source === 'default' || source === 'generated';
  return (
    <>
      <Field label="Column" value={name} onInput={(name) => onChange({ name })} isMono />
      <Field label="Type" value={type} onInput={(type) => onChange({ type })} suggestions={types} isMono />
      <Choice label="Values" value={source} options={SOURCES} onChange={(source) => onChange({ source })} />
      {hasExpression && (
        <Field
          label={source === 'default' ? 'Default' : 'Expression'}
          value={expression}
          onInput={(expression) => onChange({ expression })}
          placeholder={source === 'default' ? 'now()' : 'price * amount'}
          isMono
        />
      )}
      <Checkbox
        label="not null"
        isChecked={notNull || source === 'identity'}
        isDisabled={source === 'identity'}
        onChange={(notNull) => onChange({ notNull })}
      />
    </>
  );
}

function isWhole({ name, type, source, expression }: NewColumn): boolean {
  const needsExpression = source === 'default' || source === 'generated';
  return name !== '' && type.trim() !== '' && (!needsExpression || expression.trim() !== '');
}

type Column = NewTable['columns'][number] & { readonly id: number };

const FIRST: readonly Column[] = [
  { id: 0, name: 'id', type: 'bigint', notNull: false, source: 'identity', expression: '', isKey: true },
  { id: 1, ...NO_COLUMN, isKey: false },
];

function TableDialog({ schema, types }: { readonly schema: Schema; readonly types: readonly string[] }) {
  const names = schema.schemas.map(({ name }) => name);
  const [schemaName, setSchemaName] = useState(names.includes('public') ? 'public' : (names[0] ?? 'public'));
  const [name, setName] = useState('');
  const [comment, setComment] = useState('');
  const [columns, setColumns] = useState(FIRST);
  const edit = (id: number, changed: Partial<Column>) => setColumns(columns.map((one) => (one.id === id ? { ...one, ...changed } : one)));
  // A row that nothing was typed into is not meant.
  const meant = columns.filter((column) => column.name !== '' || column.type !== '');
  const isTaken = schema.tables.some((one) => one.schema === schemaName && one.name === name);
  const isValid = name !== '' && !isTaken && meant.every(isWhole);
  const table = { schema: schemaName, name, columns: meant, comment };
  return (
    <ChangeDialog title="New table" isWide migration={isValid ? createTable(table) : undefined}>
      <div class="two">
        <Field
          label="Name"
          value={name}
          onInput={setName}
          error={isTaken ? 'There is one of this name.' : undefined}
          placeholder="orders"
          isMono
          isRequired
        />
        {names.length > 1 && (
          <Choice label="Schema" value={schemaName} options={names.map((one) => [one, one] as const)} onChange={setSchemaName} />
        )}
      </div>
      {columns.map((column) => (
        <fieldset key={column.id} class="new-column">
          <legend class="unseen">{column.name === '' ? 'New column' : column.name}</legend>
          <ColumnFields column={column} types={types} onChange={(changed) => edit(column.id, changed)} />
          <Checkbox label="key" isChecked={column.isKey} onChange={(isKey) => edit(column.id, { isKey })} />
          <Button
            kind="quiet"
            icon="trash"
            label={`Remove ${column.name === '' ? 'the column' : column.name}`}
            isDisabled={columns.length === 1}
            onClick={() => setColumns(columns.filter(({ id }) => id !== column.id))}
          />
        </fieldset>
      ))}
      <div>
        <Button icon="plus" onClick={() => setColumns([...columns, { id: (columns.at(-1)?.id ?? 0) + 1, ...NO_COLUMN, isKey: false }])}>
          Column
        </Button>
      </div>
      <Field label="Comment" value={comment} onInput={setComment} />
    </ChangeDialog>
  );
}

function AddColumnDialog({ table, types }: { readonly table: SchemaTable; readonly types: readonly string[] }) {
  const [column, setColumn] = useState(NO_COLUMN);
  const [comment, setComment] = useState('');
  const fails = column.notNull && column.source === 'none' && table.rowEstimate !== 0;
  return (
    <ChangeDialog title={`Add a column to ${table.name}`} migration={isWhole(column) ? addColumn(table, column, comment) : undefined}>
      <ColumnFields column={column} types={types} onChange={(changed) => setColumn({ ...column, ...changed })} />
      <Field label="Comment" value={comment} onInput={setComment} />
      {fails && (
        <Notice tone="warning">
          <p>Without a default, a column that is not null cannot be added to a table that has rows.</p>
        </Notice>
      )}
    </ChangeDialog>
  );
}

interface AlterColumnProps {
  readonly table: SchemaTable;
  readonly column: SchemaColumn;
  readonly types: readonly string[];
}

function AlterColumnDialog({ table, column, types }: AlterColumnProps) {
  const [part, setPart] = useState('change');
  const [next, setNext] = useState<ChangedColumn>({
    name: column.name,
    type: column.type,
    using: '',
    notNull: column.notNull,
    default: column.default ?? '',
    comment: column.comment ?? '',
  });
  const [isCascading, setCascading] = useState(false);
  const edit = (changed: Partial<ChangedColumn>) => setNext({ ...next, ...changed });
  const isValid = next.name !== '' && next.type.trim() !== '';
  const changed = isValid ? alterColumn(table, column, next) : undefined;
  const isDropped = part === 'drop';
  return (
    <ChangeDialog title={`${column.name} of ${table.name}`} migration={isDropped ? dropColumn(table, column, isCascading) : changed}>
      <Tabs
        label="What is to be done"
        tabs={[
          { id: 'change', title: 'Change' },
          { id: 'drop', title: 'Drop' },
        ]}
        current={part}
        onChange={setPart}
      >
        <div class="form">
          {isDropped ? (
            <>
              <Notice tone="warning">
                <p>The column goes with all its values, and with indexes and constraints that name it.</p>
              </Notice>
              <Checkbox label="CASCADE: with whatever depends on it" isChecked={isCascading} onChange={setCascading} />
            </>
          ) : (
            <ColumnChanges column={column} next={next} types={types} edit={edit} />
          )}
        </div>
      </Tabs>
    </ChangeDialog>
  );
}

interface ColumnChangesProps {
  readonly column: SchemaColumn;
  readonly next: ChangedColumn;
  readonly types: readonly string[];
  readonly edit: (changed: Partial<ChangedColumn>) => void;
}

function ColumnChanges({ column, next, types, edit }: ColumnChangesProps) {
  const isTypeChanged = next.type.trim() !== column.type;
  return (
    <>
      <Field label="Name" value={next.name} onInput={(name) => edit({ name })} isMono isRequired />
      <Field
        label="Type"
        value={next.type}
        onInput={(type) => edit({ type })}
        suggestions={types}
        hint={isTypeChanged && 'It may rewrite the table, which nobody can use meanwhile.'}
        isMono
        isRequired
      />
      {isTypeChanged && (
        <Field
          label="How values become those of the new type"
          value={next.using}
          onInput={(using) => edit({ using })}
          hint="Empty: by a cast."
          isMono
        />
      )}
      {column.identity === null && <Checkbox label="not null" isChecked={next.notNull} onChange={(notNull) => edit({ notNull })} />}
      {column.identity === null && column.generated === null && (
        <Field label="Default" value={next.default} onInput={(value) => edit({ default: value })} hint="Empty: none." isMono />
      )}
      <Field label="Comment" value={next.comment} onInput={(comment) => edit({ comment })} />
    </>
  );
}

const METHODS = ['btree', 'hash', 'gin', 'gist', 'brin', 'spgist'] as const;

function IndexDialog({ table }: { readonly table: SchemaTable }) {
  // PostgreSQL makes none of a partitioned table concurrently.
  const mayBeConcurrent = table.kind !== 'partitioned table';
  const [columns, setColumns] = useState<readonly string[]>([]);
  const [expression, setExpression] = useState('');
  const [givenName, setName] = useState('');
  const [method, setMethod] = useState<(typeof METHODS)[number]>('btree');
  const [where, setWhere] = useState('');
  const [isUnique, setUnique] = useState(false);
  const [isConcurrent, setConcurrent] = useState(mayBeConcurrent);
  const usual = [table.name, ...columns, ...(expression.trim() === '' ? [] : ['expr']), 'idx'].join('_');
  const name = givenName === '' ? usual : givenName;
  const isValid = columns.length > 0 || expression.trim() !== '';
  const index = { name, columns, expression, method, where, isUnique, isConcurrent };
  const check = (column: string, isChecked: boolean) =>
    setColumns(isChecked ? [...columns, column] : columns.filter((one) => one !== column));
  return (
    <ChangeDialog title={`New index of ${table.name}`} migration={isValid ? createIndex(table, index) : undefined}>
      <fieldset class="choices">
        <legend>Columns, in the order in which you choose them</legend>
        {table.columns.map((column) => (
          <Checkbox
            key={column.name}
            label={
              <>
                {column.name}
                {columns.includes(column.name) && columns.length > 1 && <span class="tag accent">{columns.indexOf(column.name) + 1}</span>}
              </>
            }
            isChecked={columns.includes(column.name)}
            onChange={(isChecked) => check(column.name, isChecked)}
          />
        ))}
      </fieldset>
      <Field label="Or an expression" value={expression} onInput={setExpression} placeholder="lower(email)" isMono />
      <div class="two">
        <Field label="Name" value={givenName} onInput={setName} placeholder={usual} isMono />
        <Choice label="Method" value={method} options={METHODS.map((one) => [one, one] as const)} onChange={setMethod} />
      </div>
      <Field label="Only rows where" value={where} onInput={setWhere} placeholder="deleted_at IS NULL" isMono />
      <div class="actions">
        <Checkbox label="unique" isChecked={isUnique} onChange={setUnique} />
        <Checkbox label="concurrently" isChecked={isConcurrent} isDisabled={!mayBeConcurrent} onChange={setConcurrent} />
      </div>
    </ChangeDialog>
  );
}

type Of<Kind extends Change['kind']> = { readonly of: Extract<Change, { readonly kind: Kind }> };

function RenameDialog({ of }: Of<'rename'>) {
  const [name, setName] = useState(of.name);
  const isChanged = name !== '' && name !== of.name;
  return (
    <ChangeDialog title={`Rename ${of.name}`} migration={isChanged ? rename(of, name) : undefined}>
      <Field label="Name" value={name} onInput={setName} isMono isRequired />
      <p class="muted">Views and foreign keys follow. Queries, functions and programs that use the old name fail from then on.</p>
    </ChangeDialog>
  );
}

function CommentDialog({ of }: Of<'comment'>) {
  const [comment, setComment] = useState(of.comment ?? '');
  const isChanged = comment !== (of.comment ?? '');
  return (
    <ChangeDialog title={`Comment on ${of.name}`} migration={isChanged ? changeComment(of, of.comment, comment) : undefined}>
      <Field label="Comment" value={comment} onInput={setComment} rows={4} hint="Empty: the comment is taken away." />
    </ChangeDialog>
  );
}

/** What of each kind is lost. */
const LOSSES: Readonly<Record<string, string>> = {
  TABLE: 'The table goes with all its rows, indexes and triggers.',
  'MATERIALIZED VIEW': 'The view goes with the rows that it keeps.',
  SEQUENCE: 'Where the sequence stood is lost.',
};

function DropDialog({ of }: Of<'drop'>) {
  const [isCascading, setCascading] = useState(false);
  return (
    <ChangeDialog title={`Drop ${of.name}`} migration={drop(of, of.again, isCascading)}>
      <Notice tone="warning">
        <p>{LOSSES[of.what] ?? `The ${of.what.toLowerCase()} goes.`}</p>
      </Notice>
      {of.what !== 'INDEX' && <Checkbox label="CASCADE: with whatever depends on it" isChecked={isCascading} onChange={setCascading} />}
    </ChangeDialog>
  );
}

interface ChangeDialogProps {
  readonly title: string;
  /** Undefined: something has to be filled in. */
  readonly migration: ProposedMigration | undefined;
  readonly isWide?: boolean;
  readonly children: ComponentChildren;
}

/** A dialog with its fields, the SQL they make, and the ways into a migration. */
function ChangeDialog({ title, migration, isWide = false, children }: ChangeDialogProps) {
  const use = (how: (migration: ProposedMigration) => void) => {
    if (migration === undefined) return;
    how(migration);
    closeChange();
    goTo('migrations', 'new');
  };
  return (
    <Dialog title={title} onClose={closeChange} class={`schema-change${isWide ? ' wide' : ''}`}>
      <form
        class="form"
        onSubmit={(event) => {
          event.preventDefault();
          use(migration !== undefined && mayAdd(migration) ? addToMigration : beginMigration);
        }}
      >
        {children}
        <div class="preview" aria-live="polite">
          {migration !== undefined && <CodeBlock label="SQL" text={migration.sql} />}
          {migration?.isTransaction === false && (
            <p class="muted">It runs outside a transaction: writers go on meanwhile, and there is no dry run.</p>
          )}
        </div>
        <p class="muted">Nothing runs yet: the SQL becomes a migration, which you can change, try out and apply.</p>
        <footer>
          <Button onClick={closeChange}>Cancel</Button>
          {migration !== undefined && mayAdd(migration) && <Button onClick={() => use(beginMigration)}>Begin a new migration</Button>}
          <Button kind="primary" type="submit" isDisabled={migration === undefined}>
            {labelOf(migration)}
          </Button>
        </footer>
      </form>
    </Dialog>
  );
}

function labelOf(migration: ProposedMigration | undefined): string {
  if (migration === undefined || !isWriting()) return 'To the migration';
  return mayAdd(migration) ? 'Add to the migration being written' : 'Replace the migration being written';
}
