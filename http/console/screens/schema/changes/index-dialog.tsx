import { useState } from 'preact/hooks';
import type { SchemaTable } from '../../../api/database-schema.ts';
import { Checkbox, Choice, Field } from '../../../parts/fields.tsx';
import { ChangeDialog } from './change-dialog.tsx';
import { createIndex } from './change-sql.ts';

const METHODS = ['btree', 'hash', 'gin', 'gist', 'brin', 'spgist'] as const;

export function IndexDialog({ table }: { readonly table: SchemaTable }) {
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
