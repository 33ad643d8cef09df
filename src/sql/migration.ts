import { createHash } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { ServiceError } from '../errors.ts';
import type { Lease } from '../router/lease.ts';
import { Ledger } from './ledger.ts';
import { readRow } from './messages.ts';
import { applyAtOnce, applyStepByStep, type Migration, type MigrationPlan, type MigrationResult, tryOut } from './migration-run.ts';
import { Script, type ScriptWarning } from './script.ts';
import { Session, type SessionOptions } from './session.ts';

export interface MigrationRequest extends SessionOptions {
  readonly name: string;
  /** Any number of statements. */
  readonly sql: string;
  /** Run everything, then roll it back. With `rollbackSql`: forward, back and forward again. */
  readonly dryRun?: boolean;
  /** false: statement by statement without a transaction around them (CREATE INDEX CONCURRENTLY). Default true. */
  readonly transaction?: boolean;
  /** SQL that undoes it; kept in the ledger. */
  readonly rollbackSql?: string;
}

export type { Migration } from './migration-run.ts';
export type MigrationWarning = ScriptWarning;

export interface MigrationReply {
  readonly migration: Migration;
  readonly alreadyApplied: boolean;
  readonly warnings: readonly MigrationWarning[];
}

/**
 * Applies a migration as the organization and takes over the lease. Migrations of one organization wait for each other.
 * @throws StatementFailure when a statement fails; no trace of it remains, except with `transaction: false`
 * @throws ServiceError `migration_checksum_mismatch`, `invalid_request`, `statement_timeout`, `query_canceled`, `backend_lost`
 */
export async function applyMigration(lease: Lease, request: MigrationRequest): Promise<MigrationReply> {
  const session = new Session(lease, request);
  try {
    const plan = planOf(session, request);
    const ledger = new Ledger(session, lease.tenant.organization.placement);
    await takeTurn(session);
    const applied = await findApplied(ledger, plan);
    if (applied !== undefined) return { migration: applied, alreadyApplied: true, warnings: [] };
    const { migration, warnings } = await run(session, ledger, plan, request);
    return { migration, alreadyApplied: false, warnings: [...plan.forward.destructions, ...warnings] };
  } finally {
    await session.end();
  }
}

/** All migrations in the order applied; none when the organization has never applied any. Takes over the lease. */
export async function listMigrations(lease: Lease, options: SessionOptions): Promise<readonly Migration[]> {
  const session = new Session(lease, options);
  try {
    return await new Ledger(session, lease.tenant.organization.placement).list();
  } finally {
    await session.end();
  }
}

function planOf({ lease: { backend } }: Session, { name, sql, rollbackSql, dryRun, transaction }: MigrationRequest): MigrationPlan {
  if (dryRun === true && transaction === false) {
    throw new ServiceError('invalid_request', 'dryRun needs a transaction to roll back, so "transaction" cannot be false');
  }
  const options = { standardStrings: backend.parameters.get('standard_conforming_strings') !== 'off' };
  return {
    name,
    checksum: `sha256:${createHash('sha256').update(sql).digest('hex')}`,
    forward: new Script(sql, 'statement', options),
    back: rollbackSql === undefined ? undefined : new Script(rollbackSql, 'rollback', options),
  };
}

/** @throws ServiceError `migration_checksum_mismatch` */
async function findApplied(ledger: Ledger, { name, checksum }: MigrationPlan): Promise<Migration | undefined> {
  const entry = await ledger.find(name);
  if (entry === undefined || entry.status === 'failed') return undefined;
  if (entry.checksum === checksum) return entry;
  throw new ServiceError('migration_checksum_mismatch', `migration "${name}" has been applied with other SQL`, {
    detail: `It was applied at ${entry.appliedAt} with ${entry.checksum}; this is ${checksum}.`,
    hint: 'What has been applied stays as it is: put the change into a migration of another name.',
  });
}

function run(session: Session, ledger: Ledger, plan: MigrationPlan, { dryRun, transaction }: MigrationRequest): Promise<MigrationResult> {
  if (dryRun === true) return tryOut(session, plan);
  return transaction === false ? applyStepByStep(session, ledger, plan) : applyAtOnce(session, ledger, plan);
}

const LOCK = `SELECT pg_catalog.pg_try_advisory_lock(pg_catalog.hashtextextended('postern.migrations ' || current_user, 0))`;
const LOCK_POLL_MS = 50;

/**
 * One migration of an organization at a time. The lock is the session's, and goes when the lease is given back. It is
 * asked for again and again: who waits inside a statement holds a snapshot, and CREATE INDEX CONCURRENTLY waits for those.
 */
async function takeTurn(session: Session): Promise<void> {
  for (;;) {
    let isLocked = false;
    await session.query(LOCK, {
      row: (source, start) => {
        isLocked = readRow(source, start)[0] === 't';
      },
    });
    if (isLocked) return;
    await delay(LOCK_POLL_MS);
  }
}
