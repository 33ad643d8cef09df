import { ApiError, asApiError, callForResponse, isAbort, isProblem, linesOf, type Problem, unreachable } from '../../api/client.ts';
import { formatBytes, formatCount } from '../../format.ts';
import type { GridSource } from '../../grid/source.ts';
import { textOf } from '../../grid/value-text.ts';
import { type FileSink, openFileSink } from '../../parts/downloads.ts';
import { say, sayError } from '../../shell/toasts.tsx';
import { callsOf, here, timeoutMs } from './actions.ts';
import { bodyOf, type Call, type Settings } from './run-request.ts';
import { currentDownload, currentTab } from './sql-screen-state.ts';

type FileForm = 'csv' | 'json';

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

type Export = (call: Call, settings: Settings, sink: FileSink, signal: AbortSignal, onBytes: (bytes: number) => void) => Promise<number>;

/** The end of a reply in which an error may stand. */
const END_MAX_BYTES = 32_768;

/** All rows as `COPY … CSV HEADER` writes them, as they come. @returns bytes @throws ApiError */
const exportCsv: Export = async (call, settings, sink, signal, onBytes) => {
  const response = await callForResponse('POST', 'api/query', { body: bodyOf(call, settings), accept: 'text/csv', signal, isSafe: true });
  const reader = response.body?.getReader();
  let bytes = 0;
  let end = new Uint8Array(0);
  try {
    for (;;) {
      const { done = true, value } = (await reader?.read()) ?? {};
      if (done || value === undefined) return bytes;
      await sink.write(value);
      bytes += value.length;
      end = value.length >= END_MAX_BYTES ? value : joined(end, value);
      onBytes(bytes);
    }
  } catch (error) {
    if (isAbort(error)) throw error;
    throw errorAtEnd(end) ?? unreachable('the reply broke off before its end', true);
  } finally {
    await reader?.cancel().catch(() => undefined);
  }
};

const BEFORE_ROW = '{"row":';

/** All rows as an array of objects, one a line, with the values as they were sent. @returns bytes @throws ApiError */
const exportJson: Export = async (call, settings, sink, signal, onBytes) => {
  const body = { ...bodyOf(call, settings), rowMode: 'object' };
  const response = await callForResponse('POST', 'api/query', { body, accept: 'application/x-ndjson', signal, isSafe: true });
  const encoder = new TextEncoder();
  let bytes = 0;
  let before = '[\n';
  const write = async (text: string) => {
    const part = encoder.encode(text);
    bytes += part.length;
    await sink.write(part);
    onBytes(bytes);
  };
  for await (const lines of linesOf(response)) {
    let text = '';
    for (const line of lines) {
      if (line.startsWith(BEFORE_ROW)) {
        text += before + line.slice(BEFORE_ROW.length, -1);
        before = ',\n';
      } else if (line.startsWith('{"error":')) throw new ApiError((JSON.parse(line) as { readonly error: Problem }).error);
      else if (line.startsWith('{"complete":')) text += before === ',\n' ? '\n]\n' : '[]\n';
    }
    if (text !== '') await write(text);
  }
  return bytes;
};

function joined(one: Uint8Array<ArrayBuffer>, other: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
  const both = new Uint8Array(one.length + other.length);
  both.set(one);
  both.set(other, one.length);
  return both.slice(-END_MAX_BYTES);
}

/** In a CSV reply that breaks off, the last line is the error. */
function errorAtEnd(end: Uint8Array): ApiError | undefined {
  const line = new TextDecoder().decode(end).trimEnd().split('\n').at(-1) ?? '';
  if (!line.startsWith('{"error":')) return undefined;
  try {
    const { error } = JSON.parse(line) as { readonly error: unknown };
    return isProblem(error) ? new ApiError(error) : undefined;
  } catch {
    return undefined;
  }
}

const ROWS_AT_ONCE = 2_000;

/** As `COPY … CSV HEADER` writes it: NULL is nothing, an empty text is `""`. */
export function csvOf(source: GridSource): AsyncGenerator<Uint8Array<ArrayBuffer>> {
  const { columns } = source;
  const row = (at: number) => `${columns.map(({ type }, column) => csvValue(postgresText(source.valueAt(at, column), type))).join(',')}\n`;
  return parts(source, `${columns.map(({ name }) => csvValue(name)).join(',')}\n`, row, '');
}

/** An array of objects, with the values as they were sent. */
export function jsonOf(source: GridSource): AsyncGenerator<Uint8Array<ArrayBuffer>> {
  const names = uniqueNames(source.columns.map(({ name }) => name)).map((name) => JSON.stringify(name));
  const row = (at: number) => `${at === 0 ? '' : ',\n'}{${names.map((name, column) => `${name}:${source.valueAt(at, column)}`).join(',')}}`;
  return parts(source, '[\n', row, '\n]\n');
}

/** The page stays usable in between. */
async function* parts(
  source: GridSource,
  head: string,
  row: (at: number) => string,
  tail: string,
): AsyncGenerator<Uint8Array<ArrayBuffer>> {
  const encoder = new TextEncoder();
  yield encoder.encode(head);
  const { rowCount } = source;
  for (let from = 0; from < rowCount; from += ROWS_AT_ONCE) {
    let text = '';
    for (let at = from; at < Math.min(rowCount, from + ROWS_AT_ONCE); at += 1) text += row(at);
    yield encoder.encode(text);
    await new Promise((resolve) => setTimeout(resolve));
  }
  yield encoder.encode(tail);
}

/** Booleans are shown as JSON has them; PostgreSQL writes `t` and `f`. */
function postgresText(json: string, type: string): string | undefined {
  const text = textOf(json, type);
  return type === 'bool' ? text?.charAt(0) : text;
}

/** PostgreSQL puts the mark of the end of data in quotes too. */
const NEEDS_QUOTES = /[",\r\n]|^$|^\\\.$/;

function csvValue(text: string | undefined): string {
  if (text === undefined) return '';
  return NEEDS_QUOTES.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** Two columns of one name both stay: `count`, `count_2`. */
function uniqueNames(names: readonly string[]): readonly string[] {
  const used = new Set<string>();
  return names.map((name) => {
    let unique = name;
    for (let number = 2; used.has(unique); number += 1) unique = `${name}_${number}`;
    used.add(unique);
    return unique;
  });
}
