import { StatementFailure } from '../execution/statement-failure.ts';
import { checkInTransaction, failureAt, inTransaction } from '../execution/transactions/in-transaction.ts';
import type { Session } from '../session/session.ts';
import type { AppliedMigration, MigrationHistory, NewAppliedMigration } from './migration-history.ts';
import type { Script, ScriptWarning } from './script.ts';

/** A migration that has been checked and may run. */
export interface MigrationPlan {
  readonly name: string;
  readonly checksum: string;
  readonly forward: Script;
  /** What undoes it. */
  readonly back: Script | undefined;
}

/** As the history has it; `dry_run` is never stored. */
export interface Migration extends Omit<AppliedMigration, 'status'> {
  readonly status: AppliedMigration['status'] | 'dry_run';
}

export interface MigrationResult {
  readonly migration: Migration;
  readonly warnings: readonly ScriptWarning[];
}

/** Whatever the organization's defaults are: what others have committed must be seen, and the history be written. */
const BEGIN = 'BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE';
/** A statement that waits for a lock on a table holds up everyone who comes after it. */
const LOCK_TIMEOUT = "SET LOCAL lock_timeout = '4s'";

/** Called with the result in the transaction that commits it, and part of that. */
type BeforeCommit = (result: MigrationResult) => Promise<void>;

/** All statements and the history's entry in one transaction: a failure leaves no trace. */
export function applyAtOnce(
  session: Session,
  history: MigrationHistory,
  plan: MigrationPlan,
  beforeCommit: BeforeCommit,
): Promise<MigrationResult> {
  const startedAt = performance.now();
  return inTransaction(session, BEGIN, async () => {
    await session.query(LOCK_TIMEOUT);
    const warnings = await plan.forward.run(session, checkInTransaction);
    await history.create();
    const migration = await history.add(entryOf(plan, 'applied', plan.forward.statements.length, startedAt));
    await beforeCommit({ migration, warnings });
    return { migration, warnings };
  });
}

/** As {@link applyAtOnce}, up to the commit; and if it can be undone, that too, and once more from the start. Nothing remains. */
export function tryOut(session: Session, plan: MigrationPlan): Promise<MigrationResult> {
  const startedAt = performance.now();
  const work = async () => {
    await session.query(LOCK_TIMEOUT);
    const warnings = await plan.forward.run(session, checkInTransaction);
    await checkConstraints(session);
    if (plan.back === undefined) return warnings;
    const undone = await plan.back.run(session, checkInTransaction);
    await plan.forward.run(session, checkInTransaction, 'repeat');
    await checkConstraints(session);
    return [...warnings, ...undone];
  };
  return inTransaction(session, BEGIN, work, 'ROLLBACK').then((warnings) => {
    const { sql: _sql, rollbackSql: _rollbackSql, ...entry } = entryOf(plan, 'applied', plan.forward.statements.length, startedAt);
    return { migration: { ...entry, status: 'dry_run', appliedAt: new Date().toISOString() }, warnings };
  });
}

/** Deferred constraints would only be looked at by COMMIT. */
async function checkConstraints(session: Session): Promise<void> {
  await session.query('SET CONSTRAINTS ALL IMMEDIATE').catch((error: unknown) => {
    throw failureAt(error, { phase: 'commit' });
  });
}

/**
 * Each statement by itself, for those that cannot run in a transaction. The history says `failed` from the start and counts
 * along, so that it tells the truth even if this process does not live to see the end.
 */
export async function applyStepByStep(
  session: Session,
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
    const warnings = await plan.forward.run(session, count);
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
