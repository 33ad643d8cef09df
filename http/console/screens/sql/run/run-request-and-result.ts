import type { EditorError } from '../../../editor/error-range.ts';
import type { ReceivedRows } from '../../../parts/grid/received-rows.ts';
import type { Parameter } from './parameters.ts';
import type { Statement } from './statements.ts';

/** How a request is made besides its text. */
export interface Settings {
  readonly isReadOnly: boolean;
  /** Milliseconds; undefined: as the server does by default. */
  readonly timeoutMs: number | undefined;
}

/** A statement with its parameters. */
export interface Call {
  readonly statement: Statement;
  readonly params: readonly Parameter[];
}

export type Kind = 'run' | 'explain' | 'analyze';

export interface RunRequest extends Settings {
  readonly kind: Kind;
  /** The editor's text; places are in it. */
  readonly text: string;
  /** Several run in one transaction. */
  readonly calls: readonly Call[];
}

/** A notice or warning of PostgreSQL's, or one about the reply. */
export interface Warning {
  readonly severity: string;
  readonly code: string;
  readonly message: string;
  readonly detail?: string;
  readonly hint?: string;
  readonly where?: string;
}

export interface Completion {
  readonly command: string;
  readonly rowCount: number | null;
  readonly durationMs: number;
  readonly warnings: readonly Warning[];
}

/** What a statement has returned so far. */
export interface Result {
  readonly call: Call;
  readonly rows: ReceivedRows | undefined;
  /** Rows that came, also those that were not kept. */
  readonly received: number;
  /** Rows were left out: more than are kept. */
  readonly isCut: boolean;
  /** Undefined: it still runs, or was given up. */
  readonly completion: Completion | undefined;
}

export interface Run {
  readonly request: RunRequest;
  readonly phase: 'running' | 'done' | 'failed' | 'canceled';
  /** By `performance.now()`. */
  readonly startedAt: number;
  readonly endedAt: number | undefined;
  readonly results: readonly Result[];
  /** Of `explain` and `analyze`: what PostgreSQL has answered. */
  readonly plan: unknown;
  readonly error: unknown;
  /** Which of the statements has failed. */
  readonly failedIndex: number | undefined;
  readonly place: EditorError | undefined;
  readonly cancel: () => void;
}

/** More rows are not kept. */
export const KEPT_ROWS_MAX = 100_000;

/** As psql writes it: `INSERT 0 3`, `SELECT 12`, `CREATE TABLE`. */
export function commandTag({ command, rowCount }: Completion): string {
  if (rowCount === null) return command;
  return command === 'INSERT' ? `INSERT 0 ${rowCount}` : `${command} ${rowCount}`;
}
