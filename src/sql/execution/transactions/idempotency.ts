import { ServiceError } from '../../../errors.ts';
import { PostgresError } from '../../../protocol/backend.ts';
import type { Lease } from '../../../router/lease.ts';
import { createPosternTable, type PosternTable, posternTable } from '../../postern-tables.ts';
import { ReplySizeLimit } from '../../result/buffered-result.ts';
import type { StatementOutcome } from '../../result/result-format.ts';
import { Session, type SessionOptions } from '../../session/session.ts';
import { inTransaction } from './in-transaction.ts';

/** A request that is to be carried out once, however often it is sent. */
export interface RepeatableRequest {
  /** The caller's name for it. */
  readonly key: string;
  /** Of everything in it: another request must not come under the same key. */
  readonly fingerprint: string;
  /** Media type of the reply. */
  readonly contentType: string;
}

export interface KeptReply {
  /** HTTP's. */
  readonly status: number;
  readonly contentType: string;
  readonly body: Buffer;
}

/** What has been done, and the reply that was kept of it. */
export interface DoneReply extends Omit<KeptReply, 'contentType'> {
  /** Of its statements. */
  readonly outcomes?: readonly StatementOutcome[];
}

export interface OnceReply extends KeptReply, DoneReply {
  /** Nothing was done now: it is what was answered when it was. */
  readonly isReplay: boolean;
}

/** Keeps the reply, in the transaction that it is the reply to. */
export type Keep = (status: number, body: Buffer) => Promise<void>;

/** Every kept reply stays for a day in the organization's own database. */
const REPLY_MAX_BYTES = 1_048_576;

/** For results that are to be part of a kept reply. */
export function keptBudget(session: Session): ReplySizeLimit {
  return new ReplySizeLimit(
    session,
    REPLY_MAX_BYTES,
    'A reply to a request with an Idempotency-Key is kept: ask for less, or leave out the key.',
  );
}

/**
 * Carries a request out unless it has been already, and takes over the lease. What it does and the reply to it are
 * committed together: whoever does not get the reply sends the request again, and gets it then. What fails leaves no trace,
 * and may be tried again under the same key.
 * @param perform does everything in one transaction, the last part of which is to keep the reply
 * @throws ServiceError `idempotency_key_reused`, `idempotency_in_progress`; and what `perform` throws
 */
export async function once(
  lease: Lease,
  options: SessionOptions,
  request: RepeatableRequest,
  perform: (session: Session, keep: Keep) => Promise<DoneReply>,
): Promise<OnceReply> {
  const session = new Session(lease, options);
  try {
    const replies = new KeptReplies(session, request);
    const kept = await replies.claim();
    const reply = kept ?? { ...(await perform(session, (status, body) => replies.keep(status, body))), contentType: request.contentType };
    replies.leave();
    return { ...reply, isReplay: kept !== undefined };
  } catch (error) {
    // The lock may still be held.
    session.mustBeReset();
    throw error;
  } finally {
    await session.end();
  }
}

const COLUMNS = `
  key text COLLATE "C" PRIMARY KEY,
  fingerprint text NOT NULL,
  status smallint NOT NULL,
  content_type text NOT NULL,
  reply bytea NOT NULL,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp()`;

const KEPT_FOR = `interval '24 hours'`;
/** A request that adds one reply takes out up to so many old ones, so that they cannot pile up. */
const EXPIRED_MAX = 20;

/** SQLSTATEs undefined_table and invalid_schema_name. */
const NO_TABLE = new Set(['42P01', '3F000']);

/**
 * The replies that are kept for one organization, as seen by one request. The lock tells requests at work from those that
 * are done, without waiting. It is the session's, so that what was committed under it is seen whatever the isolation level
 * of the transaction that begins afterwards. That nothing happens twice does not depend on it: keys are unique.
 */
class KeptReplies {
  readonly #session: Session;
  readonly #request: RepeatableRequest;
  readonly #table: PosternTable;
  readonly #lockName: string;

  constructor(session: Session, request: RepeatableRequest) {
    const { placement } = session.lease.tenant.organization;
    this.#session = session;
    this.#request = request;
    this.#table = posternTable(placement, 'idempotency_keys');
    this.#lockName = `postern.idempotency_keys ${placement.role} ${request.key}`;
  }

  /** @returns the reply, if the request has been carried out; if not, it is ours to do now */
  async claim(): Promise<KeptReply | undefined> {
    await this.#session.expect();
    const [isOurs, kept] = await Promise.all([this.#lock(), this.#find()]);
    if (kept !== undefined && kept !== 'no table') return kept;
    if (!isOurs) throw inProgress();
    if (kept === 'no table') await this.#create();
    return undefined;
  }

  /** @throws ServiceError `response_too_large`, `idempotency_in_progress` */
  async keep(status: number, body: Buffer): Promise<void> {
    if (body.length > REPLY_MAX_BYTES) keptBudget(this.#session).spend(body.length);
    this.#session.throwIfAborted();
    const { key, fingerprint, contentType } = this.#request;
    const { name } = this.#table;
    const rows = await this.#session.rows(
      `INSERT INTO ${name} AS kept (key, fingerprint, status, content_type, reply) VALUES ($1, $2, $3, $4, pg_catalog.decode($5, 'hex'))
       ON CONFLICT (key) DO UPDATE SET fingerprint = excluded.fingerprint, status = excluded.status, content_type = excluded.content_type,
         reply = excluded.reply, created_at = excluded.created_at
       WHERE kept.created_at <= clock_timestamp() - ${KEPT_FOR} RETURNING 1`,
      [key, fingerprint, String(status), contentType, body.toString('hex')],
    );
    if (rows.length === 0) throw inProgress();
  }

  /** Lets go of the lock and takes out what has been kept for long enough. Nobody has to wait for that, or for its success. */
  leave(): void {
    const { name } = this.#table;
    const unlocked = this.#session.rows('SELECT pg_catalog.pg_advisory_unlock(pg_catalog.hashtextextended($1, 0))', [this.#lockName]);
    const cleared = this.#session.query(
      `DELETE FROM ${name} WHERE key IN (SELECT key FROM ${name} WHERE created_at <= clock_timestamp() - ${KEPT_FOR}
       ORDER BY created_at LIMIT ${EXPIRED_MAX} FOR UPDATE SKIP LOCKED)`,
    );
    unlocked.catch(() => this.#session.mustBeReset());
    cleared.catch(() => {});
  }

  async #lock(): Promise<boolean> {
    const [row] = await this.#session.rows('SELECT pg_catalog.pg_try_advisory_lock(pg_catalog.hashtextextended($1, 0))', [this.#lockName]);
    return row?.[0] === 't';
  }

  async #find(): Promise<KeptReply | 'no table' | undefined> {
    const { key, fingerprint } = this.#request;
    try {
      const [row] = await this.#session.rows(
        `SELECT fingerprint, status, content_type, pg_catalog.encode(reply, 'hex') FROM ${this.#table.name}
         WHERE key = $1 AND created_at > clock_timestamp() - ${KEPT_FOR}`,
        [key],
      );
      if (row === undefined) return undefined;
      const [of, status, contentType, reply] = row;
      if (of !== fingerprint) throw reused();
      return { status: Number(status), contentType: contentType ?? '', body: Buffer.from(reply ?? '', 'hex') };
    } catch (error) {
      if (error instanceof PostgresError && NO_TABLE.has(error.fields.code)) return 'no table';
      throw error;
    }
  }

  async #create(): Promise<void> {
    const { name } = this.#table;
    await inTransaction(this.#session, 'BEGIN', async () => {
      if (!(await createPosternTable(this.#session, this.#table, COLUMNS))) return;
      await this.#session.query(`CREATE INDEX ON ${name} (created_at)`);
    });
  }
}

function inProgress(): ServiceError {
  return new ServiceError('idempotency_in_progress', 'a request with this Idempotency-Key is still running', { retryAfterS: 1 });
}

function reused(): ServiceError {
  return new ServiceError('idempotency_key_reused', 'this Idempotency-Key was used for another request', {
    detail: 'Within 24 hours a key stands for one request: the same method, path and body.',
    hint: 'Use a new key for each request, and the same one only to send a request again.',
  });
}
