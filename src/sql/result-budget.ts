import { ServiceError } from '../errors.ts';
import type { CommandTag } from '../protocol/backend.ts';
import type { Exhaustion, MemoryBounds, MemoryReservation } from '../runtime/memory-budget.ts';

/** All results of a batch together: they are kept until the transaction is committed. */
export const RESULTS_MAX_BYTES = 32 * 1_048_576;

/** What results may take that are kept until their caller has them: four of the largest, and sixteen in all. */
export const RESULT_BOUNDS: MemoryBounds = { perOrganizationBytes: 4 * RESULTS_MAX_BYTES, allBytes: 16 * RESULTS_MAX_BYTES };

/**
 * Counts further bytes of results in memory for a call, together with those of the organization's other calls.
 * @param results undefined: they are not counted
 * @returns the error if they would exceed a limit
 */
export function keepResults(results: MemoryReservation | undefined, bytes: number): ServiceError | undefined {
  const full = results?.tryResize(results.bytes + bytes);
  return full === undefined ? undefined : noRoomForResults(full);
}

export function noRoomForResults(full: Exhaustion): ServiceError {
  const whose = full === 'its own' ? "the organization's unread results" : 'all unread results together';
  return new ServiceError('too_many_requests', `${whose} exceed the memory limit`, {
    hint: 'Wait for some of them to be received, or ask for less at once.',
    retryAfterS: 1,
  });
}

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
