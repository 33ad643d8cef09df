import { useState } from 'preact/hooks';
import type { SchemaColumn, SchemaTable } from '../../../api/database-schema.ts';
import { Checkbox, Field } from '../../../parts/fields.tsx';
import { Tabs } from '../../../parts/layout/tabs.tsx';
import { Notice } from '../../../parts/notice.tsx';
import { ChangeDialog } from './change-dialog.tsx';
import { addColumn, alterColumn, type ChangedColumn, dropColumn } from './change-sql.ts';
import { ColumnFields, isWhole, NO_COLUMN } from './column-fields.tsx';

export function AddColumnDialog({ table, types }: { readonly table: SchemaTable; readonly types: readonly string[] }) {
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

export function AlterColumnDialog({ table, column, types }: AlterColumnProps) {
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
