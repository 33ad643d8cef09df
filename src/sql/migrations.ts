import { createHash } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { ServiceError } from '../errors.ts';
import { decodeTextRow, PostgresError } from '../protocol/backend.ts';
import type { Lease } from '../router/lease.ts';
import { TimeSlices } from '../runtime/event-loop.ts';
import { findDestruction } from '../syntax/destructive-statements.ts';
import { checkStatement, checkText } from '../syntax/http-restrictions.ts';
import { LineCounter, lineAndColumnAt, lineAndColumnOfError } from '../syntax/line-and-column.ts';
import { stringsAfter } from '../syntax/names.ts';
import { sessionTraitsOf } from '../syntax/session-traits.ts';
import { sideEffectsOf } from '../syntax/side-effects.ts';
import { eachStatement, type SqlStatement } from '../syntax/statements.ts';
import { checkConstraints, checkInTransaction, inTransaction } from './batch.ts';
import { type FailurePlace, failureAt, StatementFailure } from './failures.ts';
import { type IdempotentRequest, type OnceReply, once } from './idempotency.ts';
import { type AppliedMigration, MigrationHistory, type NewAppliedMigration } from './migration-history.ts';
import { type ChangedObjects, changesBetween, differencesOf, readObjects } from './migration-objects.ts';
import type { Completion } from './pipeline.ts';
import { type SessionOptions, SqlSession } from './session.ts';
import { charactersOf, type Warning } from './warnings.ts';

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

type MigrationWarning = MigrationScriptWarning;

export interface MigrationReply {
  readonly migration: Migration;
  readonly alreadyApplied: boolean;
  readonly warnings: readonly MigrationWarning[];
}

export interface RollbackRequest extends SessionOptions {
  readonly name: string;
  /** Runs everything, then rolls it back. */
  readonly dryRun?: boolean;
  /** Also if others have been applied after it. */
  readonly force?: boolean;
  /** Called with the SQL that undoes it before that runs. */
  readonly runs?: (sql: string) => void;
}

export interface RollbackReply {
  readonly migration: Migration;
  readonly alreadyRolledBack: boolean;
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

/**
 * Undoes a migration by the SQL that was kept with it, in one transaction together with its entry in the history, and takes over the lease.
 * @throws StatementFailure when a statement fails; nothing is changed then
 * @throws ServiceError `not_found`, `migration_not_reversible`, `migration_not_newest`, `statement_timeout`, `query_canceled`, `backend_lost`
 */
export async function rollBackMigration(lease: Lease, request: RollbackRequest): Promise<RollbackReply> {
  const session = new SqlSession(lease, request);
  try {
    return await rollBack(session, request);
  } finally {
    await session.end();
  }
}

/** As {@link rollBackMigration}, at most once for each idempotency key. @throws as {@link rollBackMigration} and {@link once} */
export function rollBackMigrationOnce(lease: Lease, request: RollbackRequest, repeatable: IdempotentRequest): Promise<OnceReply> {
  return once(lease, request, repeatable, async (session, keep) => {
    const reply = await rollBack(session, request, (done) => keep(200, toJson(done)));
    return { status: 200, body: toJson(reply) };
  });
}

/** @param keep called with the reply in the transaction that undoes it */
async function rollBack(
  session: SqlSession,
  { name, dryRun, force, runs }: RollbackRequest,
  keep?: (reply: RollbackReply) => Promise<void>,
): Promise<RollbackReply> {
  session.mustBeReset();
  session.mayChangeSchema();
  const history = new MigrationHistory(session);
  await takeTurn(session);
  const entry = await history.find(name);
  if (entry === undefined) throw new ServiceError('not_found', `there is no migration "${name}"`);
  if (entry.status === 'rolled_back') return { migration: entry, alreadyRolledBack: true, warnings: [] };
  const back = await readRollback(session, history, entry, force === true);
  runs?.(back.sql);
  const destructions = await back.destructions();
  const startedAt = performance.now();
  const work = async (): Promise<RollbackReply> => {
    await session.query(LOCK_TIMEOUT);
    const warnings = await runScript(session, back, checkInTransaction);
    if (dryRun === true) await checkConstraints(session);
    else await history.create();
    const durationMs = Math.round((performance.now() - startedAt) * 1_000) / 1_000;
    const migration = dryRun === true ? { ...entry, durationMs, status: 'dry_run' as const } : await history.rolledBack(name);
    const reply = { migration, alreadyRolledBack: false, warnings: [...destructions, ...warnings] };
    if (dryRun !== true) await keep?.(reply);
    return reply;
  };
  return inTransaction(session, BEGIN, work, ...(dryRun === true ? (['ROLLBACK'] as const) : []));
}

async function readRollback(
  session: SqlSession,
  history: MigrationHistory,
  { name, status }: AppliedMigration,
  force: boolean,
): Promise<MigrationScript> {
  const { sql, newest } = (await history.rollbackOf(name)) ?? { sql: null, newest: '' };
  if (status === 'failed')
    throw new ServiceError('migration_not_reversible', `migration "${name}" has failed, and what it has left is not known`, {
      hint: 'Complete it by applying it again, or undo what it has left with SQL of your own.',
    });
  if (sql === null)
    throw new ServiceError('migration_not_reversible', `migration "${name}" was applied without rollbackSql`, {
      hint: 'Undo it with a migration of another name.',
    });
  if (newest !== name && !force)
    throw new ServiceError('migration_not_newest', `migration "${name}" is not the newest one`, {
      detail: `"${newest}" was applied after it.`,
      hint: 'Roll back the newest first. "force": true rolls this one back all the same.',
    });
  return MigrationScript.read(sql, 'rollback', session.areStringsStandard);
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
  if (applied !== undefined)
    return { migration: applied, alreadyApplied: true, warnings: await findDifferences(session, history, plan.name) };
  const destructions = await plan.forward.destructions();
  const replyOf = ({ migration, warnings }: MigrationResult): MigrationReply => ({
    migration,
    alreadyApplied: false,
    warnings: [...destructions, ...warnings],
  });
  return replyOf(await run(session, history, plan, request, async (result) => keep?.(replyOf(result))));
}

/** Names at most so many. */
const DIFFERENCES_MAX = 20;

/** Warnings of what a migration has made that is not as migrations have left it. */
async function findDifferences(session: SqlSession, history: MigrationHistory, name: string): Promise<readonly MigrationWarning[]> {
  const [changed, ...later] = await history.changesSince(name);
  if (changed === undefined || Object.keys(changed).length === 0) return [];
  const now = await inTransaction(session, BEGIN, () => readObjects(session), 'ROLLBACK');
  if (now === undefined) return [];
  return differencesOf(changed, later, now)
    .slice(0, DIFFERENCES_MAX)
    .map(({ object, isGone }) => ({
      severity: 'WARNING',
      code: isGone ? 'missing_object' : 'changed_object',
      message: `${object} ${isGone ? 'is gone' : 'is not as the migration has left it'}, and nothing was done about it`,
    }));
}

function toJson(reply: MigrationReply | RollbackReply): Buffer {
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
  if (entry === undefined || entry.status !== 'applied') return undefined;
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

/** A migration that has been checked and may run. */
interface MigrationPlan {
  readonly name: string;
  readonly checksum: string;
  readonly forward: MigrationScript;
  /** The statements that undo it. */
  readonly back: MigrationScript | undefined;
}

/** The status in the history; `dry_run` is never stored. */
interface Migration extends Omit<AppliedMigration, 'status'> {
  readonly status: AppliedMigration['status'] | 'dry_run';
}

interface MigrationResult {
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
function applyInTransaction(
  session: SqlSession,
  history: MigrationHistory,
  plan: MigrationPlan,
  beforeCommit: BeforeCommit,
): Promise<MigrationResult> {
  const startedAt = performance.now();
  return inTransaction(session, BEGIN, async () => {
    await session.query(LOCK_TIMEOUT);
    const before = await readObjects(session);
    const warnings = await runScript(session, plan.forward, checkInTransaction);
    const objects = changesBetween(before, await readObjects(session));
    await history.create();
    const migration = await history.add(entryOf(plan, 'applied', plan.forward.statements.length, startedAt, objects));
    await beforeCommit({ migration, warnings });
    return { migration, warnings };
  });
}

/** As {@link applyInTransaction}, without the commit. With a rollback script it also undoes the migration and applies it again. Nothing is kept. */
function applyAndRollBack(session: SqlSession, plan: MigrationPlan): Promise<MigrationResult> {
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
    const { sql: _sql, rollbackSql, objects: _objects, ...entry } = entryOf(plan, 'applied', plan.forward.statements.length, startedAt);
    const undo = { isReversible: rollbackSql !== undefined, rolledBackAt: null };
    return { migration: { ...entry, ...undo, status: 'dry_run', appliedAt: new Date().toISOString() }, warnings };
  });
}

/**
 * Runs each statement by itself, for those that cannot run in a transaction. The history has the status `failed` and the number of
 * completed statements from the start, so that it is correct even if this process ends before the migration does.
 */
async function applyWithoutTransaction(
  session: SqlSession,
  history: MigrationHistory,
  plan: MigrationPlan,
  beforeCommit: BeforeCommit,
): Promise<MigrationResult> {
  const startedAt = performance.now();
  const before = await inTransaction(session, BEGIN, async () => {
    await history.create();
    await history.add(entryOf(plan, 'failed', 0, startedAt));
    return readObjects(session);
  });
  let applied = 0;
  const count = async () => {
    applied += 1;
    await history.update(entryOf(plan, 'failed', applied, startedAt));
  };
  try {
    const warnings = await runScript(session, plan.forward, count);
    return await inTransaction(session, BEGIN, async () => {
      const objects = changesBetween(before, await readObjects(session));
      const migration = await history.update(entryOf(plan, 'applied', applied, startedAt, objects));
      await beforeCommit({ migration, warnings });
      return { migration, warnings };
    });
  } catch (error) {
    throw error instanceof StatementFailure ? new StatementFailure(error.error, { ...error.place, statementsApplied: applied }) : error;
  }
}

function entryOf(
  plan: MigrationPlan,
  status: NewAppliedMigration['status'],
  statementsApplied: number,
  startedAt: number,
  objects?: ChangedObjects,
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
    objects,
  };
}

/** Limit of the texts of all warnings together. */
const WARNINGS_MAX_CHARACTERS = 65_536;

/**
 * Runs the statements one after another.
 * @param check called after each statement with its outcome; an error that it throws becomes the statement's failure
 * @returns their notices, the first hundred
 * @throws StatementFailure
 */
async function runScript(
  session: SqlSession,
  script: MigrationScript,
  check: (completion: Completion, statementIndex: number) => void | Promise<void>,
  phase = script.phase,
): Promise<readonly MigrationScriptWarning[]> {
  const warnings: MigrationScriptWarning[] = [];
  const { sql } = script;
  let characters = 0;
  let index = 0;
  for await (const { text, start } of script.inTurn(() => session.areStringsStandard)) {
    let parameters = 0;
    try {
      session.makesOptions(sideEffectsOf(text).customOptions);
      await session.rewriteAhead(text);
      const startedAt = performance.now();
      const running = session.run(text, [], {
        parameters: (types) => {
          parameters = types.length;
        },
      });
      running.catch((error: unknown) => session.countFailure(text, startedAt, error));
      const completion = await running;
      session.count(text, startedAt, completion.tag?.rowCount, 0);
      session.throwIfAborted();
      await check(completion, index);
      for (const warning of completion.warnings) {
        if (warnings.length === WARNINGS_MAX || characters > WARNINGS_MAX_CHARACTERS) break;
        warnings.push({ ...warning, statementIndex: index });
        characters += charactersOf(warning);
      }
    } catch (error) {
      const place = lineAndColumnOfError(sql, start, error);
      const cause = psqlCommandWithin(text, place.line, error) ?? explained(error, parameters);
      throw failureAt(cause, { phase, statementIndex: index, ...place });
    }
    index += 1;
  }
  return warnings;
}

/** Adds a hint, because Postgres' error does not say what to do. */
function explained(error: unknown, parameters: number): unknown {
  if (!(error instanceof PostgresError)) return error;
  if (parameters > 0)
    return new ServiceError('invalid_request', 'a migration has no values for parameters such as $1', { sqlstate: '08P01' });
  // Such as CREATE INDEX CONCURRENTLY.
  if (error.fields.routine !== 'PreventInTransactionBlock') return error;
  return new PostgresError({ hint: 'Send it as a migration of its own with "transaction": false.', ...error.fields });
}

/** A notice, or a warning of a statement that destroys data, with its position in the text. */
interface MigrationScriptWarning extends Warning {
  /** From 0. */
  readonly statementIndex?: number;
  /** From 1. */
  readonly line?: number;
  readonly column?: number;
}

const WARNINGS_MAX = 100;
const STATEMENTS_MAX = 250_000;

/** A statement, and the value of `standard_conforming_strings` with which it was found in the text. */
interface ScriptStatement extends SqlStatement {
  readonly areStringsStandard: boolean;
}

/** SQL text of several statements, without parameters. Their rows are ignored. */
class MigrationScript {
  readonly sql: string;
  /** The phase that a failure is reported with. */
  readonly phase: FailurePlace['phase'];
  readonly #statements: ScriptStatement[] = [];
  readonly #lastBackslash: number;
  /** A statement must be checked before it runs, because it may be another one by then. */
  #isUnchecked = false;

  private constructor(sql: string, phase: FailurePlace['phase']) {
    this.sql = sql;
    this.phase = phase;
    this.#lastBackslash = sql.lastIndexOf('\\');
  }

  /**
   * Reads a text, in time slices.
   * @param phase the phase that a failure is reported with
   * @param areStringsStandard the session's value of `standard_conforming_strings`
   * @throws ServiceError `invalid_request` for text without a statement, or with too many
   * @throws StatementFailure for a statement that cannot be part of a script, before anything has run
   */
  static async read(sql: string, phase: FailurePlace['phase'], areStringsStandard: boolean): Promise<MigrationScript> {
    checkText(sql);
    const script = new MigrationScript(sql, phase);
    const slices = new TimeSlices();
    await slices.pause();
    await script.#read(areStringsStandard, slices);
    // After the last token there may be megabytes of white space.
    await slices.pause();
    if (script.#statements.length === 0) throw new ServiceError('invalid_request', 'sql contains no statement', { sqlstate: '42601' });
    return script;
  }

  /** As far as they are known: a statement that runs may change how those behind it are read. */
  get statements(): readonly SqlStatement[] {
    return this.#statements;
  }

  /** Reads the whole text. What SET does to the rest of the text is foreseen; {@link inTurn} finds out the rest. */
  async #read(start: boolean, slices: TimeSlices): Promise<void> {
    let areStringsStandard = start;
    let offset: number | undefined = 0;
    while (offset !== undefined) {
      const from: number = offset;
      offset = undefined;
      for (const statement of eachStatement(this.sql, { offset: from, standardConformingStrings: areStringsStandard })) {
        await slices.pause();
        if (statement === undefined || isOfPgDump(statement)) continue;
        await this.#checkAhead(statement, slices);
        this.#add({ ...statement, areStringsStandard });
        const value = stringsAfter(statement.text, start) ?? areStringsStandard;
        if (value === areStringsStandard) continue;
        areStringsStandard = value;
        offset = endOf(statement);
        break;
      }
    }
  }

  #add(statement: ScriptStatement): void {
    this.#statements.push(statement);
    if (this.#statements.length > STATEMENTS_MAX)
      throw new ServiceError('invalid_request', `sql has more than ${STATEMENTS_MAX} statements`);
  }

  /** A statement that is refused may turn out to be a part of a string, if one before it changes how strings are read. */
  async #checkAhead(statement: SqlStatement, slices: TimeSlices): Promise<void> {
    if (this.#isUnchecked) return;
    try {
      this.#check(statement, this.#statements.length);
    } catch (error) {
      if (!this.sql.slice(0, statement.start).includes('\\') || !(await this.#mayChangeSettings(slices))) throw error;
      this.#isUnchecked = true;
    }
  }

  async #mayChangeSettings(slices: TimeSlices): Promise<boolean> {
    for (const { text } of this.#statements) {
      await slices.pause();
      if (sessionTraitsOf(text).changesSettings) return true;
    }
    return false;
  }

  #check({ text, start }: SqlStatement, statementIndex: number): void {
    try {
      checkStatement(text, 'transaction');
      if (text.startsWith('\\')) throw psqlCommand(text, lineAndColumnAt(this.sql, start).line);
    } catch (error) {
      throw failureAt(error, { phase: this.phase, statementIndex, ...lineAndColumnAt(this.sql, start) });
    }
  }

  /**
   * The statements as the server reads them, each after the one before it has run.
   * @param areStringsStandard the session's present value of `standard_conforming_strings`
   * @throws as {@link read}
   */
  async *inTurn(areStringsStandard: () => boolean): AsyncGenerator<SqlStatement, void> {
    const statements = this.#statements;
    let index = 0;
    for (; index < statements.length; index += 1) {
      const statement = statements[index] as ScriptStatement;
      if (statement.start <= this.#lastBackslash && statement.areStringsStandard !== areStringsStandard()) break;
      if (this.#isUnchecked) this.#check(statement, index);
      yield statement;
    }
    // From here on the text is read anew, statement by statement.
    let offset = statements[index]?.start ?? this.sql.length;
    statements.length = index;
    const slices = new TimeSlices();
    for (let statement = await this.#readOne(offset, areStringsStandard(), slices); statement !== undefined; ) {
      this.#check(statement, statements.length);
      this.#add(statement);
      yield statement;
      offset = endOf(statement);
      statement = await this.#readOne(offset, areStringsStandard(), slices);
    }
  }

  async #readOne(offset: number, areStringsStandard: boolean, slices: TimeSlices): Promise<ScriptStatement | undefined> {
    for (const statement of eachStatement(this.sql, { offset, standardConformingStrings: areStringsStandard })) {
      await slices.pause();
      if (statement !== undefined && !isOfPgDump(statement)) return { ...statement, areStringsStandard };
    }
    return undefined;
  }

  /** Warnings of statements that destroy data; the first hundred. */
  async destructions(): Promise<readonly MigrationScriptWarning[]> {
    const warnings: MigrationScriptWarning[] = [];
    const counter = new LineCounter(this.sql);
    const slices = new TimeSlices();
    for (const [statementIndex, { text, start, areStringsStandard }] of this.#statements.entries()) {
      await slices.pause();
      for (const { message, offset } of findDestruction(text, { standardConformingStrings: areStringsStandard })) {
        if (warnings.length === WARNINGS_MAX) return warnings;
        const place = counter.at(start + offset);
        warnings.push({ severity: 'WARNING', code: 'destructive_statement', message, statementIndex, ...place });
      }
    }
    return warnings;
  }
}

/**
 * Whether it is one of the two commands of psql in each file of pg_dump, which say nothing to a server.
 * @see https://www.postgresql.org/docs/current/app-psql.html#APP-PSQL-META-COMMAND-RESTRICT
 */
function isOfPgDump({ text }: SqlStatement): boolean {
  return /^\\(?:un)?restrict\b/.test(text);
}

const COMMAND_MAX_CHARACTERS = 63;

/** @param text begins with the command */
function psqlCommand(text: string, line: number | undefined): ServiceError {
  const command = (/^\\\S*/.exec(text)?.[0] ?? '').slice(0, COMMAND_MAX_CHARACTERS);
  return new ServiceError('invalid_request', `${command} is a command of psql, and no SQL`, {
    sqlstate: '42601',
    hint: `Leave out ${command}${line === undefined ? '' : ` in line ${line}`}, or run the file with psql.`,
  });
}

/** @returns what is wrong where the server has found a backslash outside quotes */
function psqlCommandWithin(text: string, line: number | undefined, error: unknown): ServiceError | undefined {
  if (!(error instanceof PostgresError)) return undefined;
  const { code, message, position } = error.fields;
  if (code !== '42601' || message?.endsWith('at or near "\\"') !== true) return undefined;
  const at = text.indexOf('\\', Number(position ?? 1) - 1);
  return psqlCommand(text.slice(at, at + COMMAND_MAX_CHARACTERS + 1), line);
}

/** The offset behind a statement, where its semicolon may be. */
function endOf({ start, text }: SqlStatement): number {
  return start + text.length;
}
