import type { JsonBuffer } from './json/buffer.ts';
import { arrayRows, type Field, objectRows, type RowEncoder } from './json/row.ts';
import type { Warning } from './notices.ts';

export type RowMode = 'object' | 'array';

export interface StatementOutcome {
  /** The command tag without its counts: `SELECT`, `INSERT`, `CREATE TABLE`; empty for an empty statement. */
  readonly command: string;
  /** Rows returned or affected; null where the command has no such count (DDL). */
  readonly rowCount: number | null;
  /** With up to three decimals. */
  readonly durationMs: number;
}

/** How a result is written: what stands before its rows, the rows, and what stands behind them. */
export interface ResultLayout {
  /** Whether columns of one name are lost but for the last. */
  readonly losesRepeatedNames: boolean;
  open(out: JsonBuffer, fields: readonly Field[]): void;
  rows(fields: readonly Field[]): RowEncoder;
  readonly separator: Uint8Array;
  close(out: JsonBuffer, outcome: StatementOutcome, warnings: readonly Warning[]): void;
}

/** The reply of `/api/query`: `{fields, rowAsArray, rows, rowCount, command, durationMs, warnings?}`. */
export function jsonLayout(rowMode: RowMode): ResultLayout {
  return rowMode === 'array' ? ROWS_AS_ARRAYS : ROWS_AS_OBJECTS;
}

const ROWS_AS_OBJECTS = layout(false, objectRows);
const ROWS_AS_ARRAYS = layout(true, arrayRows);

function layout(rowAsArray: boolean, rows: ResultLayout['rows']): ResultLayout {
  return {
    losesRepeatedNames: !rowAsArray,
    separator: Buffer.from(','),
    rows,
    open(out, fields) {
      const described = fields.map(({ name, type }) => ({ name, dataTypeID: type.oid, dataType: type.name }));
      out.text(`{"fields":${JSON.stringify(described)},"rowAsArray":${rowAsArray},"rows":[`);
    },
    close(out, { rowCount, command, durationMs }, warnings) {
      const shown = warnings.length > 0 ? { rowCount, command, durationMs, warnings } : { rowCount, command, durationMs };
      out.text(`],${JSON.stringify(shown).slice(1)}`);
    },
  };
}
