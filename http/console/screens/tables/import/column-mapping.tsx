import { formatCount } from '../../../format.ts';
import { Button } from '../../../parts/button.tsx';
import { CodeBlock } from '../../../parts/copying/code-block.tsx';
import { Checkbox } from '../../../parts/fields.tsx';
import { Notice } from '../../../parts/notice.tsx';
import type { OpenTable } from '../browse/open-table.ts';
import { importSql } from '../sql/import-sql.ts';
import { isWritable } from '../sql/table-column.ts';
import type { CsvRecord } from './csv.ts';
import { type Preview, targetsOf } from './preview-and-plan.ts';
import { BATCH_ROWS } from './run-import.ts';

const SAMPLE_ROWS = 5;

interface ColumnMappingProps {
  readonly preview: Preview;
  readonly open: OpenTable;
  readonly onChange: (preview: Preview) => void;
  readonly onHeaderless: (isHeaderless: boolean) => void;
  readonly onStart: () => void;
  readonly onClose: () => void;
}

/** Which field goes into which column, with the first rows. */
export function ColumnMapping({ preview, open, onChange, onHeaderless, onStart, onClose }: ColumnMappingProps) {
  const targets = targetsOf(preview, open);
  const columns = targets.map(({ column }) => column);
  const twice = columns.find(({ name }, index) => columns.findIndex((column) => column.name === name) !== index);
  const missing = open.columns.filter((column) => isRequired(column) && !columns.includes(column));
  const sample = preview.first.records.slice(0, SAMPLE_ROWS);
  return (
    <>
      <Checkbox
        label="The first line has the names of the columns"
        isChecked={!preview.isHeaderless}
        onChange={(has) => onHeaderless(!has)}
      />
      <div class="tables-mapping">
        <table class="table">
          <thead>
            <tr>
              <th scope="col">In the file</th>
              <th scope="col">Column</th>
              <th scope="col">First rows</th>
            </tr>
          </thead>
          <tbody>
            {preview.names.map((name, field) => (
              <tr key={field}>
                <th scope="row">{name}</th>
                <td>
                  <ColumnChoice
                    open={open}
                    name={name}
                    place={preview.places[field]}
                    onChange={(place) => onChange({ ...preview, places: preview.places.with(field, place) })}
                  />
                </td>
                <td>
                  <Sample records={sample} field={field} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {twice !== undefined && <p class="bad">Two fields go into {twice.name}.</p>}
      {missing.length > 0 && (
        <Notice tone="warning">
          <p>
            {missing.map(({ name }) => name).join(', ')}: NOT NULL, without a default, and not in the file. PostgreSQL will refuse the rows.
          </p>
        </Notice>
      )}
      {columns.length > 0 && <CodeBlock label={`Runs for ${BATCH_ROWS} rows at a time`} text={importSql(open.table, columns)} />}
      <p class="muted">
        {sizeSentence(preview)} An empty field without quotes is NULL; <code>""</code> is empty text.
      </p>
      <footer>
        <Button onClick={onClose}>Cancel</Button>
        <Button kind="primary" isDisabled={columns.length === 0 || twice !== undefined} onClick={onStart}>
          {preview.first.isLast ? `Import ${countOf(preview.first.records.length)}` : 'Import'}
        </Button>
      </footer>
    </>
  );
}

function isRequired(column: OpenTable['columns'][number]): boolean {
  return column.notNull && column.default === null && column.identity === null && column.generated === null;
}

function countOf(rows: number): string {
  return rows === 1 ? '1 row' : `${formatCount(rows)} rows`;
}

function sizeSentence({ first, file }: Preview): string {
  if (first.isLast) return `${countOf(first.records.length)}, imported in one transaction: all of them or none.`;
  const transactions = Math.max(2, Math.ceil(file.size / first.bytesRead));
  return `The file is too large for one transaction: about ${formatCount(transactions)} of them, of up to ${formatCount(first.records.length)} rows. If one fails, what the earlier ones imported stays.`;
}

interface ColumnChoiceProps {
  readonly open: OpenTable;
  readonly name: string;
  readonly place: number | undefined;
  readonly onChange: (place: number | undefined) => void;
}

function ColumnChoice({ open, name, place, onChange }: ColumnChoiceProps) {
  return (
    <select
      aria-label={`Column for ${name}`}
      value={place ?? ''}
      onChange={({ currentTarget: { value } }) => onChange(value === '' ? undefined : Number(value))}
    >
      <option value="">left out</option>
      {open.columns.map(
        (column, index) =>
          isWritable(column) && (
            <option key={column.name} value={index}>
              {column.name} · {column.type}
            </option>
          ),
      )}
    </select>
  );
}

function Sample({ records, field }: { readonly records: readonly CsvRecord[]; readonly field: number }) {
  return (
    <span class="tables-sample">
      {records.map(({ line, fields }) => {
        const text = fields[field];
        return text == null ? (
          <span key={line} class="muted">
            NULL
          </span>
        ) : (
          <code key={line}>{text === '' ? '""' : text}</code>
        );
      })}
    </span>
  );
}
