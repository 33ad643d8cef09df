import { ApiError, isAbort, isProblem, type Problem, unreachable } from '../../../api/api-error.ts';
import { callForResponse } from '../../../api/client.ts';
import { linesOf } from '../../../api/response-lines.ts';
import type { FileSink } from '../../../downloads/file-sink.ts';
import { bodyOf } from '../run/calls/request-body.ts';
import type { Call, Settings } from '../run/run-request-and-result.ts';

type Export = (call: Call, settings: Settings, sink: FileSink, signal: AbortSignal, onBytes: (bytes: number) => void) => Promise<number>;

/** The end of a reply in which an error may stand. */
const END_MAX_BYTES = 32_768;

/** All rows as `COPY … CSV HEADER` writes them, as they come. @returns bytes @throws ApiError */
export const exportCsv: Export = async (call, settings, sink, signal, onBytes) => {
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
export const exportJson: Export = async (call, settings, sink, signal, onBytes) => {
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
