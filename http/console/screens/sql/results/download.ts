import { asApiError, isAbort } from '../../../api/api-error.ts';
import { type FileSink, openFileSink } from '../../../downloads/file-sink.ts';
import { formatBytes, formatCount } from '../../../format.ts';
import type { GridSource } from '../../../parts/grid/grid-source.ts';
import { say, sayError } from '../../../shell/toasts.tsx';
import { callsOf, here, timeoutMs } from '../run/request-from-editor.ts';
import type { Call, Settings } from '../run/run-request-and-result.ts';
import { currentTab } from '../sql-screen-state.ts';
import { currentDownload } from './current-download.ts';
import { exportCsv, exportJson } from './export-all-rows.ts';
import { csvOf, jsonOf } from './shown-rows-as-csv-and-json.ts';

export type FileForm = 'csv' | 'json';

const TYPES: Readonly<Record<FileForm, string>> = { csv: 'text/csv', json: 'application/json' };

/** Saves the rows that are shown. */
export async function downloadShown(rows: GridSource, form: FileForm): Promise<void> {
  await toFile(form, async (sink) => {
    for await (const part of form === 'csv' ? csvOf(rows) : jsonOf(rows)) await sink.write(part);
    return `${formatCount(rows.rowCount)} ${rows.rowCount === 1 ? 'row is' : 'rows are'} saved.`;
  });
}

/** Runs a statement once more, read only, and saves all of its rows. */
export async function downloadAll(request: Settings, call: Call, form: FileForm): Promise<void> {
  await pourInto(call, { isReadOnly: true, timeoutMs: request.timeoutMs }, form);
}

/** Runs the statement at the cursor into a file. */
export async function downloadStatementHere(form: FileForm): Promise<void> {
  const [call] = callsOf(currentTab.peek(), here());
  if (call === undefined) return;
  // A file that breaks off must not leave a change that was made.
  await pourInto(call, { isReadOnly: true, timeoutMs: timeoutMs() }, form);
}

async function pourInto(call: Call, how: Settings, form: FileForm): Promise<void> {
  currentDownload.peek()?.cancel();
  const canceled = new AbortController();
  const show = (bytes: number) => {
    currentDownload.value = { bytes, cancel: () => canceled.abort() };
  };
  try {
    await toFile(form, async (sink) => {
      show(0);
      const pour = form === 'csv' ? exportCsv : exportJson;
      const bytes = await pour(call, how, sink, canceled.signal, show);
      return `The file is whole: ${formatBytes(bytes)}.`;
    });
  } finally {
    currentDownload.value = undefined;
  }
}

/** There is a file only when it is whole. @param write @returns what to say */
async function toFile(form: FileForm, write: (sink: FileSink) => Promise<string>): Promise<void> {
  const time = new Date().toISOString().slice(0, 19).replaceAll(':', '-');
  const sink = await openFileSink(`result-${time}.${form}`, TYPES[form]);
  if (sink === undefined) return;
  try {
    const sentence = await write(sink);
    await sink.close();
    say(sentence);
  } catch (error) {
    await sink.abort();
    if (isAbort(error)) say('The download is canceled: there is no file.');
    else sayError(asApiError(error));
  }
}
