import { createHash } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { ServiceError } from '../../errors.ts';
import { decodeTextRow } from '../../protocol/backend.ts';
import type { Lease } from '../../router/lease.ts';
import { TimeSlices } from '../../runtime/event-loop.ts';
import { type IdempotentRequest, type OnceReply, once } from '../execution/transactions/idempotency.ts';
import { type SessionOptions, SqlSession } from '../session/sql-session.ts';
import {
  applyAndRollBack,
  applyInTransaction,
  applyWithoutTransaction,
  type Migration,
  type MigrationPlan,
  type MigrationResult,
} from './apply-or-dry-run.ts';
import { MigrationHistory } from './migration-history.ts';
import { MigrationScript, type MigrationScriptWarning } from './migration-script.ts';

export interface MigrationRequest extends SessionOptions {
  readonly name: string;
  /** Any number of statements. */
  readonly sql: string;
  /** Runs everything, then rolls it back. With `rollbackSql`: applies, undoes and applies it again. */
  readonly dryRun?: boolean;
  /** false: statement by statement without a transaction around them (CREATE INDEX CONCURRENTLY). Default true. */
  readonly transaction?: boolean;
  /** SQL that undoes it. It is stored in the history. */
  readonly rollbackSql?: string;
}

export type MigrationWarning = MigrationScriptWarning;

export interface MigrationReply {
  readonly migration: Migration;
  readonly alreadyApplied: boolean;
  readonly warnings: readonly MigrationWarning[];
}

/**
 * Applies a migration with the organization's role and takes over the lease. Migrations of one organization wait for each other.
 * @throws StatementFailure when a statement fails; nothing is changed then, except with `transaction: false`
 * @throws ServiceError `migration_checksum_mismatch`, `invalid_request`, `statement_timeout`, `query_canceled`, `backend_lost`
 */
export async function applyMigration(lease: Lease, request: MigrationRequest): Promise<MigrationReply> {
  const session = new SqlSession(lease, request);
  try {
    return await perform(session, request);
  } finally {
    await session.end();
  }
}

/**
 * As {@link applyMigration}, at most once for each idempotency key. Only the reply to a migration that was applied is stored.
 * @throws as {@link applyMigration} and {@link once}
 */
export function applyMigrationOnce(lease: Lease, request: MigrationRequest, repeatable: IdempotentRequest): Promise<OnceReply> {
  return once(lease, request, repeatable, async (session, keep) => {
    const reply = await perform(session, request, (applied) => keep(201, toJson(applied)));
    return { status: reply.alreadyApplied ? 200 : 201, body: toJson(reply) };
  });
}

/** @param keep called with the reply in the transaction that ends the migration */
async function perform(
  session: SqlSession,
  request: MigrationRequest,
  keep?: (reply: MigrationReply) => Promise<void>,
): Promise<MigrationReply> {
  session.mustBeReset();
  session.mayChangeSchema();
  const plan = await planOf(session, request);
  const history = new MigrationHistory(session);
  await takeTurn(session);
  const applied = await findApplied(history, plan);
  if (applied !== undefined) return { migration: applied, alreadyApplied: true, warnings: [] };
  const destructions = await plan.forward.destructions();
  const replyOf = ({ migration, warnings }: MigrationResult): MigrationReply => ({
    migration,
    alreadyApplied: false,
    warnings: [...destructions, ...warnings],
  });
  return replyOf(await run(session, history, plan, request, async (result) => keep?.(replyOf(result))));
}

function toJson(reply: MigrationReply): Buffer {
  return Buffer.from(JSON.stringify(reply));
}

async function planOf(session: SqlSession, { name, sql, rollbackSql, dryRun, transaction }: MigrationRequest): Promise<MigrationPlan> {
  if (dryRun === true && transaction === false) {
    throw new ServiceError('invalid_request', 'dryRun needs a transaction to roll back, so "transaction" cannot be false');
  }
  const slices = new TimeSlices();
  const forward = await MigrationScript.read(sql, 'statement', session.areStringsStandard);
  await slices.pause();
  const checksum = `sha256:${createHash('sha256').update(sql).digest('hex')}`;
  await slices.pause();
  const back = rollbackSql === undefined ? undefined : await MigrationScript.read(rollbackSql, 'rollback', session.areStringsStandard);
  return { name, checksum, forward, back };
}

/** @throws ServiceError `migration_checksum_mismatch` */
async function findApplied(history: MigrationHistory, { name, checksum }: MigrationPlan): Promise<Migration | undefined> {
  const entry = await history.find(name);
  if (entry === undefined || entry.status === 'failed') return undefined;
  if (entry.checksum === checksum) return entry;
  throw new ServiceError('migration_checksum_mismatch', `migration "${name}" has been applied with other SQL`, {
    detail: `It was applied at ${entry.appliedAt} with ${entry.checksum}; this is ${checksum}.`,
    hint: 'What has been applied stays as it is: put the change into a migration of another name.',
  });
}

/** @param keep called with the result in the transaction that ends the migration; not called for a dry run */
function run(
  session: SqlSession,
  history: MigrationHistory,
  plan: MigrationPlan,
  { dryRun, transaction }: MigrationRequest,
  keep: (result: MigrationResult) => Promise<void>,
): Promise<MigrationResult> {
  if (dryRun === true) return applyAndRollBack(session, plan);
  return transaction === false ? applyWithoutTransaction(session, history, plan, keep) : applyInTransaction(session, history, plan, keep);
}

const LOCK = `SELECT pg_catalog.pg_try_advisory_lock(pg_catalog.hashtextextended('postern.migrations ' || current_user, 0))`;
const LOCK_POLL_MS = 50;

/**
 * Allows one migration of an organization at a time. The session-level lock is released with the lease. It is polled for,
 * because a statement that waits for it would hold a snapshot, and CREATE INDEX CONCURRENTLY waits for snapshots.
 */
async function takeTurn(session: SqlSession): Promise<void> {
  for (;;) {
    let isLocked = false;
    await session.query(LOCK, {
      row: (source, start) => {
        isLocked = decodeTextRow(source, start)[0] === 't';
      },
    });
    if (isLocked) return;
    await delay(LOCK_POLL_MS);
  }
}
