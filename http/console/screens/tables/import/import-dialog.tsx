import { useEffect, useRef, useState } from 'preact/hooks';
import { formatBytes, formatCount } from '../../../format.ts';
import { Button } from '../../../parts/button.tsx';
import { Dialog } from '../../../parts/dialog.tsx';
import { Notice } from '../../../parts/notice.tsx';
import { me } from '../../../session/me.ts';
import { say } from '../../../shell/toasts.tsx';
import type { OpenTable } from '../browse/open-table.ts';
import { ColumnMapping } from './column-mapping.tsx';
import { CsvError } from './csv.ts';
import { Outcome, Running, type RunState } from './import-progress.tsx';
import { type Preview, planOf, readPreview } from './preview-and-plan.ts';
import { type ImportPlan, ImportRun } from './run-import.ts';

export interface ImportDialogProps {
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
