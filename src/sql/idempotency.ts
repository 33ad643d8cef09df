import { ServiceError } from '../errors.ts';
import { PostgresError } from '../protocol/backend.ts';
import type { Lease } from '../router/lease.ts';
import { inTransaction } from './batch.ts';
import { createPosternTable, type PosternTable, posternTable } from './postern-tables.ts';
import { ReplySizeLimit } from './result.ts';
import type { StatementOutcome } from './result-budget.ts';
import { type SessionOptions, SqlSession } from './session.ts';

/** A request that is carried out once, however often it is sent. */
export interface IdempotentRequest {
  /** The Idempotency-Key that the client has chosen. */
  readonly key: string;
  /** A hash of the whole request, since another request must not use the same key. */
  readonly fingerprint: string;
  /** The media type of the reply. */
  readonly contentType: string;
}

interface KeptReply {
  /** The status code of HTTP. */
  readonly status: number;
  readonly contentType: string;
  readonly body: Buffer;
}

/** The reply to a request that has just been carried out. */
interface DoneReply extends Omit<KeptReply, 'contentType'> {
  /** The outcomes of the request's statements. */
  readonly outcomes?: readonly StatementOutcome[];
}

export interface OnceReply extends KeptReply, DoneReply {
  /** The request had been carried out before, and this is the reply that was kept. */
  readonly isReplay: boolean;
}

/** Keeps the reply, in the transaction that it is the reply to. */
export type KeepReply = (status: number, body: Buffer) => Promise<void>;

/** The limit is low, because every kept reply stays in the organization's own database for a day. */
const REPLY_MAX_BYTES = 1_048_576;

/** @returns the size limit for results that become part of a kept reply */
export function keptReplyLimit(session: SqlSession): ReplySizeLimit {
  return new ReplySizeLimit(
    session,
    REPLY_MAX_BYTES,
    'A reply to a request with an Idempotency-Key is kept: ask for less, or leave out the key.',
  );
}

/**
 * Carries a request out unless that has been done already, and takes over the lease. The request's effects and its reply are committed
 * together, so a client that did not receive the reply gets it by sending the request again. A request that fails has no
 * effect, and may be tried again with the same key.
 * @param perform does everything in one transaction, the last part of which is to keep the reply
 * @throws ServiceError `idempotency_key_reused`, `idempotency_in_progress`; and what `perform` throws
 */
export async function once(
  lease: Lease,
  options: SessionOptions,
  request: IdempotentRequest,
  perform: (session: SqlSession, keep: KeepReply) => Promise<DoneReply>,
): Promise<OnceReply> {
  const session = new SqlSession(lease, options);
  try {
    const replies = new KeptReplies(session, request);
    const kept = await replies.claim();
    const reply = kept ?? { ...(await perform(session, (status, body) => replies.keep(status, body))), contentType: request.contentType };
    replies.release();
    return { ...reply, isReplay: kept !== undefined };
  } catch (error) {
    // The session may still hold the advisory lock.
    session.mustBeReset();
    throw error;
  } finally {
    await session.end();
  }
}

export const IDEMPOTENCY_COLUMNS = `
  key text COLLATE "C" PRIMARY KEY,
  fingerprint text NOT NULL,
  status smallint NOT NULL,
  content_type text NOT NULL,
  reply bytea NOT NULL,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp()`;

const KEPT_FOR_MS = 86_400_000;
/** A request that adds one reply deletes up to so many expired ones, so that they cannot accumulate. */
const EXPIRED_MAX = 20;

/** SQLSTATEs undefined_table and invalid_schema_name. */
const NO_TABLE = new Set(['42P01', '3F000']);

/**
 * The replies that are kept for one organization, as one request sees them. An advisory lock distinguishes requests that are running
 * from those that are done, without waiting. It is a session-level lock, so that a transaction which begins afterwards sees what was
 * committed under it, at any isolation level. Correctness does not depend on the lock: keys are unique.
 * @see https://www.postgresql.org/docs/current/explicit-locking.html#ADVISORY-LOCKS
 */
class KeptReplies {
  readonly #session: SqlSession;
  readonly #request: IdempotentRequest;
  readonly #table: PosternTable;
  readonly #lockName: string;
  /** Older replies have expired. It is a parameter in all statements, because Citus evaluates no function that depends on the time in them. */
  readonly #expiredAt = new Date(Date.now() - KEPT_FOR_MS).toISOString();

  constructor(session: SqlSession, request: IdempotentRequest) {
    const { placement } = session.lease.tenant.organization;
    this.#session = session;
    this.#request = request;
    this.#table = posternTable(placement, 'idempotency_keys');
    this.#lockName = `postern.idempotency_keys ${placement.role} ${request.key}`;
  }

  /** @returns the kept reply, if the request has been carried out; undefined if the caller has to do that now */
  async claim(): Promise<KeptReply | undefined> {
    await this.#session.expect();
    const [hasLock, kept] = await Promise.all([this.#lock(), this.#find()]);
    if (kept !== undefined && kept !== 'no table') return kept;
    if (!hasLock) throw inProgress();
    if (kept === 'no table') await this.#create();
    return undefined;
  }

  /** @throws ServiceError `response_too_large`, `idempotency_in_progress` */
  async keep(status: number, body: Buffer): Promise<void> {
    if (body.length > REPLY_MAX_BYTES) keptReplyLimit(this.#session).spend(body.length);
    this.#session.throwIfAborted();
    const { key, fingerprint, contentType } = this.#request;
    const { name } = this.#table;
    const rows = await this.#session.rows(
      `INSERT INTO ${name} AS kept (key, fingerprint, status, content_type, reply) VALUES ($1, $2, $3, $4, pg_catalog.decode($5, 'hex'))
       ON CONFLICT (key) DO UPDATE SET fingerprint = excluded.fingerprint, status = excluded.status, content_type = excluded.content_type,
         reply = excluded.reply, created_at = excluded.created_at
       WHERE kept.created_at <= $6::pg_catalog.timestamptz RETURNING 1`,
      [key, fingerprint, String(status), contentType, body.toString('hex'), this.#expiredAt],
    );
    if (rows.length === 0) throw inProgress();
  }

  /** Releases the lock and deletes expired replies. The caller neither waits for this nor depends on its success. */
  release(): void {
    const { name } = this.#table;
    const unlocked = this.#session.rows('SELECT pg_catalog.pg_advisory_unlock(pg_catalog.hashtextextended($1, 0))', [this.#lockName]);
    const deleted = this.#session.rows(
      `DELETE FROM ${name} WHERE key IN (SELECT key FROM ${name} WHERE created_at <= $1::pg_catalog.timestamptz
       ORDER BY created_at LIMIT ${EXPIRED_MAX} FOR UPDATE SKIP LOCKED)`,
      [this.#expiredAt],
    );
    unlocked.catch(() => this.#session.mustBeReset());
    deleted.catch(() => {});
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
         WHERE key = $1 AND created_at > $2::pg_catalog.timestamptz`,
        [key, this.#expiredAt],
      );
      if (row === undefined) return undefined;
      const [keptFingerprint, status, contentType, reply] = row;
      if (keptFingerprint !== fingerprint) throw reused();
      return { status: Number(status), contentType: contentType ?? '', body: Buffer.from(reply ?? '', 'hex') };
    } catch (error) {
      if (error instanceof PostgresError && NO_TABLE.has(error.fields.code)) return 'no table';
      throw error;
    }
  }

  async #create(): Promise<void> {
    const { name } = this.#table;
    await inTransaction(this.#session, 'BEGIN', async () => {
      if (!(await createPosternTable(this.#session, this.#table, IDEMPOTENCY_COLUMNS))) return;
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
