import { ApiError, isProblem } from '../../../api/api-error.ts';
import { callForResponse } from '../../../api/client.ts';
import { elementsOf, membersOf } from '../../../api/raw-json.ts';
import { linesOf } from '../../../api/response-lines.ts';
import type { Statement } from '../sql/parameterized-sql.ts';

/** Rows may have megabytes each: a page then has fewer of them. */
const PAGE_MAX_CHARACTERS = 8_000_000;

export interface Page {
  /** The cells of each row as JSON. */
  readonly rows: readonly (readonly string[])[];
  /** All that was asked for has been read. */
  readonly isWhole: boolean;
}

/** @throws ApiError */
export async function readPage({ sql, params }: Statement, signal: AbortSignal): Promise<Page> {
  const response = await callForResponse('POST', 'api/query', {
    body: { sql, params, rowMode: 'array', readOnly: true },
    accept: 'application/x-ndjson',
    isSafe: true,
    signal,
  });
  const rows: (readonly string[])[] = [];
  let characters = 0;
  for await (const lines of linesOf(response)) {
    for (const line of lines) {
      const members = membersOf(line);
      const [at] = members.get('row') ?? [];
      if (at !== undefined) rows.push(elementsOf(line, at));
      if (members.has('complete')) return { rows, isWhole: true };
      if (members.has('error')) throw errorIn(line);
      characters += line.length;
    }
    if (characters > PAGE_MAX_CHARACTERS && rows.length > 0) return { rows, isWhole: false };
  }
  throw new ApiError({
    status: 0,
    title: 'No connection',
    detail: 'the reply broke off before its end',
    code: 'unreachable',
    retryable: true,
  });
}

function errorIn(line: string): Error {
  const { error } = JSON.parse(line) as { readonly error: unknown };
  return isProblem(error) ? new ApiError(error) : new Error('the rows could not be read to their end');
}
