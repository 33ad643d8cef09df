import { callText } from '../../../../api/client.ts';
import { elementsOf, membersOf } from '../../../../api/raw-json.ts';
import { ReceivedRows } from '../../../../parts/grid/received-rows.ts';
import type { Call, Completion, Result, Settings } from '../run-request-and-result.ts';
import { columnsOf, type Field } from './reply-columns.ts';
import { transactionBody } from './request-body.ts';

/** Runs all statements in one transaction. @returns a result for each @throws ApiError with the index of the one that failed */
export async function runTransaction(calls: readonly Call[], settings: Settings, signal: AbortSignal): Promise<readonly Result[]> {
  const text = await callText('POST', 'api/transaction', { body: transactionBody(calls, settings), signal, isSafe: settings.isReadOnly });
  const [start = 0, end = 0] = membersOf(text).get('results') ?? [];
  const results = elementsOf(text.slice(start, end));
  return calls.map((call, index) => resultOf(call, results[index] ?? '{}'));
}

function resultOf(call: Call, json: string): Result {
  const members = membersOf(json);
  const read = <T>(name: string, missing: T): T => {
    const place = members.get(name);
    return place === undefined ? missing : JSON.parse(json.slice(...place));
  };
  const fields = read<readonly Field[]>('fields', []);
  const [start = 0] = members.get('rows') ?? [];
  const texts = fields.length === 0 ? [] : elementsOf(json, start);
  const rows = fields.length === 0 ? undefined : new ReceivedRows(columnsOf(fields));
  rows?.append(texts);
  const completion: Completion = {
    command: read('command', ''),
    rowCount: read('rowCount', null),
    durationMs: read('durationMs', 0),
    warnings: read('warnings', []),
  };
  return { call, rows, received: texts.length, isCut: false, completion };
}
