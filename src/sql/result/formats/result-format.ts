import type { JsonBuffer } from '../../json/buffer.ts';
import type { Field, RowEncoder } from '../../json/row.ts';
import type { Warning } from '../../session/warnings.ts';
import type { StatementOutcome } from '../statement-outcome.ts';

export type RowMode = 'object' | 'array';

/** How a result is written: the part before its rows, the rows, and the part after them. */
export interface ResultFormat {
  /** Whether of several columns with the same name only the last is kept. */
  readonly losesRepeatedNames: boolean;
  /** Whether the names and elements of the columns' types must be known. */
  readonly needsTypes: boolean;
  open(out: JsonBuffer, fields: readonly Field[]): void;
  rows(fields: readonly Field[]): RowEncoder;
  readonly separator: Uint8Array;
  close(out: JsonBuffer, outcome: StatementOutcome, warnings: readonly Warning[]): void;
}
