import { Checkbox, Choice, Field } from '../../../parts/fields.tsx';
import type { NewColumn, ValueSource } from './change-sql.ts';

/** Those that most columns have. */
export const COMMON_TYPES: readonly string[] = [
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

export const NO_COLUMN: NewColumn = { name: '', type: '', notNull: false, source: 'none', expression: '' };

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
export function ColumnFields({ column: { name, type, notNull, source, expression }, types, onChange }: ColumnFieldsProps) {
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

export function isWhole({ name, type, source, expression }: NewColumn): boolean {
  const needsExpression = source === 'default' || source === 'generated';
  return name !== '' && type.trim() !== '' && (!needsExpression || expression.trim() !== '');
}
