import { arrayRows, type Field, objectRows } from '../../json/row.ts';
import type { Warning } from '../../session/warnings.ts';
import type { StatementOutcome } from '../statement-outcome.ts';
import type { ResultFormat, RowMode } from './result-format.ts';

/** The reply of `/api/query`: `{fields, rowAsArray, rows, rowCount, command, durationMs, warnings?}`. */
export function jsonFormat(rowMode: RowMode): ResultFormat {
  return rowMode === 'array' ? ROWS_AS_ARRAYS : ROWS_AS_OBJECTS;
}

const ROWS_AS_OBJECTS = queryFormat(false, objectRows);
const ROWS_AS_ARRAYS = queryFormat(true, arrayRows);

function queryFormat(rowAsArray: boolean, rows: ResultFormat['rows']): ResultFormat {
  return {
    losesRepeatedNames: !rowAsArray,
    needsTypes: true,
    separator: Buffer.from(','),
    rows,
    open(out, fields) {
      out.text(`{"fields":${JSON.stringify(fields.map(describe))},"rowAsArray":${rowAsArray},"rows":[`);
    },
    close(out, outcome, warnings) {
      out.text(`],${completion(outcome, warnings).slice(1)}`);
    },
  };
}

export function describe({ name, type }: Field) {
  return { name, dataTypeID: type.oid, dataType: type.name };
}

export function completion({ rowCount, command, durationMs }: StatementOutcome, warnings: readonly Warning[]): string {
  const list = warnings.length > 0 ? `,"warnings":${JSON.stringify(warnings)}` : '';
  return `{"rowCount":${rowCount},"command":"${command}","durationMs":${durationMs}${list}}`;
}
