import { useState } from 'preact/hooks';
import type { Schema } from '../../../api/database-schema.ts';
import { Button } from '../../../parts/button.tsx';
import { Checkbox, Choice, Field } from '../../../parts/fields.tsx';
import { ChangeDialog } from './change-dialog.tsx';
import { createTable, type NewTable } from './change-sql.ts';
import { ColumnFields, isWhole, NO_COLUMN } from './column-fields.tsx';

type Column = NewTable['columns'][number] & { readonly id: number };

const FIRST: readonly Column[] = [
  { id: 0, name: 'id', type: 'bigint', notNull: false, source: 'identity', expression: '', isKey: true },
  { id: 1, ...NO_COLUMN, isKey: false },
];

export function TableDialog({ schema, types }: { readonly schema: Schema; readonly types: readonly string[] }) {
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
