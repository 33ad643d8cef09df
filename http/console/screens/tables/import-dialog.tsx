import { useEffect, useRef, useState } from 'preact/hooks';
import { ApiError } from '../../api/client.ts';
import { formatBytes, formatCount } from '../../format.ts';
import { Button } from '../../parts/button.tsx';
import { CodeBlock } from '../../parts/copying.tsx';
import { Dialog } from '../../parts/dialog.tsx';
import { Checkbox } from '../../parts/fields.tsx';
import { Notice, ProblemNotice } from '../../parts/notice.tsx';
import { me } from '../../session/session.ts';
import { say } from '../../shell/toasts.tsx';
import {
  BATCH_ROWS,
  CsvError,
  type CsvRecord,
  ImportError,
  type ImportPlan,
  ImportRun,
  type Preview,
  planOf,
  readPreview,
  targetsOf,
} from './import.ts';
import type { OpenTable } from './open-table.ts';
import { importSql, isWritable } from './sql.ts';

interface ImportDialogProps {
  readonly open: OpenTable;
  readonly onClose: () => void;
}

/** A CSV file is read in the browser, and its rows are inserted. */
export function ImportDialog({ open, onClose }: ImportDialogProps) {
  const [preview, setPreview] = useState<Preview>();
  const [problem, setProblem] = useState<string>();
  const [state, setState] = useState<RunState>();
  const canceled = useRef(new AbortController());
  const run = useRef<ImportRun | undefined>(undefined);
  useEffect(() => () => canceled.current.abort(), []);
  const choose = async (file: File, isHeaderless = false) => {
    setProblem(undefined);
    await preview?.parts.close();
    try {
      setPreview(await readPreview(file, open, isHeaderless));
    } catch (error) {
      setPreview(undefined);
      setProblem(sentenceOf(error));
    }
  };
  const go = async (file: File) => {
    canceled.current = new AbortController();
    const { signal } = canceled.current;
    const rows = run.current?.rows ?? 0;
    setState({ step: 'running', rows, share: 0 });
    try {
      await run.current?.go(
        (progress) => setState({ step: 'running', rows: progress.rows, share: progress.bytesRead / file.size }),
        signal,
      );
      say(`${formatCount(run.current?.rows ?? 0)} rows imported into ${open.table.name}.`);
      void open.reload();
      onClose();
    } catch (error) {
      setState({ step: 'ended', rows: run.current?.rows ?? 0, error, isCanceled: signal.aborted });
      if ((run.current?.rows ?? 0) > 0) void open.reload();
    }
  };
  const start = (plan: ImportPlan, { first, parts, file }: Preview) => {
    run.current = new ImportRun(plan, first, parts);
    void go(file);
  };
  const isRunning = state?.step === 'running';
  return (
    <Dialog title={`Import CSV into ${open.table.name}`} class="wide tables" {...(isRunning ? {} : { onClose })}>
      {state === undefined && <Choose file={preview?.file} onChoose={choose} />}
      {problem !== undefined && (
        <Notice tone="bad">
          <p>{problem}</p>
        </Notice>
      )}
      {preview !== undefined && state === undefined && (
        <ColumnMapping
          preview={preview}
          open={open}
          onChange={setPreview}
          onHeaderless={(isHeaderless) => void choose(preview.file, isHeaderless)}
          onStart={() => start(planOf(preview, open, me.peek()?.limits.maxStatementTimeoutMs), preview)}
          onClose={onClose}
        />
      )}
      {state?.step === 'running' && <Running state={state} onCancel={() => canceled.current.abort()} />}
      {state?.step === 'ended' && preview !== undefined && <Outcome state={state} onGoOn={() => void go(preview.file)} onClose={onClose} />}
    </Dialog>
  );
}

function Choose({ file, onChoose }: { readonly file: File | undefined; readonly onChoose: (file: File) => Promise<void> }) {
  const input = useRef<HTMLInputElement>(null);
  const take = (files: FileList | null | undefined) => {
    const chosen = files?.[0];
    if (chosen !== undefined) void onChoose(chosen);
  };
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: a file may also be dropped here; the button is for everybody
    <div
      class="tables-drop"
      onDragOver={(event) => event.preventDefault()}
      onDrop={(event) => {
        event.preventDefault();
        take(event.dataTransfer?.files);
      }}
    >
      <input
        ref={input}
        type="file"
        class="unseen"
        tabIndex={-1}
        aria-label="CSV file"
        accept=".csv,.tsv,.txt,text/csv"
        onChange={({ currentTarget }) => take(currentTarget.files)}
      />
      <Button icon="upload" kind={file === undefined ? 'primary' : 'plain'} onClick={() => input.current?.click()}>
        {file === undefined ? 'Choose a file' : 'Another file'}
      </Button>
      <span class="muted">
        {file === undefined ? 'or drop it here. CSV in UTF-8; it is read in this browser.' : `${file.name} · ${formatBytes(file.size)}`}
      </span>
    </div>
  );
}

function sentenceOf(error: unknown): string {
  if (error instanceof CsvError) return `Line ${formatCount(error.line)}: ${error.message}.`;
  // That is what TextDecoder throws.
  if (error instanceof TypeError) return 'The file is not in UTF-8.';
  return error instanceof Error ? error.message : String(error);
}

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
function ColumnMapping({ preview, open, onChange, onHeaderless, onStart, onClose }: ColumnMappingProps) {
  const targets = targetsOf(preview, open);
  const columns = targets.map(({ column }) => column);
  const twice = columns.find(({ name }, index) => columns.findIndex((column) => column.name === name) !== index);
  const missing = open.columns.filter((column) => isRequired(open, column) && !columns.includes(column));
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

/** Rows may be older than a constraint; new ones are not. */
function isRequired({ table }: OpenTable, column: OpenTable['columns'][number]): boolean {
  const refusesNull = column.notNull || table.notNulls.some((constraint) => constraint.column === column.name);
  return refusesNull && column.default === null && column.identity === null && column.generated === null;
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

type RunState =
  | { readonly step: 'running'; readonly rows: number /** Of the file, from 0 to 1. */; readonly share: number }
  | { readonly step: 'ended'; readonly rows: number; readonly error: unknown; readonly isCanceled: boolean };

interface RunningProps {
  readonly state: Extract<RunState, { readonly step: 'running' }>;
  readonly onCancel: () => void;
}

function Running({ state: { rows, share }, onCancel }: RunningProps) {
  return (
    <>
      <p aria-live="polite">{formatCount(rows)} rows imported …</p>
      <progress max={1} {...(share > 0 ? { value: share } : {})} aria-label="How much of the file is imported" />
      <footer>
        <Button icon="stop" onClick={onCancel}>
          Cancel
        </Button>
      </footer>
    </>
  );
}

interface OutcomeProps {
  readonly state: Extract<RunState, { readonly step: 'ended' }>;
  readonly onGoOn: () => void;
  readonly onClose: () => void;
}

/** How far an import came that has not come to its end. */
function Outcome({ state: { rows, error, isCanceled }, onGoOn, onClose }: OutcomeProps) {
  const stored = rows === 0 ? 'Nothing is imported.' : `The first ${formatCount(rows)} rows are imported; those after them are not.`;
  const cause = error instanceof ImportError ? error.cause : error;
  const mayGoOn = isCanceled || (cause instanceof ApiError && (cause.isRetryable || cause.problem.code === 'unreachable'));
  return (
    <>
      {isCanceled ? (
        <Notice tone="info">
          <p class="notice-title">Canceled.</p>
          <p>{stored} If the part that was on its way had just been stored, it is there too; to go on does not import it twice.</p>
        </Notice>
      ) : (
        <>
          {error instanceof ImportError && error.lines !== undefined && <h3>{placeOf(error.lines)}</h3>}
          <ProblemNotice error={cause} />
          <p>{stored}</p>
        </>
      )}
      <footer>
        {mayGoOn && <Button onClick={onGoOn}>Go on</Button>}
        <Button kind="primary" onClick={onClose}>
          Close
        </Button>
      </footer>
    </>
  );
}

function placeOf([first, last]: readonly [number, number]): string {
  return first === last
    ? `Line ${formatCount(first)} of the file`
    : `Between the lines ${formatCount(first)} and ${formatCount(last)} of the file`;
}
