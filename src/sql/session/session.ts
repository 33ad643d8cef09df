import { serialize } from 'pg-protocol';
import type { ServerStatement } from '../../backend/prepared-statements.ts';
import { ServiceError } from '../../errors.ts';
import { registryOf } from '../../multiplex/statement-registry.ts';
import type { FieldDescription, TransactionStatus } from '../../protocol/backend.ts';
import { FLUSH, SYNC } from '../../protocol/frontend-encoder.ts';
import { type StatementShape, statementShape, UNKNOWN_SHAPE } from '../../protocol/statement-shape.ts';
import type { DisconnectSignal } from '../../router/client-disconnect.ts';
import type { Lease } from '../../router/lease.ts';
import type { Edits } from '../../router/schema-rewriting/edits/edits.ts';
import { Deadline } from '../../runtime/deadline.ts';
import type { IndexedSet } from '../../runtime/indexed-set.ts';
import type { MemoryReservation } from '../../runtime/memory-budget.ts';
import type { SideEffects } from '../../syntax/traits/side-effects.ts';
import type { ParameterText } from '../parameters/parameters.ts';
import { closeStatement, parseAndDescribe, readRow, runAtOnce } from './messages.ts';
import { type Completion, Pipeline, type PipelineOwner, type Replies, type Settle, type Until } from './pipeline.ts';
import { type Revocable, toldWhenAborted } from './revocation-listeners.ts';
import { RewrittenSql } from './rewritten-sql.ts';

export interface SessionOptions {
  /** For all that happens in the session, by our own clock. 0: no limit. */
  readonly timeoutMs: number;
  /** The caller goes away. */
  readonly disconnect?: DisconnectSignal;
  /** Where results count that are kept whole. Default: nowhere. */
  readonly results?: MemoryReservation | undefined;
  /** How long a backend may take to obey a cancel request, or to roll back, before its connection is dropped. Default 5 s. */
  readonly obeyTimeoutMs?: number;
}

/** What a session works on: a lease, or the first place in a pipeline that others share. */
export type SessionLease = Pick<Lease, 'backend' | 'tenant' | 'share' | 'cancel' | 'release' | 'destroy' | 'terminate' | 'retireSessions'>;

/** What Postgres makes of a statement: the types of its parameters and the columns of its result. */
export interface Description {
  readonly parameters: readonly number[];
  readonly fields: readonly FieldDescription[];
  readonly shape: StatementShape;
}

const OBEY_TIMEOUT_MS = 5_000;
/** For one statement of our own; twice what a kept reply takes as hexadecimal digits. */
const OWN_ROWS_MAX_BYTES = 4 * 1_048_576;
/** What a row takes besides its values. */
const OWN_ROW_BYTES = 200;

/**
 * A lease at work for one call: requests under one deadline that can be aborted. Who opens a session must `end` it, which
 * gives the lease back in whatever state things are.
 */
export class Session implements Revocable, PipelineOwner {
  /** Among those who are told when the key is revoked. */
  index = -1;
  readonly lease: SessionLease;
  readonly results: MemoryReservation | undefined;
  readonly #pipeline: Pipeline;
  /** It has its backend to itself. */
  readonly slotStartedAt = undefined;
  readonly isAlone = true;
  readonly #deadline: Deadline;
  readonly #placed: RewrittenSql;
  readonly #disconnect: DisconnectSignal | undefined;
  readonly #revocable: IndexedSet<Revocable>;
  readonly #obeyTimeoutMs: number;
  #abortReason: ServiceError | undefined;
  #canceling: Promise<void> | undefined;
  #obeyTimer: NodeJS.Timeout | undefined;
  #isClean = false;
  #mustBeReset = false;
  #changesDefaults = false;

  /** @param pipeline to the lease's backend, where a request is under way already */
  constructor(
    lease: SessionLease,
    { timeoutMs, disconnect, results, obeyTimeoutMs = OBEY_TIMEOUT_MS }: SessionOptions,
    pipeline?: Pipeline,
  ) {
    const { revoked } = lease.tenant;
    this.lease = lease;
    this.results = results;
    this.#placed = new RewrittenSql(lease.tenant);
    this.#obeyTimeoutMs = obeyTimeoutMs;
    this.#pipeline = pipeline ?? new Pipeline(lease.backend, lease, this);
    if (pipeline === undefined) this.#pipeline.attach();
    this.#deadline = new Deadline(timeoutMs, () => this.abort(timedOut(timeoutMs)));
    this.#disconnect = disconnect;
    if (disconnect !== undefined) disconnect.listener = () => this.#abandon();
    if (disconnect?.hasHappened) this.#abandon();
    this.#revocable = toldWhenAborted(revoked);
    this.#revocable.add(this);
    if (revoked.aborted) this.revoke(revoked);
  }

  /** As of the last request that was answered. */
  get status(): TransactionStatus {
    return this.#pipeline.status;
  }

  /**
   * Sends messages that end with Sync and waits for all replies. Requests of one turn of the event loop go out in one write.
   * @throws PostgresError, or ServiceError: why the session was aborted, `unsupported_statement`, `response_too_large`, `backend_lost`
   */
  request(messages: readonly Uint8Array[], replies: Replies = {}, edits: Edits = []): Promise<Completion> {
    return new Promise((resolve, reject) => {
      this.send(messages, replies, edits, (ended) => {
        if (ended instanceof Error) reject(ended);
        else resolve(ended);
      });
    });
  }

  /** As {@link request}, for who cannot wait for a promise to be kept. */
  send(messages: readonly Uint8Array[], replies: Replies, edits: Edits, settle: Settle): void {
    if (this.#abortReason !== undefined) settle(this.#abortReason);
    else this.#pipeline.send(messages, replies, 'ready', (ended) => settle(this.#placed.ended(ended, edits)));
  }

  /** A statement whose parameters need no description, in one write. */
  run(text: string, values: readonly ParameterText[] = [], replies: Replies = {}): Promise<Completion> {
    const { sql, edits } = this.#placed.sql(text);
    return this.request(runAtOnce(sql, values), replies, edits);
  }

  /** @returns what to wait for before these statements are sent, so that long ones hold up nobody; mostly nothing */
  ready(...texts: readonly string[]): Promise<void> | undefined {
    return this.#placed.prepare(texts);
  }

  /** SQL of our own that needs no parameters. */
  query(sql: string, replies: Replies = {}): Promise<Completion> {
    return this.request([serialize.query(sql)], replies);
  }

  /**
   * A statement of our own with parameters, and its few rows. They are the organization's: where a table of ours should be
   * there may be a view of endless rows, which must not fill the memory.
   */
  async rows(sql: string, values: readonly ParameterText[] = []): Promise<readonly (readonly ParameterText[])[]> {
    const rows: (readonly ParameterText[])[] = [];
    let bytes = 0;
    const row = (source: Buffer, start: number, end: number) => {
      bytes += end - start + OWN_ROW_BYTES;
      if (bytes <= OWN_ROWS_MAX_BYTES) rows.push(readRow(source, start));
      else this.abort(new ServiceError('response_too_large', `the results exceed ${OWN_ROWS_MAX_BYTES} bytes`));
    };
    await this.request(runAtOnce(sql, values), { row });
    return rows;
  }

  /** Parses a statement (as the unnamed one) and has it described; its transaction stays open until the next request. */
  describe(text: string): Promise<Description> {
    const { sql, edits } = this.#placed.sql(text);
    return this.#describe(parseAndDescribe(sql), edits);
  }

  /** As {@link describe}, and for good: the statement stays prepared in the session under its own name. */
  async prepare(text: string, statement: ServerStatement): Promise<Description> {
    const { sql, edits } = this.#placed.sql(text);
    const { prepared } = this.lease.backend.session;
    const evicted = prepared.set(statement, statement);
    statement.isSent = true;
    const room = evicted.map(({ name }) => closeStatement(name.toString('latin1')));
    try {
      const description = await this.#describe([...room, ...parseAndDescribe(sql, statement.name.toString('latin1'))], edits);
      statement.proven = true;
      return description;
    } catch (error) {
      this.unprepare(statement);
      for (const other of evicted) this.unprepare(other);
      throw error;
    }
  }

  unprepare(statement: ServerStatement): void {
    this.lease.backend.session.unprepare(statement);
  }

  /**
   * Tells what is going to run, ahead of it. Where all of it is known to leave nothing behind, the session need not be
   * reset afterwards, and what is prepared in it stays. Need not be waited for.
   */
  expect(...sideEffects: readonly SideEffects[]): Promise<unknown> {
    this.#isClean = sideEffects.every(({ leavesState }) => leavesState === 'no');
    this.#changesDefaults = sideEffects.some(({ changesDefaults }) => changesDefaults);
    // What another's statements got from a sequence is none of this one's business.
    return sideEffects.some(({ readsSequences }) => readsSequences) ? this.query('DISCARD SEQUENCES') : DONE;
  }

  /** Something has been changed that only a reset takes back. */
  mustBeReset(): void {
    this.#mustBeReset = true;
  }

  async #describe(messages: readonly Uint8Array[], edits: Edits): Promise<Description> {
    this.throwIfAborted();
    let parameters: readonly number[] = [];
    let parametersBody = Buffer.alloc(0);
    let fields: readonly FieldDescription[] = [];
    let shape = UNKNOWN_SHAPE;
    const replies: Replies = {
      parameters: (types, body) => {
        parameters = types;
        parametersBody = Buffer.from(body);
      },
      fields: (columns, body) => {
        fields = columns;
        shape = statementShape(parametersBody, body);
      },
    };
    try {
      await this.#sent([...messages, FLUSH], replies, 'described');
    } catch (error) {
      throw this.#placed.error(error, edits);
    }
    return { parameters, fields, shape };
  }

  #sent(messages: readonly Uint8Array[], replies: Replies, until: Until): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#pipeline.send(messages, replies, until, (ended) => {
        if (ended instanceof Error) reject(ended);
        else resolve();
      });
    });
  }

  share(): MemoryReservation {
    return this.lease.share();
  }

  /** Lets nothing more arrive. The clock stands still meanwhile: Postgres is not to blame for a slow reader. */
  pause(): void {
    this.#deadline.pause();
    this.#pipeline.pause();
  }

  resume(): void {
    if (this.#abortReason === undefined) this.#deadline.resume();
    this.#pipeline.resume();
  }

  /** Has Postgres cancel what it is doing. What fails from now on fails for this reason; the first one counts. */
  abort(reason: ServiceError): void {
    if (this.#abortReason !== undefined) return;
    this.#abortReason = reason;
    this.#deadline.clear();
    this.#pipeline.blame(reason);
    if (!this.#pipeline.isWaiting) return;
    this.resume();
    this.#canceling = this.lease.cancel();
    this.#expectObedience();
  }

  /** The connection is gone, or has been given up: nobody will hear how its last request ended. */
  get isLost(): boolean {
    return this.#pipeline.isDead;
  }

  /** Why what still arrives is of no use. */
  get abortReason(): ServiceError | undefined {
    return this.#abortReason;
  }

  /** @throws ServiceError why the session was aborted: what succeeded in spite of that is not to be built upon */
  throwIfAborted(): void {
    if (this.#abortReason !== undefined) throw this.#abortReason;
  }

  /** Waits for outstanding replies, rolls back what is open and releases the lease; where that takes too long, destroys it. */
  end(): Promise<void> {
    this.#deadline.clear();
    if (this.#disconnect !== undefined) this.#disconnect.listener = undefined;
    this.#revocable.delete(this);
    this.lease.backend.resume();
    return this.#pipeline.isAtRest && this.#canceling === undefined ? this.#giveBack() : this.#endLater();
  }

  async #endLater(): Promise<void> {
    if (await this.#comesToRest()) await this.#giveBack();
    else {
      this.#noteSchemaChange();
      this.#pipeline.fail(new ServiceError('backend_lost', 'the connection to the database was given up'));
      this.lease.destroy();
    }
  }

  #giveBack(): Promise<void> {
    this.#noteSchemaChange();
    if (this.#changesDefaults) this.lease.retireSessions();
    return this.lease.release(this.#isLeftClean);
  }

  /** Statements prepared before may not be what their texts mean now. */
  #noteSchemaChange(): void {
    if (this.#pipeline.hasChangedSchema) registryOf(this.lease.tenant.organization).invalidate();
  }

  get #isLeftClean(): boolean {
    const { isUntouched, hasChangedSettings } = this.#pipeline;
    return isUntouched || (this.#isClean && !this.#mustBeReset && !hasChangedSettings);
  }

  /** @returns whether the backend is idle, outside a transaction, with no cancel request on its way */
  async #comesToRest(): Promise<boolean> {
    const pipeline = this.#pipeline;
    this.#expectObedience();
    try {
      if (pipeline.isUnsynced) await this.#sent([SYNC], {}, 'ready');
      await pipeline.drained();
      if (pipeline.status !== 'I') await this.#sent([serialize.query('ROLLBACK')], {}, 'ready');
      await this.#canceling;
    } catch {
      return false;
    } finally {
      clearTimeout(this.#obeyTimer);
    }
    return !pipeline.isDead && pipeline.status === 'I';
  }

  #expectObedience(): void {
    this.#obeyTimer ??= setTimeout(() => {
      const { kind, message } = this.#abortReason ?? new ServiceError('backend_lost', 'the database did not answer in time');
      this.#pipeline.blame(
        new ServiceError(kind, message, { detail: 'The database has not confirmed it, so the statement may still take effect.' }),
      );
      this.lease.terminate();
      this.#pipeline.fail(new ServiceError(kind, message));
    }, this.#obeyTimeoutMs);
  }

  /** The key it came with is good no more, or its organization was suspended. */
  revoke({ reason }: AbortSignal): void {
    this.abort(reason instanceof ServiceError ? reason : new ServiceError('key_revoked', 'the API key is not valid any more'));
  }

  #abandon(): void {
    this.abort(new ServiceError('query_canceled', 'the caller has gone away'));
  }
}

const DONE = Promise.resolve();

function timedOut(timeoutMs: number): ServiceError {
  return new ServiceError('statement_timeout', `canceling statement due to statement timeout (${timeoutMs} ms)`);
}
