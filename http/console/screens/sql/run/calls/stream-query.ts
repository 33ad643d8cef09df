import { ApiError, type Problem, unreachable } from '../../../../api/api-error.ts';
import { callForResponse } from '../../../../api/client.ts';
import { linesOf } from '../../../../api/response-lines.ts';
import { ReceivedRows } from '../../../../parts/grid/received-rows.ts';
import { type Call, type Completion, KEPT_ROWS_MAX, type Result, type Settings } from '../run-request-and-result.ts';
import { onlyReads } from './only-reads.ts';
import { columnsOf, type Field } from './reply-columns.ts';
import { bodyOf } from './request-body.ts';

const BEFORE_ROW = '{"row":';
/** After the first rows, the page is drawn anew so often. */
const SHOW_EVERY_MS = 80;

export interface Streaming {
  readonly signal: AbortSignal;
  /** Whether the statement may be stopped when there are more rows than are kept. */
  readonly mayStop: boolean;
  readonly onResult: (result: Result) => void;
}

/**
 * Runs one statement, and gives its rows as they come. What may write is not stopped: its changes would be lost.
 * @throws ApiError
 */
export async function stream(call: Call, settings: Settings, { signal, mayStop, onResult }: Streaming): Promise<void> {
  const response = await callForResponse('POST', 'api/query', {
    body: bodyOf(call, settings),
    accept: 'application/x-ndjson',
    signal,
    isSafe: isSafe(call, settings),
  });
  const sheet = new Sheet();
  let completion: Completion | undefined;
  let stops: boolean | undefined;
  const show = () => {
    const { rows, received } = sheet;
    onResult({ call, rows, received, isCut: received > KEPT_ROWS_MAX, completion });
  };
  try {
    for await (const lines of linesOf(response)) {
      for (const line of lines) {
        if (line.startsWith(BEFORE_ROW)) {
          sheet.add(line.slice(BEFORE_ROW.length, -1));
        } else if (line !== '') {
          const { fields, complete, error } = documentIn(line);
          if (error !== undefined) throw new ApiError(error);
          if (complete !== undefined) completion = { warnings: [], ...complete };
          else sheet.open(fields ?? []);
        }
      }
      if (sheet.received > KEPT_ROWS_MAX) stops ??= mayStop || isSafe(call, settings);
      const isLast = completion !== undefined || stops === true;
      if (!sheet.flush(isLast)) continue;
      show();
      if (isLast) return;
    }
    throw brokenOff();
  } catch (error) {
    // The rows that came before it are shown.
    if (sheet.received > 0 && sheet.flush(true)) show();
    throw error;
  }
}

/** Nothing is changed twice when it runs again. */
function isSafe({ statement }: Call, { isReadOnly }: Settings): boolean {
  return isReadOnly || onlyReads(statement.text);
}

/** A line that is not one of a row. */
interface LineDocument {
  readonly fields?: readonly Field[];
  readonly complete?: Omit<Completion, 'warnings'>;
  readonly error?: Problem;
}

function documentIn(line: string): LineDocument {
  try {
    return JSON.parse(line);
  } catch {
    throw brokenOff();
  }
}

function brokenOff(): ApiError {
  return unreachable('the reply broke off before its end', false);
}

/** Rows that have come, shown from time to time. */
class Sheet {
  rows: ReceivedRows | undefined;
  received = 0;
  #next: string[] = [];
  #shownAt = Number.NEGATIVE_INFINITY;

  open(fields: readonly Field[]): void {
    if (fields.length > 0) this.rows = new ReceivedRows(columnsOf(fields));
  }

  add(row: string): void {
    this.received += 1;
    if (this.received <= KEPT_ROWS_MAX) this.#next.push(row);
  }

  /** @returns whether something is to be shown */
  flush(isLast: boolean): boolean {
    const now = performance.now();
    if (!isLast && now - this.#shownAt < SHOW_EVERY_MS) return false;
    // The columns appear before the first row.
    const isFirstRow = this.#next.length > 0 && this.rows?.rowCount === 0;
    this.#shownAt = isFirstRow || this.received > 0 ? now : Number.NEGATIVE_INFINITY;
    if (this.#next.length > 0) this.rows?.append(this.#next);
    this.#next = [];
    return true;
  }
}
