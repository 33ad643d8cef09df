import { serialize } from 'pg-protocol';
import { ServiceError } from '../errors.ts';
import { registryOf } from '../multiplex/statement-registry.ts';
import { decodeTextRow, PostgresError, type TransactionStatus } from '../protocol/backend.ts';
import { HEADER_BYTES } from '../protocol/framing.ts';
import { SYNC } from '../protocol/frontend.ts';
import { LARGE_SQL_BYTES, type RewriteOptions } from '../rewriting/rewrite-sql.ts';
import { schemaRewriterOf } from '../rewriting/rewriter.ts';
import type { DisconnectSignal, Lease, Tenant } from '../router/lease.ts';
import { Deadline, TimeSlices } from '../runtime/event-loop.ts';
import { type Indexed, IndexedSet } from '../runtime/indexed-set.ts';
import type { MemoryReservation } from '../runtime/memory-budget.ts';
import { type Edits, NO_EDITS } from '../syntax/edits.ts';
import { asksByParameter, asksForPublic, readsSearchPath } from '../syntax/names.ts';
import { type CustomOptions, SHOWS_SEARCH_PATH, withOptions } from '../syntax/session-traits.ts';
import type { SideEffects } from '../syntax/side-effects.ts';
import { isExplain } from '../syntax/statements.ts';
import type { ParameterText } from './parameters.ts';
import { type Completion, extendedQuery, Pipeline, type PipelineOwner, type Replies, type Settle, type Until } from './pipeline.ts';
import type { Warning } from './warnings.ts';

export interface SessionOptions {
  /** For everything that runs in the session, by Postern's own clock. 0: no limit. */
  readonly timeoutMs: number;
  /** Signals that the client has disconnected, or that its call is to end. */
  readonly disconnect?: DisconnectSignal;
  /** The reservation for results that are kept in memory as a whole. Default: none. */
  readonly results?: MemoryReservation | undefined;
  /** How long a backend may take to obey a cancel request or to roll back, before its connection is dropped. Default 5 s. */
  readonly obeyTimeoutMs?: number;
}

/** What a session runs on: a lease, or the first slot of a shared pipeline. */
export type SessionLease = Pick<
  Lease,
  'backend' | 'tenant' | 'reservation' | 'cancel' | 'release' | 'destroy' | 'terminate' | 'retireSessions'
>;

const OBEY_TIMEOUT_MS = 5_000;
/** The limit for the rows of one of Postern's own statements: twice the size of a kept reply in hexadecimal digits. */
const OWN_ROWS_MAX_BYTES = 4 * 1_048_576;
/** The memory that a row takes in addition to its values. */
const OWN_ROW_BYTES = 200;

/**
 * One call's requests on a lease. They have a common deadline and can be aborted. Whoever opens a session must `end` it, which
 * gives the lease back in whatever state the backend is.
 */
export class SqlSession implements Revocable, PipelineOwner {
  /** The session's index among the listeners for the revocation of its key. */
  index = -1;
  readonly lease: SessionLease;
  readonly results: MemoryReservation | undefined;
  readonly #pipeline: Pipeline;
  /** The session does not share its backend, so it never waits for a slot. */
  readonly slotStartedAt = undefined;
  readonly isAlone = true;
  readonly #deadline: Deadline;
  readonly #rewritten: SessionRewriter;
  readonly #disconnect: DisconnectSignal | undefined;
  readonly #revocable: IndexedSet<Revocable>;
  readonly #obeyTimeoutMs: number;
  #abortReason: ServiceError | undefined;
  #canceling: Promise<void> | undefined;
  #obeyTimer: NodeJS.Timeout | undefined;
  #isClean = false;
  #mustBeReset = false;
  #changesDefaults = false;
  #mayChangeSchema = false;

  /** @param pipeline of the lease's backend, if a request is already running */
  constructor(
    lease: SessionLease,
    { timeoutMs, disconnect, results, obeyTimeoutMs = OBEY_TIMEOUT_MS }: SessionOptions,
    pipeline?: Pipeline,
  ) {
    const { revoked } = lease.tenant;
    this.lease = lease;
    this.results = results;
    this.#rewritten = new SessionRewriter(lease.tenant);
    this.#obeyTimeoutMs = obeyTimeoutMs;
    this.#pipeline = pipeline ?? new Pipeline(lease.backend, lease, this);
    if (pipeline === undefined) this.#pipeline.attach();
    this.#deadline = new Deadline(timeoutMs, () => this.abort(timedOut(timeoutMs)));
    this.#disconnect = disconnect;
    if (disconnect !== undefined) {
      disconnect.listener = () => this.#disconnected();
      disconnect.backend = lease.backend;
    }
    if (disconnect?.hasHappened) this.#disconnected();
    this.#revocable = revocationListeners(revoked);
    this.#revocable.add(this);
    if (revoked.aborted) this.revoke(revoked);
  }

  /** The transaction status in the last ReadyForQuery. */
  get status(): TransactionStatus {
    return this.#pipeline.status;
  }

  /**
   * Sends messages and waits for all replies. Requests of one turn of the event loop go out in one write.
   * @param edits those of the statement in the messages
   * @param until with `ready` the messages end with Sync, otherwise with Flush
   * @throws PostgresError, or ServiceError: why the session was aborted, `unsupported_statement`, `response_too_large`, `backend_lost`
   */
  request(messages: readonly Uint8Array[], replies: Replies = {}, edits: Edits = [], until: Until = 'ready'): Promise<Completion> {
    return new Promise((resolve, reject) => {
      const settle = (ended: Completion | Error) => {
        if (ended instanceof Error) reject(ended);
        else resolve(ended);
      };
      this.send(messages, replies, edits, settle, until);
    });
  }

  /** Does the same as {@link request}, with a callback in place of a promise. */
  send(messages: readonly Uint8Array[], replies: Replies, edits: Edits, settle: Settle, until: Until = 'ready'): void {
    if (this.#abortReason !== undefined) settle(this.#abortReason);
    else this.#pipeline.send(messages, replies, until, (ended) => settle(this.#rewritten.outcome(ended, edits)));
  }

  /** Runs a statement whose parameters need no description, in one write. */
  run(text: string, values: readonly ParameterText[] = [], replies: Replies = {}): Promise<Completion> {
    const { sql, edits } = this.rewrite(text);
    return this.request(extendedQuery(sql, values), this.repliesTo(text, values, replies), edits);
  }

  /** The client's SQL as the server gets it. */
  rewrite(text: string): Rewritten {
    return this.#rewritten.sql(text, this.#pipeline.areStringsStandard);
  }

  /** The value of `standard_conforming_strings`, as of the last ReadyForQuery. */
  get areStringsStandard(): boolean {
    return this.#pipeline.areStringsStandard;
  }

  /** Whether the statements that are still to be answered must be awaited: they may change how Postgres reads the strings of this text. */
  awaitsStrings(text: string): boolean {
    return this.#pipeline.isWaiting && this.#rewritten.dependsOnStrings(text);
  }

  /** @see SessionRewriter.replies */
  repliesTo(text: string, values: readonly ParameterText[], replies: Replies): Replies {
    return this.#rewritten.replies(text, values, replies);
  }

  /** @returns a promise to await before these statements are sent, if long ones are rewritten in time slices; mostly undefined */
  rewriteAhead(...texts: readonly string[]): Promise<void> | undefined {
    return this.#rewritten.rewriteAhead(texts, this.#pipeline.areStringsStandard);
  }

  /** Counts a statement of the client's that has completed, for the query statistics. */
  count(sql: string, startedAt: number, rows: number | null | undefined, bytes: number): void {
    const now = performance.now();
    this.lease.tenant.statements?.find(sql)[0]?.ran(now, now - startedAt, rows ?? 0, bytes, false);
  }

  /** As {@link count}, for one that has failed; not if the server has never seen it. */
  countFailure(sql: string, startedAt: number, error: unknown, bytes = 0): void {
    if (!(error instanceof PostgresError) && this.#abortReason === undefined && !this.isLost) return;
    const now = performance.now();
    this.lease.tenant.statements?.find(sql)[0]?.ran(now, now - startedAt, 0, bytes, true);
  }

  /** Runs SQL of Postern's own that has no parameters. */
  query(sql: string, replies: Replies = {}): Promise<Completion> {
    return this.request([serialize.query(sql)], replies);
  }

  /**
   * Runs a statement of Postern's own with parameters, and returns its few rows. Their size is limited, because the organization may
   * have put a view with endless rows in the place of Postern's table.
   */
  async rows(sql: string, values: readonly ParameterText[] = []): Promise<readonly (readonly ParameterText[])[]> {
    const rows: (readonly ParameterText[])[] = [];
    let bytes = 0;
    const row = (source: Buffer, start: number, end: number) => {
      bytes += end - start + OWN_ROW_BYTES;
      if (bytes <= OWN_ROWS_MAX_BYTES) rows.push(decodeTextRow(source, start));
      else this.abort(new ServiceError('response_too_large', `the results exceed ${OWN_ROWS_MAX_BYTES} bytes`));
    };
    await this.request(extendedQuery(sql, values), { row });
    return rows;
  }

  /**
   * Announces the statements that are going to run. If all of them are known to leave no state, the session is not reset
   * afterwards, and keeps its prepared statements. The caller need not await the result.
   */
  expect(...sideEffects: readonly SideEffects[]): Promise<unknown> {
    this.#isClean = sideEffects.every(({ leavesState }) => leavesState === 'no');
    for (const { customOptions } of sideEffects) this.makesOptions(customOptions);
    if (sideEffects.some(({ createsFromQuery }) => createsFromQuery)) this.mayChangeSchema();
    this.#changesDefaults = sideEffects.some(({ changesDefaults }) => changesDefaults);
    // currval() and lastval() must not return what another client's statements got from a sequence.
    return sideEffects.some(({ readsSequences }) => readsSequences) ? this.query('DISCARD SEQUENCES') : DONE;
  }

  /** Notes that something has changed that only a reset undoes. */
  mustBeReset(): void {
    this.#mustBeReset = true;
  }

  /** Notes that these customized options may exist in the backend's session from now on. */
  makesOptions(options: CustomOptions): void {
    const { session } = this.lease.backend;
    session.customOptions = withOptions(session.customOptions, options);
  }

  /** Notes that tables or types may change without a command tag that says so. */
  mayChangeSchema(): void {
    this.#mayChangeSchema = true;
  }

  #sent(messages: readonly Uint8Array[], replies: Replies, until: Until): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#pipeline.send(messages, replies, until, (ended) => {
        if (ended instanceof Error) reject(ended);
        else resolve();
      });
    });
  }

  reservation(): MemoryReservation {
    return this.lease.reservation();
  }

  /** Pauses receiving. The deadline is suspended meanwhile, because Postgres is not responsible for a slow reader. */
  pause(): void {
    this.#deadline.pause();
    this.#pipeline.pause();
  }

  resume(): void {
    if (this.#abortReason === undefined) this.#deadline.resume();
    this.#pipeline.resume();
  }

  /** Has Postgres cancel the running statement. Requests that fail from now on get this reason; the first reason counts. */
  abort(reason: ServiceError): void {
    if (this.#abortReason !== undefined) return;
    this.#abortReason = reason;
    this.#deadline.clear();
    this.#pipeline.failAllWith(reason);
    if (!this.#pipeline.isWaiting) return;
    this.resume();
    this.#canceling = this.lease.cancel();
    this.#startObeyTimer();
  }

  /** One of its statements may have changed tables or types. */
  get hasChangedSchema(): boolean {
    return this.#mayChangeSchema || this.#pipeline.hasChangedSchema;
  }

  /** The connection is lost or has been given up: the outcome of its last request will not be known. */
  get isLost(): boolean {
    return this.#pipeline.isDead;
  }

  /** Why further results are not needed; undefined while they are. */
  get abortReason(): ServiceError | undefined {
    return this.#abortReason;
  }

  /** @throws ServiceError why the session was aborted. A request may have succeeded nevertheless; no other must follow it. */
  throwIfAborted(): void {
    if (this.#abortReason !== undefined) throw this.#abortReason;
  }

  /** Waits for pending replies, rolls back an open transaction and releases the lease. If that takes too long, it destroys the lease. */
  end(): Promise<void> {
    this.#deadline.clear();
    if (this.#disconnect !== undefined) {
      this.#disconnect.listener = undefined;
      this.#disconnect.backend = undefined;
    }
    this.#revocable.delete(this);
    this.lease.backend.resume();
    return this.#pipeline.isAtRest && this.#canceling === undefined ? this.#release() : this.#endLater();
  }

  async #endLater(): Promise<void> {
    if (await this.#becomesIdle()) await this.#release();
    else {
      this.#invalidateStatements();
      this.#pipeline.fail(new ServiceError('backend_lost', 'the connection to the database was given up'));
      this.lease.destroy();
    }
  }

  #release(): Promise<void> {
    this.#invalidateStatements();
    if (this.#changesDefaults) {
      registryOf(this.lease.tenant.organization).defaultsChanged();
      this.lease.retireSessions();
    }
    return this.lease.release(this.#isLeftClean);
  }

  /** After a change of the schema, statements that were prepared earlier may mean something else. */
  #invalidateStatements(): void {
    if (this.hasChangedSchema) registryOf(this.lease.tenant.organization).invalidate();
  }

  get #isLeftClean(): boolean {
    const { isUntouched, hasChangedSettings } = this.#pipeline;
    return isUntouched || (this.#isClean && !this.#mustBeReset && !hasChangedSettings);
  }

  /** @returns whether the backend is idle, outside a transaction, without a pending cancel request */
  async #becomesIdle(): Promise<boolean> {
    const pipeline = this.#pipeline;
    this.#startObeyTimer();
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

  #startObeyTimer(): void {
    this.#obeyTimer ??= setTimeout(() => {
      const { kind, message } = this.#abortReason ?? new ServiceError('backend_lost', 'the database did not answer in time');
      this.#pipeline.failAllWith(
        new ServiceError(kind, message, { detail: 'The database has not confirmed it, so the statement may still take effect.' }),
      );
      this.lease.terminate();
      this.#pipeline.fail(new ServiceError(kind, message));
    }, this.#obeyTimeoutMs);
  }

  /** Aborts the session, because its key was revoked or its organization suspended. */
  revoke({ reason }: AbortSignal): void {
    this.abort(reason instanceof ServiceError ? reason : new ServiceError('key_revoked', 'the API key is not valid any more'));
  }

  #disconnected(): void {
    const reason = this.#disconnect?.reason;
    if (reason !== undefined) this.abort(reason);
  }
}

const DONE = Promise.resolve();

function timedOut(timeoutMs: number): ServiceError {
  return new ServiceError('statement_timeout', `canceling statement due to statement timeout (${timeoutMs} ms)`);
}

interface Rewritten {
  readonly sql: string;
  /** The replacements, from which positions in errors are computed. */
  readonly edits: Edits;
}

const WITH_ESCAPES: RewriteOptions = { standardConformingStrings: false };

function optionsOf(areStringsStandard: boolean): RewriteOptions | undefined {
  return areStringsStandard ? undefined : WITH_ESCAPES;
}

interface LargeText extends Rewritten {
  readonly original: string;
  /** The setting with which it has been read. */
  readonly areStringsStandard: boolean;
}

/**
 * Rewrites a client's SQL for the `schema` placement, where the organization's `public` is a schema of another name, and rewrites
 * Postgres' errors back. In the `database` placement both stay as they are.
 */
export class SessionRewriter {
  readonly #rewriter: ReturnType<typeof schemaRewriterOf>;
  /** Long texts that have been rewritten in time slices, in the order in which they will be used. */
  #large: LargeText[] = [];

  constructor(tenant: Tenant) {
    this.#rewriter = schemaRewriterOf(tenant);
  }

  /** @param areStringsStandard the value of `standard_conforming_strings` with which the server will read the text */
  sql(text: string, areStringsStandard: boolean): Rewritten {
    if (this.#rewriter === undefined) return { sql: text, edits: NO_EDITS };
    return this.#findLarge(text, areStringsStandard) ?? this.#rewriter.rewrite(text, optionsOf(areStringsStandard));
  }

  /** Whether the rewritten text depends on `standard_conforming_strings`. */
  dependsOnStrings(text: string): boolean {
    return this.#rewriter?.dependsOnStrings(text) === true;
  }

  /** Searches an array, because in a Map V8 would hash long strings by their length. Mostly the first entry is the same string. */
  #findLarge(text: string, areStringsStandard: boolean): Rewritten | undefined {
    if (text.length < LARGE_SQL_BYTES) return undefined;
    const at = this.#large.findIndex((large) => large.original === text && large.areStringsStandard === areStringsStandard);
    if (at < 0) return undefined;
    const found = this.#large[at];
    // The entry comes first from now on, because its text is likely to be used again next.
    if (at > 0) this.#large = [...this.#large.slice(at), ...this.#large.slice(0, at)];
    return found;
  }

  /** @returns a promise to await before long texts among these are used; undefined when there are none */
  rewriteAhead(texts: readonly string[], areStringsStandard: boolean): Promise<void> | undefined {
    const rewriter = this.#rewriter;
    if (rewriter === undefined) return undefined;
    const large = texts.filter((text) => text.length >= LARGE_SQL_BYTES && this.#findLarge(text, areStringsStandard) === undefined);
    if (large.length === 0) return undefined;
    return (async () => {
      const rewritten: LargeText[] = [];
      const slices = new TimeSlices();
      for (const original of large) {
        const { sql, edits } = await rewriter.rewriteLarge(Buffer.from(original), optionsOf(areStringsStandard));
        await slices.pause();
        rewritten.push({ original, areStringsStandard, sql: edits.length === 0 ? original : sql.toString(), edits });
        await slices.pause();
      }
      this.#large = [...rewritten, ...this.#large];
    })();
  }

  /** @returns the outcome of a request, in the words of the client. @param edits the edits of its statement */
  outcome(outcome: Completion | Error, edits: Edits): Completion | Error {
    if (this.#rewriter === undefined) return outcome;
    if (outcome instanceof Error) return this.error(outcome, edits);
    return { ...outcome, warnings: this.warnings(outcome.warnings) };
  }

  /** @returns what gets rows that have the schema's name in the words of the client; for a statement without such rows, the same */
  replies(sql: string, values: readonly ParameterText[], replies: Replies): Replies {
    const rewriter = this.#rewriter;
    const shows = rewriter && shownBy(sql, values);
    const change = shows && rewriter?.rows(shows);
    if (change === undefined) return replies;
    return {
      parameters: (...described) => replies.parameters?.(...described),
      fields: (...described) => replies.fields?.(...described),
      bound: () => replies.bound?.(),
      row: (source, start, end) => {
        const row = change(source.subarray(start, end));
        replies.row?.(row, HEADER_BYTES, row.length);
      },
      ...(replies.largeRow && { largeRow: (...row) => replies.largeRow?.(...row) ?? DONE }),
      interrupt: () => replies.interrupt?.(),
    };
  }

  error<T>(error: T, edits: Edits = NO_EDITS): T | PostgresError {
    if (this.#rewriter === undefined || !(error instanceof PostgresError)) return error;
    return new PostgresError(this.#rewriter.error(error.fields, edits));
  }

  warnings(warnings: readonly Warning[]): readonly Warning[] {
    const rewriter = this.#rewriter;
    if (rewriter === undefined) return warnings;
    return warnings.map((warning) => {
      const { message, detail, hint, where } = rewriter.error(warning);
      const notes = Object.fromEntries(Object.entries({ detail, hint, where }).filter(([, value]) => value !== undefined));
      return { severity: warning.severity, code: warning.code, message, ...notes };
    });
  }
}

/** What the rows of a statement have of the schema's name. */
function shownBy(sql: string, values: readonly ParameterText[]): 'plan' | 'search_path' | 'names' | undefined {
  if (isExplain(sql)) return 'plan';
  if (SHOWS_SEARCH_PATH.test(sql) || readsSearchPath(sql)) return 'search_path';
  const asks = asksForPublic(sql) || (values.some((value) => value?.includes('public')) && asksByParameter(sql));
  return asks ? 'names' : undefined;
}

/** A session that must be notified when its key is revoked. */
interface Revocable extends Indexed {
  /** @param revoked the aborted signal, which has the reason */
  revoke(revoked: AbortSignal): void;
}

const LISTENERS = new WeakMap<AbortSignal, IndexedSet<Revocable>>();

/**
 * The sessions that are notified when a signal is aborted. The signal has a single listener, which notifies them all:
 * adding and removing a listener takes longer the more there are.
 */
export function revocationListeners(signal: AbortSignal): IndexedSet<Revocable> {
  const known = LISTENERS.get(signal);
  if (known !== undefined) return known;
  const listeners = new IndexedSet<Revocable>();
  LISTENERS.set(signal, listeners);
  const revokeAll = () => {
    for (const listener of listeners.all()) listener.revoke(signal);
  };
  signal.addEventListener('abort', revokeAll, { once: true });
  return listeners;
}
