import type { CommandTag } from '../../protocol/backend.ts';

export interface StatementOutcome {
  /** The command tag without numbers: `SELECT`, `INSERT`, `CREATE TABLE`; empty for an empty statement. */
  readonly command: string;
  /** Rows returned or affected; null for commands without a count, such as DDL. */
  readonly rowCount: number | null;
  /** With up to three decimals. */
  readonly durationMs: number;
}

/** The outcome of several statements: their rows together. @param command what they are called together */
export function totalOf(outcomes: readonly StatementOutcome[], command: string): StatementOutcome {
  let [rowCount, durationMs] = [0, 0];
  for (const outcome of outcomes) {
    rowCount += outcome.rowCount ?? 0;
    durationMs += outcome.durationMs;
  }
  return { command, rowCount, durationMs };
}

export function outcomeOf(tag: CommandTag | undefined, startedAt: number): StatementOutcome {
  const durationMs = Math.round((performance.now() - startedAt) * 1_000) / 1_000;
  return { command: tag?.command ?? '', rowCount: tag?.rowCount ?? null, durationMs };
}
