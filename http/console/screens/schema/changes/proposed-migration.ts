import { begin, change as changeDraft, draft } from '../../migrations/draft.ts';
import { isOf, outcome } from '../../migrations/run-migration.ts';

/** What a dialog makes of a change: nothing runs before it is applied. */
export interface ProposedMigration {
  readonly name: string;
  readonly sql: string;
  /** Absent where nothing brings back what was there. */
  readonly rollbackSql?: string;
  /** false: it cannot run in a transaction. */
  readonly isTransaction?: false;
}

/** Begins a migration with it; one that is being written is lost. */
export function beginMigration({ name, sql, rollbackSql, isTransaction }: ProposedMigration): void {
  outcome.value = undefined;
  begin({ name, sql, hasRollback: rollbackSql !== undefined, rollbackSql: rollbackSql ?? '', isTransaction: isTransaction ?? true });
}

/** Whether there is a migration that has not been applied. */
export function isWriting(): boolean {
  const known = outcome.value;
  const isApplied = known?.state === 'done' && !known.request.dryRun && isOf(known, draft.value);
  return draft.value.sql.trim() !== '' && !isApplied;
}

/** Whether it can be put behind what is being written: either all of a migration runs in a transaction, or nothing. */
export function mayAdd({ isTransaction }: ProposedMigration): boolean {
  return isWriting() && (isTransaction ?? true) === draft.value.isTransaction;
}

export function addToMigration({ sql, rollbackSql }: ProposedMigration): void {
  const before = draft.peek();
  outcome.value = undefined;
  // What was done last is undone first. Without SQL for all there is none for the whole.
  const hasRollback = before.hasRollback && rollbackSql !== undefined;
  changeDraft({
    sql: `${before.sql.trimEnd()}\n\n${sql}`,
    hasRollback,
    rollbackSql: hasRollback ? `${rollbackSql}\n${before.rollbackSql}` : before.rollbackSql,
  });
}
