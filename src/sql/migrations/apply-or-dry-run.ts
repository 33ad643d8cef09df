import { StatementFailure } from '../execution/statement-failure.ts';
import { checkConstraints, checkInTransaction, inTransaction } from '../execution/transactions/in-transaction.ts';
import type { SqlSession } from '../session/sql-session.ts';
import type { AppliedMigration, MigrationHistory, NewAppliedMigration } from './migration-history.ts';
import type { MigrationScript, MigrationScriptWarning } from './migration-script.ts';
import { runScript } from './run-migration-script.ts';

/** A migration that has been checked and may run. */
export interface MigrationPlan {
  readonly name: string;
  readonly checksum: string;
  readonly forward: MigrationScript;
  /** The statements that undo it. */
  readonly back: MigrationScript | undefined;
}

/** The status in the history; `dry_run` is never stored. */
export interface Migration extends Omit<AppliedMigration, 'status'> {
  readonly status: AppliedMigration['status'] | 'dry_run';
}

export interface MigrationResult {
  readonly migration: Migration;
  readonly warnings: readonly MigrationScriptWarning[];
}

/** Set explicitly, because the organization may have other defaults: a migration must see what others have committed, and write the history. */
const BEGIN = 'BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE';
/** While a statement waits for a lock on a table, all later statements on the table wait behind it. */
const LOCK_TIMEOUT = "SET LOCAL lock_timeout = '4s'";

/** Called with the result inside the transaction that commits it. */
type BeforeCommit = (result: MigrationResult) => Promise<void>;

/** Runs all statements and writes the history's entry in one transaction, so that a failure changes nothing. */
export function applyInTransaction(
  session: SqlSession,
  history: MigrationHistory,
  plan: MigrationPlan,
  beforeCommit: BeforeCommit,
): Promise<MigrationResult> {
  const startedAt = performance.now();
  return inTransaction(session, BEGIN, async () => {
    await session.query(LOCK_TIMEOUT);
    const warnings = await runScript(session, plan.forward, checkInTransaction);
    await history.create();
    const migration = await history.add(entryOf(plan, 'applied', plan.forward.statements.length, startedAt));
    await beforeCommit({ migration, warnings });
    return { migration, warnings };
  });
}

/** As {@link applyInTransaction}, without the commit. With a rollback script it also undoes the migration and applies it again. Nothing is kept. */
export function applyAndRollBack(session: SqlSession, plan: MigrationPlan): Promise<MigrationResult> {
  const startedAt = performance.now();
  const work = async () => {
    await session.query(LOCK_TIMEOUT);
    const warnings = await runScript(session, plan.forward, checkInTransaction);
    await checkConstraints(session);
    if (plan.back === undefined) return warnings;
    const undone = await runScript(session, plan.back, checkInTransaction);
    await runScript(session, plan.forward, checkInTransaction, 'repeat');
    await checkConstraints(session);
    return [...warnings, ...undone];
  };
  return inTransaction(session, BEGIN, work, 'ROLLBACK').then((warnings) => {
    const { sql: _sql, rollbackSql: _rollbackSql, ...entry } = entryOf(plan, 'applied', plan.forward.statements.length, startedAt);
    return { migration: { ...entry, status: 'dry_run', appliedAt: new Date().toISOString() }, warnings };
  });
}

/**
 * Runs each statement by itself, for those that cannot run in a transaction. The history has the status `failed` and the number of
 * completed statements from the start, so that it is correct even if this process ends before the migration does.
 */
export async function applyWithoutTransaction(
  session: SqlSession,
  history: MigrationHistory,
  plan: MigrationPlan,
  beforeCommit: BeforeCommit,
): Promise<MigrationResult> {
  const startedAt = performance.now();
  await inTransaction(session, BEGIN, async () => {
    await history.create();
    await history.add(entryOf(plan, 'failed', 0, startedAt));
  });
  let applied = 0;
  const count = async () => {
    applied += 1;
    await history.update(entryOf(plan, 'failed', applied, startedAt));
  };
  try {
    const warnings = await runScript(session, plan.forward, count);
    return await inTransaction(session, BEGIN, async () => {
      const migration = await history.update(entryOf(plan, 'applied', applied, startedAt));
      await beforeCommit({ migration, warnings });
      return { migration, warnings };
    });
  } catch (error) {
    throw error instanceof StatementFailure ? new StatementFailure(error.error, { ...error.place, statementsApplied: applied }) : error;
  }
}

function entryOf(
  plan: MigrationPlan,
  status: AppliedMigration['status'],
  statementsApplied: number,
  startedAt: number,
): NewAppliedMigration {
  return {
    name: plan.name,
    status,
    checksum: plan.checksum,
    sql: plan.forward.sql,
    rollbackSql: plan.back?.sql,
    statementCount: plan.forward.statements.length,
    statementsApplied,
    durationMs: Math.round((performance.now() - startedAt) * 1_000) / 1_000,
  };
}
