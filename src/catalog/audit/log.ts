import postgres from 'postgres';
import type { Observe } from '../../observation.ts';
import type { ControlPool, Sql } from '../control-pool.ts';
import { appendToChains } from './blocks.ts';
import { type AuditFilters, type AuditPage, listEntries } from './list.ts';
import { type AuditEvent, type AuditRecord, hasLongText, recordOf, withRecordedText } from './records.ts';
import { type AuditVerification, VerificationQueue, verifyChain } from './verification.ts';

/** From an event to the transaction that writes it. With the transaction itself it stays below 250 ms. */
const WRITE_DELAY_MS = 100;
const RETRY_DELAY_MS = 1_000;
/** Linking and encoding this many takes a few milliseconds of the event loop's time. */
const BATCH_ENTRIES = 1_000;
/** Events wait in memory while the control database cannot be reached. Further ones are dropped, which is reported. */
const QUEUE_ENTRIES_MAX = 20_000;
/** Records are made of this many events together: making them one by one costs several times as much. */
const EVENTS_MAX = 64;
/** An event with a longer statement is made into a record in the next turn. The record keeps only the statement's beginning. */
const EVENT_SQL_CHARACTERS_MAX = 4_096;
const VERIFY_TIMEOUT_MS = 120_000;
const DAY_MS = 86_400_000;

interface TimedEvent {
  readonly event: AuditEvent;
  readonly at: Date;
}

/** The audit logs of all organizations. Events are written in batches, or within the transaction that an event reports. */
export class AuditLog {
  readonly #database: ControlPool;
  readonly #observe: Observe;
  readonly #now: () => Date;
  /** Events of which no record has been made yet. */
  #events: TimedEvent[] = [];
  /** Events with long statements, whose texts are being hashed in parts. */
  readonly #inParts = new Set<Promise<void>>();
  #queue: AuditRecord[] = [];
  #dropped = 0;
  /** Writing fails at the moment, and that has been reported. */
  #failing = false;
  /** Positions that failed attempts gave to the records of the first batch. Their COMMIT may have happened nevertheless. */
  readonly #tried = new Map<string, number>();
  #timer: NodeJS.Timeout | undefined;
  #writing: Promise<void> | undefined;
  readonly #verifications = new VerificationQueue((organizationId, signal) =>
    this.#database.snapshot((sql) => verifyChain(sql, organizationId, signal), VERIFY_TIMEOUT_MS),
  );

  constructor(options: { readonly database: ControlPool; readonly observe: Observe; readonly now: () => Date }) {
    this.#database = options.database;
    this.#observe = options.observe;
    this.#now = options.now;
  }

  /** Queues an event. It is written within 250 ms. */
  append(event: AuditEvent): void {
    if (this.#events.length + this.#inParts.size + this.#queue.length >= QUEUE_ENTRIES_MAX) {
      this.#dropped += 1;
      return;
    }
    const at = this.#now();
    if (hasLongText(event)) this.#addInParts(event, at);
    else this.#add({ event, at });
  }

  #addInParts(event: AuditEvent, at: Date): void {
    const adding = withRecordedText(event)
      .then((recorded) => this.#add({ event: recorded, at }))
      .catch((error: unknown) => this.#drop(error))
      .finally(() => this.#inParts.delete(adding));
    this.#inParts.add(adding);
  }

  #add(timed: TimedEvent): void {
    this.#events.push(timed);
    if (this.#events.length >= EVENTS_MAX) this.#record();
    // Redacting and hashing some kilobytes is worth a turn of its own.
    else if ((timed.event.statement?.sql.length ?? 0) > EVENT_SQL_CHARACTERS_MAX) setImmediate(() => this.#record());
    this.#writeAfter(WRITE_DELAY_MS);
  }

  /** Makes records of the events. */
  #record(): void {
    const events = this.#events;
    this.#events = [];
    for (const { event, at } of events) {
      try {
        this.#queue.push(recordOf(event, at));
      } catch (error) {
        this.#drop(error);
      }
    }
  }

  #drop(error: unknown): void {
    this.#dropped += 1;
    this.#reportDropped(error);
  }

  /** Writes an event within the transaction that it reports, so that it is recorded exactly when that commits. */
  async appendWith(sql: Sql, event: AuditEvent): Promise<void> {
    const at = this.#now();
    await appendToChains(sql, [recordOf(await withRecordedText(event), at)]);
  }

  /** Resolves when everything appended so far has been written, or writing it has failed. Never rejects. */
  async flush(): Promise<void> {
    // Records are made at once, even while an earlier batch is being written: an event's text may hold a password, a record does not.
    this.#record();
    if (this.#inParts.size > 0) await Promise.all(this.#inParts);
    this.#record();
    await this.#writing;
    await this.#write();
  }

  /**
   * Newest first, including everything that this process has appended.
   * @throws ServiceError `invalid_request`
   */
  async list(organizationId: string, filters: AuditFilters = {}): Promise<AuditPage> {
    await this.flush();
    return this.#database.readFor(organizationId, (sql) => listEntries(sql, organizationId, filters));
  }

  /**
   * Verifies an organization's chain, one organization at a time, because each occupies a session of the control database.
   * @param signal aborts when the caller has disconnected
   * @throws ServiceError `not_found`, `query_canceled`
   */
  async verify(organizationId: string, signal?: AbortSignal): Promise<AuditVerification> {
    await this.flush();
    return this.#verifications.request(organizationId, signal);
  }

  /** Deletes entries older than so many days. @returns how many */
  deleteOlderThan(days: number): Promise<number> {
    return deleteExpired(this.#database, new Date(this.#now().getTime() - days * DAY_MS));
  }

  /** Writes the queued events, and reports those that could not be written. */
  async close(): Promise<void> {
    await this.flush();
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#dropped += this.#events.length + this.#queue.length;
    this.#events = [];
    this.#queue = [];
    this.#reportDropped(new Error('the service stopped before they could be written'));
  }

  #writeAfter(delayMs: number): void {
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      void this.flush();
    }, delayMs);
  }

  /** One writer at a time, so that batches keep their order. */
  #write(): Promise<void> {
    this.#writing ??= this.#writeBatches(this.#queue.length).finally(() => {
      this.#writing = undefined;
    });
    return this.#writing;
  }

  async #writeBatches(entries: number): Promise<void> {
    for (let left = entries; left > 0; ) {
      const batch = this.#queue.slice(0, Math.min(BATCH_ENTRIES, left));
      if (!(await this.#writeBatch(batch))) {
        this.#writeAfter(RETRY_DELAY_MS);
        break;
      }
      this.#queue.splice(0, batch.length);
      this.#tried.clear();
      left -= batch.length;
    }
    this.#reportDropped(new Error('more events than the audit queue holds'));
    if (this.#queue.length > 0) this.#writeAfter(WRITE_DELAY_MS);
  }

  /** @returns false when the batch has to be written again later */
  async #writeBatch(batch: readonly AuditRecord[]): Promise<boolean> {
    try {
      await this.#database.transaction((sql) => appendToChains(sql, batch, this.#tried));
    } catch (error) {
      if (isRefusal(error)) return this.#writeOneByOne(batch, error);
      if (!this.#failing) this.#observe({ name: 'service.warning', message: 'the audit log cannot be written; events wait', cause: error });
      this.#failing = true;
      return false;
    }
    this.#failing = false;
    const lagMs = this.#now().getTime() - Date.parse(batch[0]?.occurredAt ?? '');
    this.#observe({ name: 'audit.written', entries: batch.length, lagMs });
    return true;
  }

  /** An entry that Postgres rejects must not keep the others from being written. */
  async #writeOneByOne(batch: readonly AuditRecord[], cause: unknown): Promise<boolean> {
    if (batch.length === 1) {
      this.#dropped += 1;
      this.#reportDropped(cause);
      return true;
    }
    for (const record of batch) {
      if (!(await this.#writeBatch([record]))) return false;
    }
    return true;
  }

  #reportDropped(cause: unknown): void {
    if (this.#dropped > 0) this.#observe({ name: 'audit.dropped', entries: this.#dropped, cause });
    this.#dropped = 0;
  }
}

/** Postgres has rejected the data (data exception, integrity constraint, program limit) and will reject it again. */
function isRefusal(error: unknown): boolean {
  return error instanceof postgres.PostgresError && /^(22|23|54)/.test(error.code);
}

const CHAINS_PER_PAGE = 1_000;
const BLOCKS_PER_TRANSACTION = 200;

/**
 * Deletes the blocks of every chain up to the first that holds an entry not older than `before`. The head records the position
 * and hash of the last deleted entry, where verification begins. Several processes may do this at the same time.
 * @returns how many entries were deleted
 */
async function deleteExpired(database: ControlPool, before: Date): Promise<number> {
  let deleted = 0;
  for (let after: string | undefined = ''; after !== undefined; ) {
    const page: { organization_id: string; expired: boolean }[] = await database.run((sql) => pageOfChains(sql, after ?? '', before));
    for (const { organization_id: id } of page.filter(({ expired }) => expired)) {
      for (let more = true; more; ) {
        const { blocks, entries } = await database.transaction((sql) => deleteFromChain(sql, id, before));
        deleted += entries;
        more = blocks === BLOCKS_PER_TRANSACTION;
      }
    }
    after = page.length === CHAINS_PER_PAGE ? page.at(-1)?.organization_id : undefined;
  }
  return deleted;
}

/** Chains in the order of their ids, and whether the oldest block of each has expired. */
async function pageOfChains(sql: Sql, after: string, before: Date): Promise<{ organization_id: string; expired: boolean }[]> {
  return sql<{ organization_id: string; expired: boolean }[]>`
    select h.organization_id, coalesce(oldest.last_at < ${before}, false) as expired
    from postern.audit_heads h
    left join lateral (
      select b.last_at from postern.audit_blocks b where b.organization_id = h.organization_id order by b.seq limit 1
    ) oldest on true
    where h.organization_id > ${after}
    order by h.organization_id
    limit ${CHAINS_PER_PAGE}`;
}

async function deleteFromChain(sql: Sql, organizationId: string, before: Date): Promise<{ blocks: number; entries: number }> {
  const nothing = { blocks: 0, entries: 0 };
  const [head] = await sql`
    select from postern.audit_heads where organization_id = ${organizationId} for no key update skip locked`;
  if (head === undefined) return nothing;
  const oldest = await sql<{ first_seq: string; seq: string; hash: Buffer; expired: boolean }[]>`
    select first_seq, seq, hash, last_at < ${before} as expired
    from postern.audit_blocks
    where organization_id = ${organizationId}
    order by seq
    limit ${BLOCKS_PER_TRANSACTION}`;
  const firstKept = oldest.findIndex(({ expired }) => !expired);
  const expired = firstKept < 0 ? oldest : oldest.slice(0, firstKept);
  const last = expired.at(-1);
  if (last === undefined) return nothing;
  await sql`delete from postern.audit_blocks where organization_id = ${organizationId} and seq <= ${last.seq}`;
  await sql`
    update postern.audit_heads set kept_after_seq = ${last.seq}, kept_after_hash = ${last.hash}
    where organization_id = ${organizationId}`;
  const entries = expired.reduce((sum, { first_seq, seq }) => sum + Number(seq) - Number(first_seq) + 1, 0);
  return { blocks: expired.length, entries };
}
